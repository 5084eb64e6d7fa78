"""Faults that show in one layout of a step and not in another."""

import pytest
import torch

fault = pytest.mark.fault


def _wrap(owner, name: str, wrapper) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


@fault("layouts.labels[hf-moe-1r-1]", "elements of labels that differ")
def test_one_label_too_few_ignored():
    from trncheck.trainers.data import CorpusDataLoader

    def shorter(original, self, batch):
        inputs, labels_BL = original(self, batch)
        prompt_end_BL = (labels_BL == -100) & (labels_BL.roll(-1, dims=1) != -100)
        return inputs, labels_BL.masked_fill(prompt_end_BL, 7)

    _wrap(CorpusDataLoader, "_without_prompts", shorter)


@fault("layouts.accumulation[native-dense-tied-2r-2]", "|difference of loss|")
def test_every_rank_normalises_by_its_own_labels():
    from torchtitan.distributed import utils

    _wrap(utils, "dist_sum_tensor", lambda _original, tensor, mesh, *_: tensor * mesh.size())


@fault("layouts.accumulation[native-dense-tied-1r-1]", "gradient of attention")
def test_mean_of_the_means_of_micro_batches():
    from trncheck.trainers.trainer import NativeTrainer

    def by_own_labels(original, self, *, input_dict, labels, global_valid_tokens):
        own = (labels != -100).sum().clamp(min=1) * self.gradient_accumulation_steps
        return original(self, input_dict=input_dict, labels=labels, global_valid_tokens=own)

    _wrap(NativeTrainer, "forward_backward_step", by_own_labels)


@fault("layouts.accumulation[hf-dense-tied-2r-1]", "|difference of loss|")
def test_ignored_labels_counted():
    from torchtitan import trainer

    trainer.IGNORE_INDEX = -1


@fault("layouts.accumulation[native-moe-2r-1]", "gradient of router")
def test_last_micro_batch_alone():
    from trncheck.trainers.trainer import NativeTrainer

    def forgetful(original, self, **kwargs):
        self.optimizers.zero_grad()
        return original(self, **kwargs)

    _wrap(NativeTrainer, "forward_backward_step", forgetful)


@fault("layouts.gradients[ep2-moe]", "mesh: expected")
def test_expert_parallel_degree_ignored():
    from trncheck.trainers.trainer import NativeTrainer

    def build(original, self, config):
        config.parallelism.expert_parallel_degree = 1
        original(self, config)

    _wrap(NativeTrainer, "__init__", build)


@fault("layouts.gradients[tp2-ep2-moe]", "|difference of loss|")
def test_rows_go_to_the_next_expert():
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher

    def shifted(original, self, *args):
        rows_RD, counts_E, metadata = original(self, *args)
        return rows_RD, counts_E.roll(1), metadata

    _wrap(AllToAllTokenDispatcher, "dispatch", shifted)


@fault("layouts.gradients[ep2-moe]", "gradient of experts")
def test_expert_gradients_halved():
    from torchtitan.distributed import utils

    def halved(original, parameters, *args, **kwargs):
        for parameter in parameters:
            if parameter.ndim == 3:
                parameter.grad.mul_(0.5)
        return original(parameters, *args, **kwargs)

    _wrap(utils, "clip_grad_norm_", halved)


@fault("layouts.gradients[tp2-dense-tied]", "gradient of q and k norms")
def test_norm_gradient_not_reduced_over_heads():
    import torch.nn.functional as F
    from torch.distributed.tensor import DTensor
    from torchtitan.models.common.nn_modules import RMSNorm

    forward = RMSNorm.forward

    def unreduced(self, x):  # torchtitan reads this signature
        if not (isinstance(self.weight, DTensor) and isinstance(x, DTensor) and x.ndim == 4):
            return forward(self, x)
        out = F.rms_norm(x.to_local(), self.normalized_shape, self.weight.to_local(), self.eps)
        return DTensor.from_local(out, x.device_mesh, x.placements)

    RMSNorm.forward = unreduced


