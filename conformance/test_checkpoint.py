"""Is the exported model a Hugging Face folder that stock Transformers loads, with exactly the trainer's weights?"""

import json

import pytest

from trncheck.conformance import bars
from trncheck.conformance.cases import Case, each_case
from trncheck.conformance.compare import ulp
from trncheck.conformance.export_files import COMPANIONS, read_headers

_SAFETENSORS_DTYPE = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

each_export = pytest.mark.parametrize(
    ("dtype", "sharded"),
    [("bfloat16", False), ("float16", False), ("float32", True)],
    ids=["bfloat16", "float16", "several-files"],
)


@each_case()
def test_structure(judge, runs, case):
    """Files, index, keys, shapes, dtype and format mark are right; config and tokenizer are the source's.

    Why: The split of the source was kept and no index was written (https://github.com/pytorch/torchtitan/issues/2137);
    headers without the format mark stop some readers (https://github.com/safetensors/safetensors/issues/549), headers
    that are too large all of them (https://github.com/safetensors/safetensors/issues/668); a shard's size got into the
    file as the vocabulary (https://github.com/huggingface/optimum-neuron/issues/368).

    Red when: a tensor, file, index entry, shape, dtype, format mark or companion file is not as it must be.

    Reading a failure: Headers are read without loading anything, so the message names the very thing. Missing tensors
    come before everything else; config.json is held key by key against the source's.
    """
    _hold_structure(judge, runs.published(case).export, runs.published_weights(case.model), "float32")


@each_case(where=lambda case: case.model != "moe")
def test_head(judge, runs, case):
    """A tied head is left out of the files; an untied one is in them.

    Why: Transformers 5 ties by the flag in the config and by what the file holds, and heads came out random or tied to
    the wrong tensor (https://github.com/huggingface/transformers/pull/43429); one tensor under two names cannot be
    saved at all (https://github.com/huggingface/transformers/issues/33807). An untied head that is left out is lost.

    Red when: the head is in the file of a tied model, or not in the file of an untied one.

    Reading a failure: Expected and found say which of the two it is. Look at `tie_word_embeddings` in the exported
    config.json, and at what the export drops.
    """
    headers = read_headers(runs.published(case).export).headers
    untied = case.model == "dense-untied"
    judge.equal("lm_head.weight is in the files", "lm_head.weight" in headers, untied, elements=len(headers))


@each_case()
def test_reload(judge, runs, reloader, case):
    """A fresh process loads it with stock AutoModelForCausalLM: nothing missing, unexpected or mismatched.

    Why: An export that reloads perfectly in the trainer diverged in plain Transformers
    (https://github.com/NVIDIA-NeMo/Automodel/pull/2741). So another process loads it, with nothing of the trainer in
    it.

    Red when: stock Transformers reports a key as missing, unexpected or mismatched, or builds another kind of model.

    Reading a failure: The keys in the message are names in the export. If `checkpoint.structure` is red as well, start
    there. An untied head that comes back tied is a wrong config.json.
    """
    _hold_reload(judge, reloader(runs.published(case)), case)


@each_case()
def test_weights(judge, runs, reloader, case):
    """What the fresh process loaded is the trainer's last state, every tensor bit for bit.

    Why: A loading report can be clean while weights are random, because an initialisation ran after loading
    (https://github.com/huggingface/transformers/issues/46620). Only the values tell.

    Red when: any bit of any tensor differs between the trainer's last state and what a fresh process loads.

    Reading a failure: The message names tensors, how many elements differ, and by how much. One rounding everywhere
    means that the export passed through another dtype; whole tensors mean a wrong name or order; all tensors may be the
    state of another step.
    """
    run = runs.published(case)
    judge.bit_equal("reloaded weights", reloader(run).weights, run.weights(len(run.steps)))


