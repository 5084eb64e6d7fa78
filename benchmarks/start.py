"""The command line's help and the suite's collection, against a bare Python and a bare pytest.

Seconds are of processor time, which on a quiet machine are those of the clock: all four are single processes that wait
for nothing.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import Benchmark, Figure, alternate, ratio

HELP_S, COLLECTION_S = 0.3, 1.0
_NO_TORCH = "import sys, pytest; pytest.main(sys.argv[1:]); sys.exit('torch' in sys.modules)"


def run(options) -> Iterator[Benchmark]:
    """``start.help`` and ``start.collection``."""
    benchmark = Benchmark("start.help", "`trncheck --help` answers at once.")
    script = Path(sys.executable).with_name("trncheck")
    ours, rival = alternate(_command(script, "--help"), _python("-c", "pass"), options.repeats, children)
    benchmark.add(Figure("trncheck --help", tuple(ours), "s", bar=HELP_S))
    benchmark.add(Figure("python -c pass", tuple(rival), "s"))
    benchmark.add(ratio("trncheck --help against python -c pass", ours, rival))
    yield benchmark

    benchmark = Benchmark("start.collection", "The suite is collected quickly, without importing torch.")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        # hypothesis, which only the kit's own tests need, takes a second itself.
        flags = ("--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
        suite = _python("-P", "-m", "pytest", *flags, "--pyargs", "trncheck.conformance", "--level", "full", cwd=folder)
        bare = _python("-P", "-m", "pytest", *flags, "-p", "no:trncheck", "test_nothing.py", cwd=folder)
        ours, rival = alternate(suite, bare, options.repeats, children)
        collect = [sys.executable, "-P", "-c", _NO_TORCH, *flags, "--pyargs", "trncheck.conformance"]
        torch = subprocess.run(collect, cwd=folder, capture_output=True).returncode
    benchmark.add(Figure("collection of the suite", tuple(ours), "s", bar=COLLECTION_S))
    benchmark.add(Figure("collection of one empty test", tuple(rival), "s"))
    benchmark.add(ratio("collection of the suite against that of one empty test", ours, rival))
    benchmark.add(Figure("torch imported", (float(torch),), "", bar=0))
    yield benchmark


def children() -> float:
    """Processor seconds of the ended children."""
    times = os.times()
    return times.children_user + times.children_system


def _python(*arguments: str, cwd: str | None = None) -> Callable[[], None]:
    return _command(sys.executable, *arguments, cwd=cwd)


def _command(*command: str | Path, cwd: str | None = None) -> Callable[[], None]:
    def call() -> None:
        ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")

    return call
