"""Is the same step the same in every layout: split, sharded, replicated, recomputed, in bf16, on long rows?"""

import math

import numpy as np
import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Layout, each_layout
from trncheck.conformance.compare import pooled_errors, relative_errors, ulp
from trncheck.conformance.judge import KnownDefect
from trncheck.conformance.runs import MAX_NORM, PROMPTS, ROWS, SEQ_LEN
from trncheck.fixtures import corpus

DENSE, MOE, NKI = "qwen3_native_tiny", "qwen3_moe_tiny", "qwen3_moe_nki_tiny"
TP = "--parallelism.tensor_parallel_degree 2"
EP = "--parallelism.expert_parallel_degree 2"
REPLICATED = "--parallelism.data_parallel_replicate_degree 2"
LOCAL = "--training.local_batch_size"
LONG_ROWS, LONG = 2, 512
_LONG = f"--training.seq_len {LONG} {LOCAL} 1 --training.global_batch_size {LONG_ROWS}"
_BF16 = "--training.mixed_precision_param bfloat16 --record.weight_steps 1 activation-checkpoint:selective"

SPLIT = (
    Layout("native-dense-tied-1r-8", DENSE, "dense-tied", 1, f"{LOCAL} 8"),
    Layout("native-dense-tied-1r-1", DENSE, "dense-tied", 1, f"{LOCAL} 1"),
    Layout("native-dense-tied-2r-2", DENSE, "dense-tied", 2, f"{LOCAL} 2", (("fsdp", 2),)),
    Layout("native-moe-2r-1", MOE, "moe", 2, f"{LOCAL} 1", (("fsdp", 2),)),
    Layout("hf-dense-tied-2r-1", "qwen3_hf_tiny", "dense-tied", 2, f"{LOCAL} 1"),
    Layout("hf-moe-1r-1", "qwen3_hf_moe_tiny", "moe", 1, f"{LOCAL} 1"),
)
TP_DENSE = Layout("tp2-dense-tied", DENSE, "dense-tied", 2, TP, (("tp", 2),))
EP_MOE = Layout("ep2-moe", MOE, "moe", 2, EP, (("ep", 2), ("fsdp", 2)))
PARALLEL = (
    TP_DENSE,
    Layout("tp2-moe-nki", f"{NKI}_nki_rope", "moe", 2, TP, (("tp", 2),)),
    EP_MOE,
    Layout("ep2-moe-nki", NKI, "moe", 2, f"{EP} {LOCAL} 2", (("ep", 2), ("fsdp", 2))),
    Layout("tp2-ep2-moe", MOE, "moe", 2, f"{TP} {EP}", (("ep", 2), ("tp", 2))),
    Layout("hsdp2-dense-tied", DENSE, "dense-tied", 2, REPLICATED, (("dp_replicate", 2),)),
    Layout("fsdp2-tp2-dense-tied", DENSE, "dense-tied", 4, TP, (("fsdp", 2), ("tp", 2))),
    Layout("fsdp4-ep2-moe", MOE, "moe", 4, f"{EP} {LOCAL} 2", (("efsdp", 2), ("ep", 2), ("fsdp", 4))),
    Layout("tp2-hf-dense-tied", "qwen3_hf_tiny", "dense-tied", 2, TP),
)
HSDP_MOE = Layout("hsdp2-moe", MOE, "moe", 2, REPLICATED, (("dp_replicate", 2),))
CLIPPED = tuple(
    Layout(layout.name, layout.config, layout.model, 2, f"{layout.flags} --training.max_norm {MAX_NORM}", layout.mesh)
    for layout in (TP_DENSE, EP_MOE)
)
CHUNKED = (
    Layout("native-dense-tied-2r", f"{DENSE}_chunked_loss", "dense-tied", 2, f"{LOCAL} 1", (("fsdp", 2),)),
    Layout("native-moe-1r", f"{MOE}_chunked_loss", "moe"),
    Layout("tp2-dense-tied", f"{DENSE}_chunked_loss", "dense-tied", 2, TP, (("tp", 2),)),
)
RECOMPUTED = tuple(
    Layout(f"{policy}-{path}-moe", config, "moe", 1, f"activation-checkpoint:{policy}")
    for path, config, *policies in (
        ("native", MOE, "full", "selective"),
        ("nki", NKI, "full"),
        ("hf", "qwen3_hf_moe_tiny", "selective"),
    )
    for policy in policies
)
MIXED = (
    Layout("native-dense-tied", f"{DENSE}_chunked_loss", "dense-tied", 2, "--training.steps 3", (("fsdp", 2),)),
    Layout("native-moe", f"{MOE}_chunked_loss", "moe", 2, "--training.steps 3", (("fsdp", 2),)),
    Layout("hf-dense-tied", "qwen3_hf_tiny", "dense-tied", 2, "--training.steps 3"),
    Layout("nki-moe", f"{NKI}_nki_rope", "moe"),
)
LONG_LAYOUTS = (
    Layout("native-dense-tied-1r", DENSE, "dense-tied", 1, _LONG),
    Layout("hf-dense-tied-2r", "qwen3_hf_tiny", "dense-tied", 2, _LONG),
    Layout("nki-dense-tied-2r", f"{DENSE}_nki_rope", "dense-tied", 2, _LONG),
)


