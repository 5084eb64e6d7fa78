"""``trncheck repro``: a failure that is planted is seen again, another one and none are told apart."""

import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from trncheck.cli import main
from trncheck.reports.store import load_report

KERNEL = "kernels.forward[rope]"


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What the children need, once."""
    from trncheck.kernels import catalogue
    from trncheck.trainers import children

    children.warm_up()
    catalogue.load("rope")


def trncheck(*arguments: str, plant=lambda: None) -> tuple[int, str]:
    """Exit status and output of the command line, in a child with a fault planted."""
    log = Path("log")
    child = multiprocessing.get_context("fork").Process(target=_child, args=(arguments, plant, log))
    child.start()
    child.join()
    return child.exitcode, log.read_text()


def _child(arguments, plant, log: Path) -> None:
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    plant()
    status = main(list(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def scaled(factor: float):
    """A fault: what forward kernels return times ``factor``."""

    def plant():
        from trncheck.kernels import runtime

        honest = runtime.launch

        def launch(operator, direction, *args, **kwargs):
            results = honest(operator, direction, *args, **kwargs)
            if direction == "forward":
                for result in results if isinstance(results, tuple | list) else [results]:
                    result.mul_(factor)
            return results

        runtime.launch = launch

    return plant


def run(check: str, plant) -> tuple[str, str]:
    """Judge one check with a fault: the folder of its bundle, and the output."""
    status, output = trncheck("run", "--target", "cpu", "--level", "smoke", "--check", check, plant=plant)
    assert status == 1, output
    (folder,) = Path("results").glob("*/cpu/*")
    (result,) = load_report(folder).results
    return result.repro, output


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> None:
    """Every test starts in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def failed(tmp_path_factory) -> tuple[Path, str, str]:
    """A run whose kernel is half too large: where it ran, its bundle and its output."""
    with contextlib.chdir(folder := tmp_path_factory.mktemp("failed")):
        return folder, *run(KERNEL, scaled(1.5))


@pytest.fixture
def bundle(failed, here) -> str:
    """A copy of its bundle."""
    folder, bundle, _ = failed
    return shutil.copytree(folder / bundle, "bundle")


def test_failure_comes_with_the_command_that_shows_it_again(failed):
    folder, bundle, output = failed
    assert bundle.startswith("results/2.33.0/cpu/")
    command = f"trncheck repro {bundle}"
    assert f"or: {command}" in output
    pages = ["report.md", "report.html", f"repro/{Path(bundle).name}/README.txt"]
    assert [command in (folder / bundle / "../.." / page).read_text() for page in pages] == [True] * 3


def test_failure_is_seen_again_another_way_or_not_at_all(bundle):
    status, output = trncheck("repro", bundle, plant=scaled(1.5))
    assert status == 1
    assert f"{KERNEL} fails in the same way: tiny float32, LNC 1, output 0, relative error: 0.5, it was 0.5" in output
    assert "warning" not in output
    status, output = trncheck("repro", bundle, plant=scaled(2.0))
    assert status == 3
    assert "relative error: 1; it was tiny float32, LNC 1, output 0, relative error: 0.5" in output
    status, output = trncheck("repro", bundle)
    assert status == 0
    assert output.splitlines()[-1] == f"{KERNEL} does not fail: pass"
    assert not Path("results").exists()


def test_inputs_of_the_failing_sample_are_kept_and_what_is_another_today_is_said(bundle):
    from safetensors.torch import load_file

    content = json.loads(Path(bundle, "repro.json").read_text())
    assert content["inputs_note"] == "sample tiny float32: inputs and upstream gradients"
    tensors = load_file(Path(bundle, "sample.safetensors"))
    assert {name.split()[0] for name in tensors} == {"input", "upstream"}
    content["packages"]["torch"] = "2.12.0"
    content["packages"]["numba"] = "0.60"
    content["variables"]["NEURON_CC_FLAGS"] = "-O1"
    content["inputs"]["sample.safetensors"] = "0" * 64
    Path(bundle, "repro.json").write_text(json.dumps(content))
    status, output = trncheck("repro", bundle, plant=scaled(1.5))
    assert status == 1
    warnings = [line for line in output.splitlines() if line.startswith("warning: ")]
    assert [line.split(" in the bundle")[0] for line in warnings] == [
        "warning: numba: 0.60",
        "warning: torch: 2.12.0",
        "warning: variable NEURON_CC_FLAGS: -O1",
        "warning: sample.safetensors: not the bundle's",
    ]


def test_bundle_of_a_path_has_its_batch_and_names_its_weights():
    from safetensors.numpy import load_file

    from trncheck.conformance.runs import ROWS, SEQ_LEN
    from trncheck.fixtures import corpus

    def strict():
        from trncheck.conformance import bars, test_paths

        bars.logits = lambda _: bars.Bar(-1.0, "nothing is good enough")
        test_paths.ulp = lambda _: -1.0  # or so low a bar is refused

    bundle, output = run("paths.logits[native-dense-tied-1r]", strict)
    assert "nothing departs from plain Transformers" in output
    batch = load_file(Path(bundle, "batch-1.safetensors"))
    want = corpus.batch(1, ROWS, SEQ_LEN)
    assert batch.keys() == want.keys()
    assert all((batch[name] == want[name]).all() for name in want)
    (weights,) = json.loads(Path(bundle, "repro.json").read_text())["weights"]
    assert weights["generator"] == "trncheck.trainers.published.published_folder"
    assert list(weights["sha256"]) == ["model-00001-of-00001.safetensors"]
    assert not list(Path(bundle).glob("model*"))


def test_bad_bundle_is_one_line_and_status_2(capsys):
    assert main(["repro", "results"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("trncheck repro: results/repro.json: cannot be read")


def test_check_that_is_gone_is_status_2(bundle):
    file = Path(bundle, "repro.json")
    file.write_text(file.read_text().replace(KERNEL, "kernels.forward[gone]"))
    status, output = trncheck("repro", bundle)
    assert status == 2
    assert "trncheck repro: bundle: kernels.forward[gone] cannot be run here, for the reason above\n" in output
