"""Faults in one place of a model: the message must say where."""

import pytest

fault = pytest.mark.fault


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def _briefly() -> None:
    """One step is enough for what differs in the first."""
    from trncheck.conformance import runs, test_kernel_training, test_paths

    runs.STEPS = test_paths.STEPS = test_kernel_training.STEPS = 1
    runs.GRADIENT_STEPS = test_kernel_training.GRADIENT_STEPS = (1,)


def _before_building(change) -> None:
    """Let ``change`` loose on the native model's configuration."""
    from trncheck.trainers.trainer import NativeTrainer

    def build(original, self, config):
        change(config.model_spec.model)
        original(self, config)

    _briefly()
    _wrap(NativeTrainer, "__init__", build)


def _after_building(trainer: str, change) -> None:
    """Let ``change`` loose on the model that ``trainer`` has built."""
    import trncheck.trainers.trainer

    def build(original, self, config):
        original(self, config)
        change(self.model_parts[0])

    _briefly()
    _wrap(getattr(trncheck.trainers.trainer, trainer), "__init__", build)


@fault("paths.logits[native-dense-tied-1r]", "\nstarts at layers.1.self_attn (relative error")
def test_wrong_rotary_base_in_layer_1():
    _before_building(lambda model: setattr(model.layers[1].attention.rope, "theta", 1e4))


@fault("paths.logits[native-dense-tied-2r]", "\nstarts at layers.0.self_attn.q_norm (relative error")
def test_wrong_epsilon_of_q_and_k_norm_in_layer_0():
    _before_building(lambda model: setattr(model.layers[0].attention.qk_norm, "eps", 1e-2))


@fault("paths.logits[native-moe-2r]", "\nstarts at layers.1.mlp (relative error")
def test_tokens_go_to_the_next_expert_in_layer_1():
    def swap(model):
        experts = model.layers["1"].moe.routed_experts.inner_experts
        experts.register_forward_pre_hook(lambda _module, args: (args[0], args[1].roll(1)))

    _after_building("NativeTrainer", swap)


@fault("paths.logits[hf-moe-1r]", "\nstarts at layers.0.mlp.gate (relative error")
def test_router_of_layer_0_leaves_its_weights_as_they_are():
    def leave(model):
        model.model.model.layers["0"].mlp.router.route_norm = False

    _after_building("TransformersTrainer", leave)


@fault("paths.logits[hf-dense-tied-2r]", "\nstarts at norm (relative error")
def test_wrong_epsilon_of_the_last_norm():
    _after_building("TransformersTrainer", lambda model: setattr(model.model.model.norm, "variance_epsilon", 1e-2))


@fault("paths.gradients[native-dense-tied-1r]", "\nbackward starts at layers.0.mlp (relative error")
def test_gradient_of_a_feed_forward_scaled():
    def scale(_module, _args, output):
        if output.requires_grad:
            output.register_hook(lambda gradient: 1.1 * gradient)

    _after_building(
        "NativeTrainer", lambda model: model.layers["0"].feed_forward.register_forward_hook(scale, prepend=True)
    )


@fault("paths.update[hf-dense-untied-1r]", "\nnothing departs from plain Transformers in step 1")
def test_optimizer_with_another_epsilon():
    from torchtitan.components.optimizer import OptimizersContainer

    def step(original, self, *args, **kwargs):
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["eps"] = 1e-4
        return original(self, *args, **kwargs)

    _briefly()
    _wrap(OptimizersContainer, "step", step)


@fault("kernel_training.switched_on[qwen3_native_tiny_nki_rope]", "\nstarts at layers.1.self_attn (relative error")
def test_rope_kernel_of_layer_1_reads_the_table_one_position_off():
    def shift(model):
        if hasattr(rope := model.layers["1"].attention.rope, "apply_rotary_emb") and "Nki" in type(rope).__name__:
            rotate = rope.apply_rotary_emb
            rope.apply_rotary_emb = lambda query, key, cache: rotate(query, key, cache.roll(1, dims=1))

    _after_building("NativeTrainer", shift)
