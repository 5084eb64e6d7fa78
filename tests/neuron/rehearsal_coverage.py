"""Which lines of the code for trn2 a rehearsal executes: ``python tests/neuron/rehearsal_coverage.py [run's options]``.

Runs ``trncheck run --target trn2 --rehearse`` under coverage.py, ranks and children included, then prints the lines of
the modules below that nothing executed. Slow: level full takes most of an hour. Needs ``pip install coverage``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "neuron/*.py",
    "trainers/neuron.py",
    "trainers/torchrun.py",
    "trainers/launch.py",
    "conformance/cores.py",
    "conformance/hardware.py",
    "conformance/test_device.py",
    "conformance/test_environment.py",
    "conformance/test_walkthrough.py",
    "kernels/operators.py",
    "kernels/runtime.py",
)
_SETTINGS = """\
[run]
parallel = true
branch = false
data_file = {data}
source = {root}/neuron,{root}/trainers,{root}/conformance,{root}/kernels
omit = */kernels/simulator/*,*/neuron/standin/*
patch =
    subprocess
    _exit
    execv
    fork
sigterm = true
"""


def main(options: list[str]) -> int:
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-coverage-"))
    settings = folder / "settings"
    settings.write_text(_SETTINGS.format(data=folder / "data", root=ROOT))
    coverage = [sys.executable, "-m", "coverage"]
    run = "import sys; from trncheck.cli import main; sys.exit(main())"
    (folder / "run.py").write_text(run)
    environment = os.environ | {"COVERAGE_RCFILE": str(settings)}
    command = [*coverage, "run", str(folder / "run.py"), "run", "--target", "trn2", "--rehearse", *options]
    status = subprocess.run(command, cwd=folder, env=environment).returncode
    subprocess.run([*coverage, "combine", "--quiet"], cwd=folder, env=environment, check=True)
    included = ",".join(str(ROOT / module) for module in MODULES)
    subprocess.run([*coverage, "report", "--show-missing", f"--include={included}"], cwd=folder, env=environment)
    shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
