"""What a compiler says about a kernel is one line, which names the file with the rest."""

import subprocess
from pathlib import Path

import pytest
import torch

from trncheck.neuron import compile_errors, device


@pytest.fixture
def raising(torch_neuronx, monkeypatch, tmp_path):
    """A kernel whose launch raises the given error; logs go to ``tmp_path / logs``."""
    monkeypatch.setenv(compile_errors.FOLDER, str(tmp_path / "logs"))

    class Raising:
        __name__ = "doubled"

        def __getitem__(self, cores):
            def launch(*_args, **_kwargs):
                raise self.error

            return launch

    def with_error(error: Exception) -> Raising:
        torch_neuronx()
        kernel = Raising()
        kernel.error = error
        return kernel

    return with_error


LOG = """2026-11-30T10:00:00Z 4711 INFO  Running pass tensorizer
/opt/site/nki/compiler/driver.py:12: note: while compiling
2026-11-30T10:00:01Z 4711 ERROR [NCC_IXYZ042] /home/me/kernel.py:61:9: error: partition dimension 256 exceeds 128
#0 0x00007f0 mlir::Operation::verify() (/opt/lib/libnki.so+0x123)
frame #1: c10::Error::Error + 0x57
neuronx-cc exited with code 70
"""


def test_a_kernel_that_does_not_compile_is_one_line(raising, tmp_path):
    kernel = raising(RuntimeError(LOG))
    with pytest.raises(compile_errors.KernelDidNotCompile) as refused:
        device.launch(kernel, 2, (), {})
    (log,) = (tmp_path / "logs").iterdir()
    assert str(refused.value) == (
        "kernel doubled: NKI compile error: [NCC_IXYZ042] kernel.py:61:9: error: partition dimension 256 exceeds 128 "
        f"(whole log: {log})"
    )
    assert LOG in log.read_text()
    assert "Traceback" in log.read_text()


def test_a_kernel_that_the_device_refuses_is_one_line_too(raising):
    with pytest.raises(compile_errors.KernelFailed) as refused:
        device.launch(raising(RuntimeError("nrt_execute: status 5\n#0 0x1234 in nrt()")), 1, (), {})
    assert type(refused.value) is compile_errors.KernelFailed
    assert str(refused.value).startswith("kernel doubled: failed on the device: nrt_execute: status 5 (whole log: ")


def test_two_errors_have_two_logs(raising, tmp_path):
    kernel = raising(RuntimeError(LOG))
    for _ in range(2):
        with pytest.raises(compile_errors.KernelDidNotCompile):
            device.launch(kernel, 2, (), {})
    assert len(list((tmp_path / "logs").iterdir())) == 2


@pytest.mark.parametrize("module", ["trncheck.kernels.simulator.errors", "torch._dynamo.exc"])
def test_errors_that_say_it_themselves_pass(raising, module):
    error = type("Refused", (ValueError,), {"__module__": module})("kernel.py:3: dma_copy: shapes differ")
    with pytest.raises(type(error)) as refused:
        device.launch(raising(error), 1, (), {})
    assert refused.value is error


def test_the_line_reaches_who_launches_a_kernel(raising):
    from trncheck.kernels import counters, runtime

    with counters.counting() as counts, pytest.raises(compile_errors.KernelDidNotCompile, match="NKI compile error"):
        runtime.launch("tests::op", "forward", raising(RuntimeError(LOG)), torch.empty(3, device="meta"))
    assert counts.total() == 0


# --- the line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "RuntimeError"),
        ("one thing", "one thing"),
        (
            'Traceback (most recent call last):\n  File "/a/k.py", line 3, in k\n    x = 1\nTypeError: no',
            "TypeError: no",
        ),
        ("\x1b[31merror\x1b[0m: unsupported dtype", "error: unsupported dtype"),
        ("warming up\nerror: x\nerror: y", "error: x"),
        ("frame #0: c10::f\nCommand '['neuronx-cc']' returned non-zero exit status 1.\nno such bank", "no such bank"),
        ("[ERROR] cannot allocate 30 MiB in SBUF", "cannot allocate 30 MiB in SBUF"),
        ("assertion failed: 128 % 96 == 0", "assertion failed: 128 % 96 == 0"),
        (
            "2026-11-30T10:00:02Z ERROR 4711 [neuronx-cc]: *****\n"
            "2026-11-30T10:00:02Z ERROR 4711 [neuronx-cc]:  An Internal Compiler Error has occurred\n"
            "2026-11-30T10:00:02Z ERROR 4711 [neuronx-cc]: Error message:  tile error in pass 3\n"
            "2026-11-30T10:00:02Z ERROR 4711 [neuronx-cc]: Error class:    CompilerInternalError\n"
            '2026-11-30T10:00:02Z ERROR 4711 [neuronx-cc]:   File "neuronxcc/driver/jobs/Frontend.py", line 3, in run',
            "tile error in pass 3",
        ),
        ("Compilation failed with error X\n2026-11-30T10:00:02Z ERROR 7 [x/y]: [NCC_A1] bank 9", "[NCC_A1] bank 9"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_first_line_that_says_what_is_wrong(text, line):
    assert compile_errors.explain(RuntimeError(text))[0] == line


def test_output_of_a_compiler_process_is_read():
    error = subprocess.CalledProcessError(70, ["neuronx-cc", "compile"], stderr=LOG.encode())
    line, whole = compile_errors.explain(error)
    assert line.startswith("[NCC_IXYZ042] kernel.py:61:9: error: ")
    assert LOG in whole


def test_causes_are_read():
    error = RuntimeError("Compilation failed")
    error.__cause__ = ValueError("error: tile of 256 rows")
    assert compile_errors.explain(error)[0] == "error: tile of 256 rows"


def test_a_log_that_cannot_be_written_is_said():
    failure = compile_errors.failure(RuntimeError("Compilation failed"), "k", Path("/proc/none"))
    line = "kernel k: NKI compile error: Compilation failed (the whole log could not be written: "
    assert str(failure).startswith(line)
