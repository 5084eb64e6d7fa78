"""The bundle of a failed check, and what counts as the same failure."""

import json
import math
import tempfile
from pathlib import Path

import pytest

from trncheck.conformance.repro import Kept, load_bundle, own_manifest, write_bundle
from trncheck.conformance.repro_again import Status, compare
from trncheck.conformance.repro_inputs import _failing
from trncheck.reports.schema import CheckResult, Environment, Measurement, Outcome, Report, Verdict, VerdictStatus


def failure(*measured: tuple[str, float], message: str = "it failed", **changes) -> CheckResult:
    fields = {
        "id": "paths.logits[native-moe-1r]",
        "subject": "paths",
        "title": "Logits agree.",
        "outcome": Outcome.FAIL,
        "message": message,
        "level": "smoke",
        "target": "cpu",
        "measurements": [Measurement(name=name, value=value, bar=1.0, ok=value <= 1.0) for name, value in measured],
    }
    return CheckResult(**fields | changes)


def report() -> Report:
    return Report(
        run_id="1",
        kit_version="0.1.0",
        kit_commit="c3931d2",
        release="2.33.0",
        release_date="2026-02-20",
        target="cpu",
        level="standard",
        command="trncheck run",
        seed=42,
        started="2026-03-01T10:15:00+00:00",
        verdict=Verdict(status=VerdictStatus.NOT_CONFORMANT, headline="No."),
        environment=Environment(
            python="3.11.7",
            os="Linux",
            machine="x86_64",
            cpu="Xeon",
            cores=2,
            memory_gib=15.6,
            accelerator="none",
            packages={"torch": "2.13.0"},
            variables={"NEURON_LOGICAL_NC_CONFIG": "1"},
        ),
    )


def test_bundle_holds_what_the_failure_depends_on(tmp_path):
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "batch-1.safetensors").write_bytes(b"abc")
    kept = Kept(folder=str(inputs), note="batch 1")
    folder = write_bundle(tmp_path / "run", report(), failure(("gap", 2.0)), kept, None)
    assert folder == tmp_path / "run" / "repro" / "paths.logits-native-moe-1r"
    assert not inputs.exists()
    bundle = load_bundle(folder)
    assert (bundle.check, bundle.level, bundle.target) == ("paths.logits[native-moe-1r]", "standard", "cpu")
    assert bundle.versions == {
        "python": "3.11.7", "torch": "2.13.0", "trncheck": "0.1.0", "commit of trncheck": "c3931d2"
    }  # fmt: skip
    assert bundle.variables == {"NEURON_LOGICAL_NC_CONFIG": "1"}
    assert bundle.seeds["training"] == 42
    assert list(bundle.inputs) == ["batch-1.safetensors"]
    assert bundle.result == failure(("gap", 2.0))
    assert f"trncheck repro {folder}" in (folder / "README.txt").read_text()


def test_release_of_ones_own_goes_into_the_bundle(tmp_path):
    manifest = tmp_path / "mine.yaml"
    manifest.write_text("version: 9.9.9\n")
    folder = write_bundle(tmp_path, report(), failure(), Kept(), own_manifest(str(manifest)))
    assert (folder / load_bundle(folder).manifest).read_text() == "version: 9.9.9\n"
    assert own_manifest("2.33.0") is None
    assert own_manifest(None) is None


@pytest.mark.parametrize("id", ["paths.x[../../up]", "kernels.forward[" + "long" * 50 + "]", "kernels.forward[a b]"])
def test_every_id_names_a_folder_of_its_own_inside_of_the_run(tmp_path, id):
    folder = write_bundle(tmp_path, report(), failure(id=id), Kept(), None)
    other = write_bundle(tmp_path, report(), failure(id=id + "?"), Kept(), None)
    assert folder.parent == other.parent == tmp_path / "repro"
    assert folder != other
    assert load_bundle(folder).check == id


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), ("{", "the file is damaged"), ('{"format": "1"}', "field check: Field required")],
)
def test_bad_bundle_gives_one_line(tmp_path, content, problem):
    if content is not None:
        (tmp_path / "repro.json").write_text(content)
    with pytest.raises(ValueError, match=problem) as error:
        load_bundle(tmp_path)
    assert str(tmp_path / "repro.json") in str(error.value)
    assert "\n" not in str(error.value)


