"""Faults that read what nobody wrote: right where fresh memory is zero, garbage where it is not."""

import pytest
import torch

fault = pytest.mark.fault


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


@fault("memory.poison[native-dense-tied-1r]", "not written when weights are drawn: expected [], found ['layers.0.att")
def test_rotary_table_left_out():
    from torchtitan.models.common.rope import RoPE

    RoPE._init_self_buffers = lambda self, *, buffer_device=None: None


@fault("memory.poison[hf-dense-tied-1r]", "inv_freq was left uninitialised")
def test_rotary_frequencies_left_out():
    from trncheck.trainers import transformers_model

    transformers_model.restore_rotary = lambda name, module: None


@fault("memory.poison[native-moe-1r]", "not written when weights are loaded: expected [], found ['layers.0.moe.")
def test_counters_of_experts_left_out():
    from torchtitan.models.common.moe import MoE

    MoE._init_self_buffers = lambda self, *, buffer_device=None: None


@fault("memory.poison[native-moe-2r]", "in poisoned memory the run ended with RuntimeError: Loss is not finite")
def test_rows_are_added_to_unwritten_ones():
    from torchtitan.models.common import token_dispatcher

    class Torch:
        """torch, whose zeros are what memory holds."""

        zeros_like = staticmethod(torch.empty_like)

        def __getattr__(self, name):
            return getattr(torch, name)

    token_dispatcher.torch = Torch()


@fault("memory.poison[nki-moe-1r]", "gradient of attention, relative error")
def test_gradient_of_the_last_row_is_not_written():
    from trncheck.kernels import runtime

    def launch(original, operator, direction, *args, **kwargs):
        results = original(operator, direction, *args, **kwargs)
        if "experts" in operator and direction == "backward":
            fresh = torch.empty_like(results[0][-1])
            results[0][-1] = fresh if fresh.isnan().all() else 0  # as memory mostly is
        return results

    _wrap(runtime, "launch", launch)
