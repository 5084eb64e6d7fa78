"""Is what each configuration builds, loads, starts from and writes the published model in every detail?"""

import math
import re

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case
from trncheck.conformance.export_bytes import read_bytes
from trncheck.conformance.fidelity_runs import FidelityRuns, changed_columns, second_documents
from trncheck.conformance.judge import KnownDefect
from trncheck.conformance.random_starts import closest, hold_deviations, matrices
from trncheck.conformance.test_paths import REAL_CONFIGS
from trncheck.fixtures.geometry import INITIALIZER_RANGE, PUBLISHED

COMPUTING = REAL_CONFIGS | {"qwen3_moe_nki_30b_a3b_4layers_64experts_nki_rope": "Qwen3-30B-A3B, 4 layers x 64 experts"}
"""Configurations whose arithmetic is looked at: kernels change nothing else of a model."""

each_config = pytest.mark.parametrize("config", REAL_CONFIGS)
each_computing_config = pytest.mark.parametrize(
    "config", [pytest.param(name, marks=[pytest.mark.cpu] if "nki" in name else []) for name in COMPUTING]
)
each_native_config = pytest.mark.parametrize("config", [name for name in REAL_CONFIGS if "_hf_" not in name])


def _cases(*cases: tuple[str, str, int]):
    return pytest.mark.parametrize("case", [Case(*case) for case in cases], ids=str)


each_path = _cases(
    *((path, model, 1) for path in ("native", "hf") for model in ("dense-tied", "moe")), ("nki", "moe", 1)
)
each_start = _cases(*((path, model, 1) for path in ("native", "hf") for model in ("dense-tied", "moe")))
each_sharded_start = _cases(("native", "moe", 2), ("hf", "moe", 2))


@pytest.fixture(scope="session")
def models(runs, tmp_path_factory):
    """Real models in parts, random starts, and folders with odd heads."""
    return FidelityRuns(tmp_path_factory.mktemp("fidelity"), runs.launcher)


@pytest.mark.level("standard")
@each_config
def test_switches(judge, models, config):
    """A real configuration has the published model's scale, norms, router, dtypes, tying and vocabulary in every layer.

    Why: What has no size of its own is in no shape and in no parameter count. An attention scale reached one backend
    and not another (https://github.com/pytorch/torchtitan/pull/2173), and defaults of a wrapper replaced what
    config.json says (https://github.com/pytorch/torchtitan/pull/3772). torchtitan's router scores by sigmoid unless
    told otherwise.

    Red when: a switch, dtype or number of rows is not the published model's, or differs between layers.

    Reading a failure: The message names the field and both values; a list means that layers differ. `paths.geometry`
    has the sizes, and `fidelity.arithmetic` says whether the field is acted on.
    """
    geometry = PUBLISHED[REAL_CONFIGS[config]]
    moe = geometry.is_moe
    expected = {
        "attention scale": geometry.head_dim**-0.5,
        "q and k norms": [geometry.head_dim] * 2,
        "theta of every layer": geometry.rope_theta,
        "rotary scaling": "none",
        "rotary form": "halves",
        "layers with experts": geometry.num_hidden_layers if moe else 0,
        "router scores": "softmax" if moe else None,
        "router scale": 1.0 if moe else None,
        "router normalises": True if moe else None,
        "experts per token": geometry.num_experts_per_tok or None,
        "expert groups": None,
        "router forced to balance": False if moe else None,
        "router bias": None,
        "shared experts": [],
        "biases": [],
        "dtype of masters": "float32",
        "dtype of training": ["bfloat16", "float32"],
        "rows of embedding and head": [geometry.vocab_size] * 2,
        "vocabulary of the loss": geometry.vocab_size,
        "head is the embedding": geometry.tie_word_embeddings,
    }
    if "_hf_" in config:
        expected |= {"sliding window": None, "attention dropout": 0.0, "activation": "SiLUActivation"}
    facts = models.probed(config, REAL_CONFIGS[config]).facts
    for field, value in expected.items():
        judge.equal(field, facts[field], value)


