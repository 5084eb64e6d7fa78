"""A rehearsal in which something is wrong: the run says what, in one line that its user can act on."""

import subprocess
import sys

import pytest

from trncheck.neuron.standin import build

pytestmark = pytest.mark.skipif(build.missing() is not None, reason=f"no stand-in here: {build.missing()}")


@pytest.mark.parametrize(
    ("variant", "check", "line"),
    [
        ("wrong-driver", "environment.release", "aws-neuronx-dkms: "),
        ("xla-line", "environment.release", "is the legacy PyTorch/XLA product"),
        ("63-cores", "environment.machine", "63 of 64 logical cores"),
        ("op-falls-back", "device.fallbacks[native-dense-tied-2r]", "hot operators that ran on the CPU"),
        ("changed-signature", "environment.surface", "torch_neuronx.nki_op takes no mutates_args="),
        ("compile-error", "kernels.forward[rope]", "NKI compile error"),
    ],
)
def test_what_is_wrong_is_one_line_of_the_check_that_looks_at_it(tmp_path, variant, check, line):
    status, out = rehearse(tmp_path, variant, check)
    assert status == 1, out
    told = out.partition(f"\nFAIL {check}\n")[2].partition("\n  again: ")[0].splitlines()
    assert len(told) == 2, out  # the claim, and what is wrong
    assert line in told[1]
    assert "REHEARSAL, NOT CONFORMANT: " in out


def test_busy_cores_are_one_error_before_the_run(tmp_path):
    status, out = rehearse(tmp_path, "busy-cores", "device.used")
    assert status == 2
    (line,) = [line for line in out.splitlines() if line.startswith("ERROR: ")]
    assert line.startswith("ERROR: target trn2: devices are in use: cores 0-7 by pid ")


def test_fallbacks_that_nobody_tracks_are_not_run_and_say_why(tmp_path):
    status, out = rehearse(tmp_path, "no-op-tracking", "device.fallbacks[native-dense-tied-2r]")
    assert status == 0
    assert "fallbacks are not measurable: torch_neuronx has no get_fallback_ops" in out


def rehearse(folder, variant: str, check: str) -> tuple[int, str]:
    run = "import sys; from trncheck.cli import main; sys.exit(main())"
    options = ["--rehearse", variant, "--level", "standard", "--check", check, f"--results={folder / 'results'}"]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", run, "run", *options, "-p", "no:warnings"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )
    return ended.returncode, ended.stdout + ended.stderr