@each_layout(*(layout for layout in SPLIT if layout.name.endswith("-1")))
def test_labels(judge, runs, layout):
    """Labels are ignored where the corpus says, and no two ranks have as many left.

    Why: The checks below normalise by labels that are unequally shared out. They prove nothing where the labels are all
    there, or equal in number. No public report is behind this check; it guards the others of its subject.

    Red when: a label is ignored that counts, or the other way round, or the ranks have as many labels each.

    Reading a failure: A difference in `input` is the dataloader's order of rows, one in `labels` its masking
    (`trainers/data.py`). All checks of this subject stand on this one.
    """
    want = corpus.batch(1, ROWS, SEQ_LEN, prompts=PROMPTS)
    got = {name: tensor.numpy() for name, tensor in runs.laid_out(layout).batch(1).items()}
    # Ranks and micro-batches take rows in another order than the corpus has them.
    got, want = ({name: rows[np.lexsort(batch["input"].T)] for name, rows in batch.items()} for batch in (got, want))
    for name in sorted(want):
        wrong = int((got[name] != want[name]).sum())
        judge.equal(f"elements of {name} that differ from the corpus", wrong, 0, elements=want[name].size)
    counted = runs.laid_out(layout).batch(1)["labels"] != corpus.IGNORED
    per_rank, per_row = (counted.view(parts, -1).sum(dim=1).tolist() for parts in (layout.ranks, ROWS))
    judge.note("labels per rank", " ".join(map(str, per_rank)))
    judge.equal("ranks with a number of labels of their own", len(set(per_rank)), layout.ranks)
    judge.equal("rows without any label", per_row.count(0), 1)


@each_layout(*SPLIT)
def test_accumulation(judge, runs, layout):
    """Micro-batches of 1, 2 and 8 rows give plain Transformers' loss and gradients, with unequal numbers of labels.

    Why: A mean over micro-batches of means over labels is right only while all have as many labels, and AdamW hides a
    constant factor. Accumulated gradients were rescaled at every micro-step
    (https://github.com/pytorch/torchtitan/pull/1732).

    Red when: the loss is normalised by another number than that of all labels of the global batch, ignored labels
    count, or a micro-batch is lost or scaled.

    Reading a failure: All groups off by one factor is the number of labels. Green at 8 rows and red at 1 is
    accumulation, green on one rank and red on two the reduction. A row of this batch has no label at all: a NaN is
    a mean over it.
    """
    _hold_step(judge, runs, layout)


@each_layout(*PARALLEL)
def test_gradients(judge, runs, layout):
    """Tensor, expert and replicated parallel layouts give plain Transformers' loss, gradients and gradient norm.

    Why: Each layout reduces each kind of parameter over other ranks, and a missing or doubled reduction leaves the loss
    as it is. Expert gradients were multiplied by the expert-parallel degree
    (https://github.com/pytorch/pytorch/issues/160285), also where one rank of data is left to each expert
    (https://github.com/pytorch/pytorch/pull/167178), and a gather went without its reduction
    (https://github.com/NVIDIA-NeMo/Automodel/pull/1260).

    Red when: a layout is ignored, the experts see other rows, or a group's gradient is reduced too little or too often.

    Reading a failure: `mesh` red: the flags had no effect. Loss red: the forward pass, for experts their rows. Norms
    alone: a gradient that is summed over one rank's heads or positions. One group by a factor of the degree: its divide
    factor. If `layouts.accumulation` is red as well, start there.
    """
    run = _hold_step(judge, runs, layout)
    norm = _norm(runs.reference_step(layout.model).gradients)
    judge.at_most("reported norm, relative error", abs(run.steps[0].grad_norm / norm - 1), bars.GRADIENT)