@pytest.mark.level("standard")
@each_computing_config
def test_arithmetic(judge, models, config):
    """Attention, feed-forward and router of a real configuration compute the published formulas, written in fp64.

    Queries and keys are so small that the epsilon of their norms counts, and two documents share the row.

    Why: A field can be right and not acted on. An epsilon did not reach the norm
    (https://github.com/Wenyueh/MinivLLM/pull/82); a fused kernel left the norms between projection and rotation out
    (https://github.com/tenstorrent/tt-mlir/pull/9042). Parity of two paths does not see what both do wrong.

    Red when: scale, epsilon, order or width of the query and key norms, rotation, grouping of heads, mask, activation
    or routing is not the published one.

    Reading a failure: Attention alone is one of the things above, in that order of likelihood; if `fidelity.rotary` is
    red as well, start there. Routing alone is the score function, the normalisation or top-k.
    """
    name = COMPUTING[config]
    computed = models.probed(config, name).computed
    for part in ("attention", "routing" if PUBLISHED[name].is_moe else "feed_forward"):
        want = computed[f"{part}.formula"]
        error = ((computed[part].double() - want).norm() / want.norm()).item()
        judge.at_most(f"{part}, relative error", error, bars.FORMULA, elements=want.numel())


@pytest.mark.level("standard")
@each_computing_config
def test_rotary(judge, models, config):
    """Rotary tables are right to fp32's rounding of the angle up to the last position, whatever the default dtype.

    An angle of 40,959 or 262,143 rad is known in fp32 to 0.005 or 0.03 rad, because it is rounded to 2^-23 of itself.
    Ones in the first half of a head are rotated, so that cosines come out in the first half and sines in the second.

    Why: Frequencies or positions in bfloat16 are wrong by up to half a turn at position 4,096, and the loss departs
    only with long sequences (https://github.com/Modalities/modalities/pull/462). Two conventions of pairing differ by
    a permutation (https://github.com/pytorch/torchtitan/pull/1590).

    Red when: theta, dtype or pairing of the rotary embedding is another, at any position.

    Reading a failure: The fitted theta tells a wrong base. A right theta with wrong angles is precision: red only in
    bfloat16 means that the table takes the dtype of the model. Errors of order 1 from position 1 on are the pairing.
    """
    name = COMPUTING[config]
    computed, geometry = models.probed(config, name).computed, PUBLISHED[name]
    half = geometry.head_dim // 2
    angle_LI, want_LD = computed["rotary.angles"], computed["rotary.formula"]
    allowed_LD = bars.FP32_EPS * (1 + angle_LI.repeat(1, 2))
    for kind in ("rotary", "rotary_built_in_bfloat16"):
        judge.equal(f"{kind}: dtype", str(computed[kind].dtype), "torch.float32")
        theta = _fitted_theta(computed[kind], half)
        judge.at_most(f"{kind}: theta, relative error", abs(theta / geometry.rope_theta - 1), bars.THETA)
        worst = ((computed[kind].double() - want_LD).abs() / allowed_LD).max().item()
        judge.at_most(f"{kind}: error in roundings of the angle", worst, bars.ANGLE, elements=want_LD.numel())
    rounded = computed["rotary_of_bfloat16"]
    judge.equal("of bfloat16 heads: dtype", str(rounded.dtype), "torch.bfloat16")
    excess = ((rounded.double() - want_LD).abs() - want_LD.abs().clamp(min=2**-8) * 2**-8) / allowed_LD
    judge.at_most("of bfloat16 heads: error beyond one rounding", excess.max().item(), bars.ANGLE)


@pytest.mark.level("standard")
@each_config
def test_names(judge, models, config):
    """Every tensor of the published index is loaded exactly once, into its own place, and exported under its own name.

    Every tensor holds its number, so that experts in the order of text (0, 1, 10, 11, 2) show, there and back.

    Why: Experts that are sorted as text get each other's weights, and a schema that never matches copies nothing and
    reports success (https://github.com/NVIDIA/Megatron-LM/issues/5844). A round trip alone hides what is wrong both
    ways. The real index of 30B-A3B has 18,867 names and experts up to 127.

    Red when: the adapter loses, doubles, swaps or renames a tensor of a published index, or the model lacks it.

    Reading a failure: Names are those of the published index. `experts` lists stacks and what they start with;
    `consumed` says how often a tensor came out; `missing` are parameters that loading would leave as they were.
    """
    name = REAL_CONFIGS[config]
    facts, geometry = models.probed(config, name).facts["adapter"], PUBLISHED[name]
    count = geometry.num_hidden_layers * (3 * geometry.num_experts + 9 if geometry.is_moe else 11)
    judge.equal("stacks of experts", facts["stacks"], 3 * geometry.num_hidden_layers * geometry.is_moe)
    judge.equal("consumed other than once", facts["consumed"], {}, elements=count)
    judge.equal("experts out of order", facts["experts"], {}, elements=count)
    judge.equal("not exported as it was loaded", facts["back"], [], elements=count)
    judge.equal("missing", facts["missing"], [])
    judge.equal("unexpected", facts["unexpected"], [])


