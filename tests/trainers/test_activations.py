"""What leaves the modules of a model, under Transformers' names."""

import pytest
import torch
from torch import nn

from trncheck.trainers.activations import Activations, common_name, load


@pytest.mark.parametrize(
    ("name", "common"),
    [
        ("tok_embeddings", "embed_tokens"),
        ("layers.3.attention_norm", "layers.3.input_layernorm"),
        ("layers.3.attention.q_norm", "layers.3.self_attn.q_norm"),
        ("layers.3.attention", "layers.3.self_attn"),
        ("layers.3.ffn_norm", "layers.3.post_attention_layernorm"),
        ("layers.3.feed_forward", "layers.3.mlp"),
        ("layers.3.moe", "layers.3.mlp"),
        ("layers.3.moe.router", "layers.3.mlp.gate"),
        ("layers.3", "layers.3"),
        ("norm", "norm"),
        ("lm_head", "lm_head"),
        ("model.embed_tokens", "embed_tokens"),
        ("model.layers.3.mlp.gate", "layers.3.mlp.gate"),
        ("model.model.layers.3.mlp.router", "layers.3.mlp.gate"),
        ("model.model.layers.3._checkpoint_wrapped_module.self_attn", "layers.3.self_attn"),
        ("model.lm_head", "lm_head"),
        ("", None),
        ("layers", None),
        ("layers.3.attention.qkv_linear.wqkv", None),
        ("layers.3.moe.router.gate", None),
        ("layers.3.feed_forward.w1", None),
        ("model.layers.3.mlp.gate_proj", None),
        ("model.rotary_emb", None),
    ],
)
def test_modules_of_all_models_have_common_names(name, common):
    assert common_name(name) == common


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings, self.norm, self.lm_head = nn.Embedding(5, 3), nn.LayerNorm(3), nn.Linear(3, 2)

    def forward(self, tokens_BL):
        return self.lm_head(self.norm(self.tok_embeddings(tokens_BL)))


def test_rows_of_micro_batches_and_ranks_are_joined_in_order(tmp_path):
    torch.manual_seed(0)
    model, tokens_BL = Model(), torch.arange(20).reshape(4, 5) % 5
    whole, parts = Activations([model]), []
    model(tokens_BL).square().sum().backward()
    whole.save(tmp_path / "whole")
    for rank in range(2):
        for row in range(2):
            model(tokens_BL[2 * rank + row][None]).square().sum().backward()
        parts.append(tmp_path / f"rank{rank}")
        whole.save(parts[-1])
    got, want = load(parts), load([tmp_path / "whole"])
    assert list(got) == list(want) == ["embed_tokens", "norm", "lm_head"]
    for name in want:
        torch.testing.assert_close(got[name], want[name])
    assert got["lm_head"].output.shape == (4, 5, 2)
    torch.testing.assert_close(got["lm_head"].gradient, 2 * got["lm_head"].output)


def test_forward_pass_without_gradients_is_not_recorded(tmp_path):
    activations = Activations([model := Model()])
    with torch.no_grad():
        model(torch.zeros(1, 2, dtype=torch.long))
    model(torch.zeros(1, 2, dtype=torch.long))
    activations.save(tmp_path / "file")
    norm = load([tmp_path / "file"])["norm"]
    assert norm.output.shape == (1, 2, 3)
    assert norm.gradient is None


class Gate(nn.Module):
    """A router that chooses experts 3 and 0, and gives its results as torchtitan or as Transformers do."""

    def __init__(self, *, transformers: bool):
        super().__init__()
        self.gate, self._transformers = nn.Module(), transformers

    def forward(self, weights_TK):
        experts_TK = torch.tensor([[3, 0]]).expand(2, 2)
        scores_TE = torch.rand(2, 4)
        if self._transformers:
            return scores_TE, weights_TK.flip(1), experts_TK.flip(1)
        return weights_TK[None], experts_TK[None], scores_TE[None]


@pytest.mark.parametrize("transformers", [True, False])
def test_routers_weights_come_in_the_order_of_experts(tmp_path, transformers):
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Module()])
    model.layers[0].mlp = nn.Module()
    model.layers[0].mlp.gate = gate = Gate(transformers=transformers)
    activations = Activations([model])
    weights_TK = torch.tensor([[0.75, 0.25], [0.5, 0.5]], requires_grad=True)
    results = gate(weights_TK)
    results[1 if transformers else 0].square().sum().backward()
    activations.save(tmp_path / "file")
    output, gradient = load([tmp_path / "file"])["layers.0.mlp.gate"]
    assert output.tolist() == [[0.25, 0, 0, 0.75], [0.5, 0, 0, 0.5]]
    assert gradient.tolist() == [[0.5, 0, 0, 1.5], [1, 0, 0, 1]]
