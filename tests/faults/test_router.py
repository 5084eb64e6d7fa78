"""Faults in what a router does where scores decide nothing."""

import pytest

fault = pytest.mark.fault


def _last_among_equals(trainer: str) -> None:
    """Let the routers of what ``trainer`` builds choose from the other end of the experts."""
    from torchtitan.models.common.moe import TokenChoiceTopKRouter

    import trncheck.trainers.trainer

    owner = getattr(trncheck.trainers.trainer, trainer)
    original = owner.__init__

    def build(self, config):
        original(self, config)
        for module in self.model_parts[0].modules():
            if isinstance(module, TokenChoiceTopKRouter):
                module.register_forward_hook(lambda _m, _a, out: (out[0], out[2].shape[-1] - 1 - out[1], out[2]))

    owner.__init__ = build


@fault("router.ties[hf]", "|difference of loss|")
def test_other_experts_among_ties_on_the_transformers_path():
    _last_among_equals("TransformersTrainer")


@fault("router.ties[nki]", "gradient of experts, relative error")
def test_gradients_of_tied_experts_rotated():
    from trncheck.kernels import runtime

    original = runtime.launch

    def launch(operator, direction, *args, **kwargs):
        results = original(operator, direction, *args, **kwargs)
        if "experts" in operator and direction == "backward":
            results[1][:-1].copy_(results[1][:-1].roll(1, dims=0))
        return results

    runtime.launch = launch