@each_layout(*CLIPPED)
def test_clipping(judge, runs, layout):
    """Under tensor and expert parallelism, gradients are clipped by the norm over all ranks.

    Why: Where parameters lie on meshes of their own, the norm is put together from several reductions. Ranks clipped by
    the norm of their own experts (https://github.com/NVIDIA-NeMo/Automodel/issues/3816).

    Red when: the norm leaves out or doubles the share of a mesh, or groups are scaled by different factors.

    Reading a failure: Read `layouts.gradients` of the same layout first. While it is green, the norm or the factor is
    wrong; one group alone means that it is clipped by a norm of its own.
    """
    want = runs.reference_step(layout.model).gradients
    norm = _norm(want)
    judge.at_least("norm before clipping", norm, bars.Bar(2 * MAX_NORM, "or nothing would be clipped"))
    scaled = {name: gradient * (MAX_NORM / norm) for name, gradient in want.items()}
    run = runs.laid_out(layout)
    judge.at_most("reported norm, relative error", abs(run.steps[0].grad_norm / norm - 1), bars.GRADIENT)
    _hold_groups(judge, "clipped gradient", run.gradients(1), scaled)


@each_layout(*CHUNKED)
def test_chunked_loss(judge, runs, layout):
    """Head and loss computed in chunks of a row give plain Transformers' loss and gradients.

    Why: The native configurations of real size compute the loss in chunks, with a backward pass of their own making.
    No public report is behind this check; it closes the gap between the tiny configurations and the real ones.

    Red when: a chunk is lost, weighed by its own number of labels, or its gradient lands elsewhere in the row.

    Reading a failure: Loss and all groups red is a chunk; only the groups below the head are red where the gradient of
    the hidden states is put together wrong; the head alone is its gradient over chunks. `layouts.gradients` says
    whether tensor parallelism is to blame.
    """
    _hold_step(judge, runs, layout)


@each_layout(*RECOMPUTED)
def test_recomputation(judge, runs, layout):
    """Activation checkpointing, full or selective, gives the gradients of a run without it, bit for bit.

    Why: What is recomputed must decide as before: a router whose scores tie or nearly tie took other experts the second
    time, and training on Qwen3-MoE aborted (https://github.com/NVIDIA-NeMo/RL/issues/1203,
    https://github.com/pytorch/torchtitan/issues/1117).

    Red when: the second forward pass differs from the first in any bit, or does not take place.

    Reading a failure: Red with tied scores alone (`layouts.tied_router`): the order among equals. Red for `nki` alone:
    a kernel that is not deterministic or changes what it is given; forward executions that are not doubled mean that
    nothing was recomputed.
    """
    got, want = _hold_recomputed(judge, runs, layout, tied_router=False)
    for key, count in want.steps[0].kernel_counts.items():
        times = 2 if " forward " in key else 1
        judge.equal(f"executions of {key}", got.steps[0].kernel_counts.get(key, 0), times * count)


@each_layout(RECOMPUTED[0])
def test_tied_router(judge, runs, layout):
    """A router that gives every expert the same score chooses the same ones when its layer is recomputed.

    Why: Ties are rare in random numbers and common in bfloat16. On data with many of them, recomputation took other
    experts than the forward pass had (https://github.com/NVIDIA-NeMo/Automodel/pull/2635).

    Red when: the order among equal scores differs between the two passes.

    Reading a failure: If `layouts.recomputation` is red as well, start there; otherwise the choice among ties is not
    repeatable: saving the chosen experts instead of choosing again repairs it.
    """
    _hold_recomputed(judge, runs, layout, tied_router=True)


@each_layout(*MIXED)
def test_mixed_precision(judge, runs, layout):
    """The recipe of the real configurations (bf16 over fp32 masters, recomputation, chunks) stays near fp32.

    Why: The other checks train in fp32, so that bars can be tight; nobody trains Qwen3 like that. Where the boundary
    between the two dtypes lies differs from backend to backend (https://github.com/pytorch/torchtitan/pull/2575).

    Red when: bfloat16 rounds more than the products of the forward and backward pass, or the masters lose bits.

    Reading a failure: While `paths.gradients` is green, the formula is right and the precision wrong. A miss by a small
    factor, in experts or router alone, may be near-ties that bfloat16 flips; masters that are red have been rounded.
    """
    flags, reference = f"--dataloader.prompts 0 {_BF16}", runs.reference(layout.model)
    run = _hold_mixed(judge, runs, layout, flags, reference, bars.MIXED_GRADIENT)
    masters = run.weights(1).values()
    total = sum(master.numel() for master in masters)
    finer = sum(int((master != master.bfloat16().to(master.dtype)).sum()) for master in masters) / total
    judge.at_least("share of masters finer than bfloat16", finer, bars.MASTERS, elements=total)


@each_layout(*LONG_LAYOUTS[:2])
def test_mixed_long_rows(judge, runs, layout):
    """In bf16, too, rows of 512 tokens give a loss and gradients near fp32: rotary angles are not rounded.

    Why: A rotary frequency or position that is rounded to bfloat16 is off by an angle that grows with the position, and
    training diverges on long rows (https://github.com/Modalities/modalities/pull/462).

    Red when: frequencies, positions or angles pass through bfloat16 on their way to the table.

    Reading a failure: Green `layouts.mixed_precision` and `layouts.long_rows` leave the table's dtype. Attention and
    the norms of q and k are off most, because only they see the angles.
    """
    reference = runs.reference_step(layout.model, LONG_ROWS, LONG)
    _hold_mixed(judge, runs, layout, _BF16, reference, bars.MIXED_LONG_GRADIENT)


