"""A short run of the stress script: processes that ask at once, of which some are killed."""

import subprocess
import sys
from pathlib import Path


def test_cores_of_processes_that_are_killed_stay_disjoint_and_come_back():
    script = Path(__file__).with_name("lease_stress.py")
    command = [sys.executable, "-P", script, "--rounds", "5", "--seed", "3"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("5 rounds, 8 processes: "), result.stdout
    assert " 0 killed" not in result.stdout
    assert ", 0 failed, 0 complaints, " in result.stdout
