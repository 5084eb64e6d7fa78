"""Plain Transformers, no torchtitan: the witness that both paths are held against.

Runs in a process of its own; a process that has built torchtitan's Transformers backend has patched the library.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from trncheck.trainers.activations import Activations

IGNORE_INDEX = -100


def train_plainly(model_folder: Path, batches: Sequence[Path], rates: Sequence[float], out: Path) -> None:
    """Train ``AutoModelForCausalLM`` of ``model_folder`` in fp32 on recorded batches, one AdamW step for each.

    ``batches`` are safetensors files with ``input``, ``positions`` and ``labels`` (B, L); ``rates`` the learning
    rate of each step. The optimizer's settings are those of ``config_registry`` (betas 0.9 and 0.95, weight decay
    0.1). Writes to ``out``: ``losses.json``, and of the first step ``logits``, ``gradients`` and ``weights``
    (after the update) as safetensors under the names of the Hugging Face file.
    """
    model = _load(model_folder)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for step, (file, rate) in enumerate(zip(batches, rates, strict=True), start=1):
        batch = load_file(file)
        optimizer.zero_grad()
        logits, loss = forward(model, batch)
        loss.backward()
        losses.append(loss.item())
        if step == 1:
            save_file({"logits": logits.detach()}, out / "logits.safetensors")
            save_file(file_named(model, gradients=True), out / "gradients.safetensors")
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if step == 1:
            save_file(file_named(model), out / "weights.safetensors")
    (out / "losses.json").write_text(json.dumps(losses))


@torch.no_grad()
def loss_plainly(model_folder: Path, batch: Path, out: Path) -> None:
    """Write the same model's mean loss over the labels of a batch to ``out`` as JSON, row by row to save memory."""
    model, columns = _load(model_folder), load_file(batch)
    losses, counts = [], []
    for row in range(len(columns["labels"])):
        one = {name: tensor[row : row + 1] for name, tensor in columns.items()}
        losses.append(forward(model, one)[1].item())
        counts.append(int((one["labels"] != IGNORE_INDEX).sum()))
    weighted = sum(loss * count for loss, count in zip(losses, counts, strict=True) if count)
    out.write_text(json.dumps(weighted / sum(counts)))


def record_plainly(model_folder: Path, batch: Path, out: Path) -> None:
    """Write what leaves each module of the same model, and its gradient, to ``out/activations.safetensors``."""
    model = _load(model_folder)
    activations = Activations([model])
    _, loss = forward(model, load_file(batch))
    loss.backward()
    activations.save(out / "activations.safetensors")


def forward(model, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (B, L, V) and mean cross-entropy of packed rows, masked per document by an explicit mask."""
    output = model(
        input_ids=batch["input"],
        position_ids=batch["positions"],
        attention_mask=document_mask(batch["positions"]),
        use_cache=False,
    )
    loss = F.cross_entropy(output.logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORE_INDEX)
    return output.logits, loss


def document_mask(positions_BL: torch.Tensor) -> torch.Tensor:
    """Boolean (B, 1, L, L), True where a query may look: earlier, and in the same document (positions restart at 0)."""
    length = positions_BL.shape[1]
    document_BL = (positions_BL == 0).cumsum(dim=1)
    causal_LL = torch.ones(length, length, dtype=torch.bool).tril()
    return (causal_LL & (document_BL[:, :, None] == document_BL[:, None, :]))[:, None]


def file_named(model, *, gradients: bool = False) -> dict[str, torch.Tensor]:
    """Weights or gradients under the names of the Hugging Face file: experts one by one, a tied head left out."""
    tensors = {}
    for name, parameter in model.named_parameters():
        value = (parameter.grad if gradients else parameter).detach().clone()
        prefix, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            gate_up = {"gate_proj": value.chunk(2, dim=1)[0], "up_proj": value.chunk(2, dim=1)[1]}
            tensors |= _per_expert(prefix, gate_up)
        elif last == "down_proj":
            tensors |= _per_expert(prefix, {last: value})
        else:
            tensors[name] = value
    return tensors


def _load(model_folder: Path):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.train()


def _per_expert(prefix: str, projections: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        f"{prefix}.{expert}.{projection}.weight": matrix.contiguous()
        for projection, stacked in projections.items()
        for expert, matrix in enumerate(stacked)
    }