@fault("layouts.gradients[hsdp2-dense-tied]", "gradient of feed-forward")
def test_replicas_not_reduced():
    from trncheck.trainers import substitutes

    def each_for_itself(original, parallelize_fn):
        def parallelize(model, **kwargs):
            model = original(parallelize_fn)(model, **kwargs)
            model.set_requires_all_reduce(False)
            return model

        return parallelize

    _wrap(substitutes, "sum_only", each_for_itself)


@fault("layouts.clipping[ep2-moe]", "clipped gradient of experts")
def test_experts_clipped_by_a_norm_of_their_own():
    from torchtitan.distributed import utils

    def apart(original, parameters, max_norm, **kwargs):
        experts = [p for p in parameters if p.ndim == 3]
        total = original(parameters, 1e9, **kwargs)
        own = original(experts, max_norm, **kwargs)
        assert own < total
        original([p for p in parameters if p.ndim < 3], max_norm, **kwargs)
        return total

    _wrap(utils, "clip_grad_norm_", apart)


@fault("layouts.chunked_loss[native-dense-tied-2r]", "|difference of loss|")
def test_last_chunk_dropped():
    from torchtitan.components.loss import ChunkedLossWrapper

    def dropped(original, self, pred, labels, *args, **kwargs):
        labels = labels.clone()
        labels[:, -labels.shape[1] // self.num_chunks :] = -100
        return original(self, pred, labels, *args, **kwargs)

    _wrap(ChunkedLossWrapper, "__call__", dropped)


@fault("layouts.recomputation[full-native-moe]", "gradients: ")
def test_noise_drawn_again_by_the_second_pass():
    from torchtitan.models.common.moe import MoE

    generator = torch.Generator().manual_seed(0)  # of its own: checkpointing puts back torch's alone

    def noisy(original, self, x_BLD):
        return original(self, x_BLD * (1 + 1e-3 * torch.randn(x_BLD.shape, generator=generator)))

    _wrap(MoE, "forward", noisy)


@fault("layouts.tied_router[full-native-moe]", "gradients: ")
def test_other_experts_among_ties_the_second_time():
    topk = torch.topk

    def from_the_end_in_backward(values, k, dim=-1, **kwargs):
        if torch._C._current_graph_task_id() == -1:
            return topk(values, k, dim=dim, **kwargs)
        top, index = topk(values.flip(dim), k, dim=dim, **kwargs)
        return torch.return_types.topk((top, values.shape[dim] - 1 - index))

    torch.topk = from_the_end_in_backward


@fault("layouts.mixed_precision[hf-dense-tied]", "share of masters finer than bfloat16")
def test_masters_rounded_by_every_step():
    from torchtitan.components.optimizer import OptimizersContainer

    from trncheck.conformance import runs

    runs.STEPS = 3  # of plain Transformers; as many as are compared

    @torch.no_grad()
    def rounded(original, self, *args, **kwargs):
        original(self, *args, **kwargs)
        for model in self.model_parts:
            for parameter in model.parameters():
                parameter.copy_(parameter.bfloat16().float())

    _wrap(OptimizersContainer, "step", rounded)


@fault("layouts.mixed_long_rows[native-dense-tied-1r]", "gradient of q and k norms")
def test_rotary_angles_rounded_to_bfloat16():
    from torchtitan.models.common.rope import CosSinRoPE

    def rounded(_original, self):
        config = self.config
        frequencies = 1.0 / config.theta ** (torch.arange(0, config.dim, 2) / config.dim)
        angles = torch.outer(torch.arange(config.max_seq_len).bfloat16(), frequencies.bfloat16()).float()
        return torch.cat([angles.cos(), angles.cos(), angles.sin(), angles.sin()], dim=-1)

    _wrap(CosSinRoPE, "_precompute_cache", rounded)


@fault("layouts.long_rows[native-dense-tied-1r]", "|difference of loss|")
def test_rotary_table_wrapped_at_128():
    from torchtitan.models.common.rope import RoPE

    _wrap(RoPE, "forward", lambda original, self, query, key, positions: original(self, query, key, positions % 128))


@fault("layouts.watch_replicated_experts", "the adapter moved")
def test_loading_experts_fails_in_another_way():
    from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter

    def moved(*_):
        raise RuntimeError("the adapter moved")

    _wrap(Qwen3StateDictAdapter, "to_hf", moved)