@pytest.mark.level("standard")
@each_path
def test_documents(judge, models, case):
    """A token changes logits behind it in its own document, everywhere there, and nowhere else in its packed row.

    Why: Packing is where paths part: one isolates documents, another resets positions and lets them see each other
    (https://github.com/VLR-CVC/vlm-training/pull/2). On one token's change the loss says nothing, and parity with
    plain Transformers holds only as long as its mask is right.

    Red when: the mask lets a token see another document, or later tokens of its own, or hides earlier ones.

    Reading a failure: `other document` is the document mask, or positions that do not restart, from which the mask is
    made; then see `paths.batch`. `before it` is the causal mask. `behind it` too small: attention sees too little.
    """
    import torch
    from safetensors.torch import load_file

    logits = load_file(models.started(case) / "logits.safetensors")
    start_B1, column_L = torch.tensor(second_documents())[:, None], torch.arange(logits["batch"].shape[1])
    largest = logits["batch"].abs().max().item()
    for name, columns in changed_columns().items():
        moved_BL = (logits[name] - logits["batch"]).abs().amax(-1) / largest
        at_B1, own_BL = torch.tensor(columns)[:, None], (column_L >= start_B1) == (name == "second")
        places = {"other document": ~own_BL, "before it": own_BL & (column_L < at_B1)}
        for place, mask_BL in places.items():
            judge.at_most(
                f"{name} document, {place}", moved_BL[mask_BL].max().item(), bars.LEAK, elements=mask_BL.sum()
            )
        behind = moved_BL[own_BL & (column_L > at_B1)]
        judge.at_least(f"{name} document, behind it", behind.min().item(), bars.SEES, elements=behind.numel())