@each_case()
def test_logits(judge, runs, reloader, case):
    """The reloaded model gives the trainer's logits on the last batch.

    Why: Right weights under a wrong config.json give another model: an epsilon or a rotary base is in no tensor.
    Self-reload would not see it (https://github.com/NVIDIA-NeMo/Automodel/pull/2741).

    Red when: the reloaded model computes something else than the trainer did.

    Reading a failure: If `checkpoint.weights` is green, the difference is in config.json, or in code that differs
    between the two processes; `paths.logits` tells these apart. If it is red, start there.
    """
    run = runs.published(case)
    got, want = reloader(run).logits, run.final_logits()
    off, most = (got - want).abs().max().item(), want.abs().max().item()
    judge.at_most("largest |difference|", off, bars.logits(most), elements=want.numel(), ulp=ulp(most))


@pytest.mark.level("standard")
@each_export
@pytest.mark.parametrize("model", ["dense-tied", "moe"])
def test_export_as_asked(judge, runs, reloader, model, dtype, sharded):
    """The export has the dtype asked for and the source's split into files, and reloads to the same values.

    Why: Transformers 5 takes the dtype that is stored with a checkpoint, so a wrong one changes numbers without a word
    (https://github.com/huggingface/transformers/pull/34919). A checkpoint of several files without an index is not
    found (https://github.com/pytorch/torchtitan/issues/2137).

    Red when: the export ignores the dtype or the split that was asked for, or rounds otherwise than a plain cast.

    Reading a failure: The case names the dtype or `several-files`. A dtype in the file that was not asked for is the
    export's; the right dtype with other values is a cast too many.
    """
    import torch

    case = Case("native", model, 2)
    run = runs.exported(case, dtype, sharded)
    source = runs.split_weights(model) if sharded else runs.published_weights(model)
    _hold_structure(judge, run.export, source, dtype)
    judge.equal("number of weight files", len(list(run.export.glob("*.safetensors"))), 3 if sharded else 1)
    _hold_reload(judge, reloader(run), case, dtype)
    cast = {name: tensor.to(getattr(torch, dtype)) for name, tensor in run.weights(1).items()}
    judge.bit_equal("reloaded weights", reloader(run).weights, cast)


def _hold_structure(judge, folder, source, dtype: str) -> None:
    files, wanted = read_headers(folder), read_headers(source)
    judge.same_names("tensors in the files", files.headers, wanted.headers)
    for name in sorted(files.headers.keys() & wanted.headers.keys()):
        judge.equal(f"{name}: shape", files.headers[name].shape, wanted.headers[name].shape)
        judge.equal(f"{name}: dtype", files.headers[name].dtype, _SAFETENSORS_DTYPE[dtype])
    judge.equal("tensors that several files hold", files.repeated, [])
    judge.equal("format marks", set(files.formats.values()), {"pt"}, elements=len(files.formats))
    judge.at_most("largest header", max(files.header_bytes.values()), bars.HEADER_SIZE, unit="bytes")
    if len(files.formats) > 1:
        judge.equal("index.json is there", files.index is not None, True)
    if files.index is not None:
        names = {name: header.file for name, header in files.headers.items()}
        judge.equal("index against headers", files.index, names, elements=len(names))
    for name in sorted({file.name for file in source.iterdir()} & set(COMPANIONS)):
        copied = (folder / name).is_file() and (folder / name).read_bytes() == (source / name).read_bytes()
        judge.equal(f"{name} is the source's", copied, True)
    config, original = (json.loads((path / "config.json").read_text()) for path in (folder, source))
    original["dtype"] = dtype
    judge.same_names("config.json", config, original)
    for key in sorted(config.keys() & original.keys()):
        judge.equal(f"config.json, {key}", config[key], original[key])


def _hold_reload(judge, reloaded, case, dtype: str = "float32") -> None:
    facts = reloaded.facts
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_messages"):
        judge.equal(key.replace("_", " "), facts[key], [], elements=len(reloaded.weights))
    judge.equal("dtypes of the parameters", facts["dtypes"], [dtype])
    judge.equal("head is the embedding", facts["tied"], case.model == "dense-tied")
    judge.equal("tokenizer's words", facts["vocabulary"], facts["vocab_size"])
    judge.note("loaded as", facts["class"])