def test_bundle_of_another_format_is_refused(tmp_path):
    folder = write_bundle(tmp_path, report(), failure(), Kept(), None)
    data = json.loads((folder / "repro.json").read_text())
    (folder / "repro.json").write_text(json.dumps(data | {"format": "2"}))
    with pytest.raises(ValueError, match="field format: Input should be '1'"):
        load_bundle(folder)


THEN = failure(("fine", 0.5), ("gap", 2.0), ("other gap", 7.0))


@pytest.mark.parametrize(
    ("now", "status", "says"),
    [
        (THEN, Status.SAME, "fails in the same way: gap: 2, it was 2"),
        (failure(("fine", 0.9), ("gap", 2.19)), Status.SAME, "gap: 2.19, it was 2"),
        (failure(("gap", 2.3)), Status.OTHERWISE, "fails in another way: gap: 2.3; it was gap: 2"),
        (failure(("other gap", 7.0)), Status.OTHERWISE, "other gap: 7; it was gap: 2"),
        (failure(message="RunFailed: no"), Status.OTHERWISE, "RunFailed: no; it was it failed"),
        (failure(outcome=Outcome.PASS), Status.PASSES, "does not fail: pass"),
        (failure(outcome=Outcome.NOT_RUN, message="no device"), Status.OTHERWISE, "no answer: not-run, no device"),
        (failure(outcome=Outcome.NOTHING_COMPARED), Status.OTHERWISE, "fails in another way"),
    ],
)
def test_first_measurement_that_failed_decides(now, status, says):
    assert compare(THEN, now)[0] is status
    assert says in compare(THEN, now)[1]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_stays_the_same(value):
    then = failure(("gap", 2.0), message="x")
    then.measurements[0] = Measurement(name="gap", value=value, bar=1.0, ok=False)
    assert compare(then, then)[0] is Status.SAME
    assert compare(then, failure(("gap", 2.0)))[0] is Status.OTHERWISE


def test_without_a_measurement_the_message_decides_but_not_its_paths_and_not_where_it_starts():
    then = failure(message="step 1: expected 0, found 512\nstarts at norm (3.1e-02)\n (log: /tmp/a-1/rank0.log)")
    then.evidence["starts at"] = "starts at norm (3.1e-02)"
    now = failure(message="step 1: expected 0, found 512\nstarts at norm (3.2e-02)\n (log: /tmp/b-2/rank0.log)")
    now.evidence["starts at"] = "starts at norm (3.2e-02)"
    assert compare(then, now)[0] is Status.SAME
    assert compare(then, failure(message="step 1: expected 0, found 511"))[0] is Status.OTHERWISE


def test_process_that_dies_dies_in_the_same_way():
    then = failure(message="the process died: worker 'gw0' crashed while running 'test_paths.py::test_logits'")
    assert compare(then, failure(message="the process died with status -9"))[0] is Status.SAME


def test_sample_that_failed_first_is_kept():
    from trncheck.conformance.kernel_runs import Sample

    samples = [Sample("rope", shape, dtype) for shape in ("tiny", "long") for dtype in ("float32", "bfloat16")]
    assert _failing(samples, "long bfloat16, LNC 1, output 0, relative error: 3") == samples[3]
    assert _failing(samples, "bfloat16, q sliced: outputs: 1 missing") == samples[1]
    assert _failing(samples, "ValueError: no") == samples[0]


def test_keeping_inputs_never_hides_the_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    from types import SimpleNamespace

    from trncheck.conformance.repro_inputs import keep

    item = SimpleNamespace(callspec=SimpleNamespace(params={"kernel": "rope"}), funcargs={})
    kept = keep(item, failure(id="kernels.forward[rope]", subject="kernels"))
    assert kept.note == "not all was kept: KeyError: 'kernels'"
    assert Path(kept.folder).is_dir()
    assert keep(item, failure(subject="losses")) is None
    assert keep(item, failure(outcome=Outcome.PASS)) is None