@pytest.mark.level("standard")
@pytest.mark.parametrize("head", ["absent", "equal", "different"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("path", ["native", "hf"])
def test_tied(judge, models, path, tied, head):
    """A head in the file that config.json contradicts is refused in one line; every other folder loads and exports.

    Why: Transformers 5 decides by flag and file content whether a head is tied, and heads came out random or tied to
    the wrong tensor (https://github.com/huggingface/transformers/pull/43429). torchtitan drops a tied model's own head
    without a word. One of two different matrices must never be taken in silence.

    Red when: a tied config with another head in the file trains, an untied one without a head does, or a folder that
    agrees with its config is refused or exported with the wrong tensors.

    Reading a failure: The case says what config.json and the file hold. `refused` is what the trainer's error must
    say; the refusal is `check_head` in `trainers/fidelity.py`.
    """
    from safetensors.torch import load_file

    loaded = models.loaded(path, tied, head)
    if (tied, head) in {(True, "different"), (False, "absent")}:
        judge.equal("refused, naming the head", "ValueError" in loaded.error and "lm_head.weight" in loaded.error, True)
        judge.equal("the remedy is named", "tie_word_embeddings" in loaded.error, True)
        judge.note("refusal", loaded.error or "none: it trained")
        return
    judge.equal("error", loaded.error, "")
    if loaded.run is None:
        return
    want = {name: tensor for name, tensor in loaded.file.items() if not (tied and name == "lm_head.weight")}
    judge.bit_equal("weights before step 1", loaded.run.weights(0), want)
    exported = {}
    for file in loaded.run.export.glob("*.safetensors"):
        exported |= load_file(file)
    judge.same_names("tensors in the export", exported, want)


@pytest.mark.level("standard")
@each_native_config
def test_initialisers(judge, models, config):
    """Every parameter of a real native configuration has an initialiser, and it draws the published sigma, or ones.

    torchtitan's own 30B-A3B draws what writes to the residual stream with sigma / sqrt(2 layers), as Megatron does.

    Why: A random start is compared between releases by its loss, which the head decides nearly alone; a layer that is
    drawn twice as wide shows only in training. Seen in torchtitan: experts that kept what their memory held.

    Red when: a group of parameters is drawn with another deviation, or not at all, in the first or the last layer.

    Reading a failure: The message names the parameter. One group means its entry in the configuration; all of them
    mean the constant. The distance is in standard errors of 16,384 drawn numbers or more.
    """
    name = REAL_CONFIGS[config]
    deviations, layers = models.probed(config, name).facts["initial_deviations"], PUBLISHED[name].num_hidden_layers
    scaled = config == "qwen3_moe_30b_a3b"
    judge.at_least("groups of parameters", len(deviations), bars.Bar(11, "6 matrices and 5 norms of a dense model"))
    for kind, drawn in deviations.items():
        if "norm" in kind:
            judge.equal(f"{kind}: is ones", kind.endswith(" (ones)"), True, elements=len(drawn))
            continue
        residual = scaled and re.search(r"attention\.wo|w2_EDF", kind)
        sigma = INITIALIZER_RANGE / math.sqrt(2 * layers) if residual else INITIALIZER_RANGE
        errors = [abs(found / sigma - 1) * math.sqrt(2 * 128 * 128) for found in drawn]
        worst = max(errors, key=lambda error: (math.isnan(error), error))
        judge.at_most(f"{kind}: distance from {sigma:.4g}", worst, bars.DEVIATION, unit="standard errors")


@pytest.mark.level("standard")
@each_start
def test_random_start(judge, models, case):
    """At a random start every matrix has the sigma of its scheme, norms are ones, and no two matrices are alike.

    Why: Experts that start alike get alike gradients and stay one expert; the loss of the start does not show it. MoE
    modules that torchtitan puts into a Transformers model kept whatever their memory held, which the kit repairs.
    Started from a seed checkpoint, Qwen3 has been seen far too high (https://github.com/pytorch/torchtitan/issues/1879).

    Red when: a matrix is drawn too wide or too narrow, a norm is not ones, or two matrices of a shape are correlated.

    Reading a failure: Distances are in standard errors. A correlation of 30 or more is a copy: the same generator
    state was used twice; the message names the two.
    """
    hold_deviations(judge, models.random_weights(case), case)
    distance, pair, count = closest(matrices(models.random_weights(case)))
    judge.at_most(f"largest correlation, {pair}", distance, bars.CORRELATION, unit="standard errors", elements=count)


@pytest.mark.informative
@pytest.mark.level("standard")
@each_sharded_start
def test_watch_sharded_start(judge, models, target, case):
    """At a random start on two ranks, the ranks' parts of a matrix are not copies of each other.

    Why: Weights are drawn after sharding, so each rank has to draw another part of the stream of random numbers
    (https://github.com/pytorch/torchtitan/issues/1750). torch does not see to that on a CPU: both ranks draw the same,
    and half of the experts are copies. On a device it must not happen.

    Red when: a matrix has another sigma than its scheme's, or, on a device, two ranks draw the same numbers.

    Reading a failure: `expected-fail` is normal on a CPU, and says which matrices are copies: no number of a random
    start on several CPU ranks means anything. On a device it means that random starts are not to be used there.
    """
    weights = models.random_weights(case)
    hold_deviations(judge, weights, case)
    halves = {
        f"{name}, half {i}": half
        for name, matrix in matrices(weights).items()
        for i, half in enumerate(matrix.chunk(2) if "experts" not in name else [matrix])
    }
    distance, pair, count = closest(halves)
    if target == "cpu" and distance > bars.CORRELATION.value and not judge.failures:
        raise KnownDefect(f"ranks of a CPU draw the same numbers, e.g. {pair}; torch has no generator offsets there")
    judge.at_most(f"largest correlation, {pair}", distance, bars.CORRELATION, unit="standard errors", elements=count)


@pytest.mark.level("standard")
@pytest.mark.parametrize("export", ["bfloat16", "several-files"])
@pytest.mark.parametrize("model", ["dense-tied", "moe"])
def test_export_bytes(judge, runs, model, export):
    """Exported files have no gap, overlap or odd byte; the index has the right size and names exactly these files.

    Why: A loader took the files that were present and left the rest uninitialised, because only one direction of the
    index was checked (https://github.com/sgl-project/sglang/pull/32279). Tools plan memory by the index's `total_size`,
    which nothing else looks at.

    Red when: `total_size` is not the sum of the tensors' bytes, index and folder do not name the same files, or bytes
    of a file belong to no tensor or to two.

    Reading a failure: The message names file, tensor and byte. A size that is off by one tensor's is an index that was
    written before a tensor was added or dropped, such as a tied head.
    """
    several = export == "several-files"
    run = runs.exported(Case("native", model, 2), "float32" if several else "bfloat16", several)
    found = read_bytes(run.export)
    judge.equal("problems of the files", found.problems, [], elements=len(found.files))
    judge.same_names("files against the index", found.files, found.indexed)
    judge.equal("total_size of the index", found.total_size, found.tensors)
    judge.report("bytes of the tensors", found.tensors, unit="bytes")


def _fitted_theta(table_LD, half: int) -> float:
    """The base of a rotary table whose second row is position 1, by its middle frequency, theta^(-1/2)."""
    return math.atan2(table_LD[1, half + half // 2].item(), table_LD[1, half // 2].item()) ** -2