@each_layout(*LONG_LAYOUTS)
def test_long_rows(judge, runs, layout):
    """On rows of 512 tokens, with positions beyond 200, loss and gradients are plain Transformers'.

    Why: A rotary table that is cut, wrapped or rounded is right for the first positions. Positions were wrapped by a
    modulo that broke long documents (https://github.com/VLR-CVC/vlm-training/pull/2).

    Red when: a rotary table, its kernel, or an attention mask ends or repeats before the row does.

    Reading a failure: Compare `paths.logits`: red as well means that the rotary embedding is wrong everywhere. Red here
    alone is the length: rows of the table, tiles of the kernel.
    """
    reference = runs.reference_step(layout.model, LONG_ROWS, LONG)
    longest = int(runs.laid_out(layout).batch(1)["positions"].max())
    judge.at_least("largest position", longest, bars.Bar(200, "or nothing long would be tried"))
    _hold_step(judge, runs, layout, reference)


@pytest.mark.informative
@pytest.mark.level("standard")
def test_watch_replicated_experts(judge, runs):
    """Stock torchtitan loads the experts of a Hugging Face folder where parameters are replicated.

    Why: torchtitan 0.3.0 reads the sharded dimension of every placement, and a replicated one has none: a mixture of
    experts in a hybrid layout cannot start from published weights. Seen in torchtitan 0.3.0; no public report is known.
    The kit does not repair it; this check watches.

    Red when: the layout fails in another way than the known one, or loads and computes something else.

    Reading a failure: `expected-fail` is the normal outcome. A pass means that the layout can join
    `layouts.gradients`. A failure means that torchtitan has moved: read its error first.
    """
    from trncheck.trainers.errors import RunFailed

    try:
        _hold_step(judge, runs, HSDP_MOE)
    except RunFailed as error:
        if "'Replicate' object has no attribute 'dim'" not in str(error):
            raise
        judge.equal("loading", "known defect", "known defect")
        raise KnownDefect("torchtitan cannot load Hugging Face experts into a replicated layout") from error


def _hold_step(judge, runs, layout, reference=None):
    from trncheck.trainers.errors import RunFailed

    try:
        run = runs.laid_out(layout)
    except RunFailed as error:
        if "shards over data parallel ranks only" in str(error):
            pytest.skip("this torch shards the Transformers path over data parallel ranks only")
        raise
    reference = reference or runs.reference_step(layout.model)
    if layout.mesh:
        judge.equal("mesh", run.mesh, dict(layout.mesh))
    gap = abs(run.losses[0] - reference.losses[0])
    resolution = ulp(reference.losses[0])
    judge.at_most("|difference of loss|", gap, bars.STEP1_LOSS, unit="nat", elements=ROWS * SEQ_LEN, ulp=resolution)
    _hold_groups(judge, "gradient", run.gradients(1), reference.gradients)
    return run


def _hold_mixed(judge, runs, layout, flags: str, reference, bar: bars.Bar):
    mixed = Layout(layout.name, layout.config, layout.model, layout.ranks, f"{layout.flags} {flags}")
    run = runs.laid_out(mixed)
    worst = max(abs(a - b) for a, b in zip(run.losses, reference.losses, strict=False))
    judge.at_most("largest |difference of loss|", worst, bars.MIXED_LOSS, unit="nat", elements=len(run.losses))
    judge.same_names("parameters with a gradient", run.gradients(1), reference.gradients)
    for group, (error, elements) in pooled_errors(run.gradients(1), reference.gradients).items():
        judge.at_most(f"gradient of {group}, relative error", error, bar, elements=elements)
    return run


def _hold_recomputed(judge, runs, layout, *, tied_router: bool):
    got = runs.laid_out(layout, tied_router)
    want = runs.laid_out(Layout(f"{layout.model}-kept", layout.config, layout.model), tied_router)
    judge.equal("loss", got.losses[0], want.losses[0])
    judge.bit_equal("gradients", got.gradients(1), want.gradients(1))
    return got, want


def _hold_groups(judge, what: str, got, want) -> None:
    judge.same_names("parameters with a gradient", got, want)
    for group, (error, name, elements) in sorted(relative_errors(got, want).items()):
        judge.at_most(f"{what} of {group}, relative error, worst in {name}", error, bars.GRADIENT, elements=elements)


def _norm(gradients) -> float:
    return math.sqrt(sum(gradient.double().square().sum().item() for gradient in gradients.values()))
