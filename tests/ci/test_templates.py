"""The templates of ``ci/``: linters and schema, rules of our own for workflows, and a Slurm that only pretends."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CI = Path(__file__).resolve().parents[2] / "ci"
WORKFLOWS = sorted(CI.glob("*.yml"))
SCRIPTS = [CI / "nightly.sh", CI / "slurm.sbatch"]
YAMLLINT = """
extends: default
rules:
  comments: {min-spaces-from-content: 1}
  document-start: disable
  line-length: {max: 140}
  truthy: {check-keys: false}
"""
FULL_TAG = re.compile(r"[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+")


def tool(*command: str | Path, text: str | None = None) -> str:
    """What a tool of this environment complains about."""
    name, *rest = map(str, command)
    path = Path(sys.executable).parent / name
    assert path.exists(), f'{name} is missing: pip install -e ".[test]"'
    ended = subprocess.run([path, *rest], input=text, capture_output=True, text=True)
    return ended.stdout + ended.stderr if ended.returncode else ""


def shellcheck(script: str) -> str:
    return tool("shellcheck", "--shell=bash", "-", text=script)


def jobs(workflow: dict) -> dict[str, dict]:
    return workflow["jobs"]


def steps(workflow: dict) -> list[dict]:
    return [step for job in jobs(workflow).values() for step in job.get("steps", [])]


def interpolated(workflow: dict) -> list[str]:
    """Scripts into which GitHub pastes text before a shell reads them."""
    return [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")]


def loosely_pinned(workflow: dict) -> list[str]:
    return [step["uses"] for step in steps(workflow) if "uses" in step and not FULL_TAG.fullmatch(step["uses"])]


def unbounded(workflow: dict) -> list[str]:
    return [name for name, job in jobs(workflow).items() if "timeout-minutes" not in job]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request) -> dict:
    return yaml.safe_load(request.param.read_text())


def test_there_are_workflows():
    assert [path.name for path in WORKFLOWS] == ["github-cpu.yml", "github-nightly.yml"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_is_content_with_the_script(path):
    assert shellcheck(path.read_text()) == ""


def test_shellcheck_is_content_with_the_scripts_of_the_workflow(workflow):
    scripts = [step["run"] for step in steps(workflow) if "run" in step]
    assert scripts
    assert [complaint for script in scripts if (complaint := shellcheck(script))] == []


def test_shellcheck_complains_about_a_bad_script():
    assert "SC2086" in shellcheck("cd /tmp\nls $1\n")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_workflow_follows_the_schema_of_github(path):
    assert tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", path) == ""


def test_the_schema_refuses_a_bad_workflow(tmp_path):
    bad = tmp_path / "bad.yml"
    bad.write_text((CI / "github-cpu.yml").read_text().replace("runs-on:", "run-on:"))
    assert "runs-on" in tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", bad)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_yamllint_is_content(path):
    assert tool("yamllint", "--strict", "-d", YAMLLINT, path) == ""


def test_no_text_is_pasted_into_a_script(workflow):
    assert interpolated(workflow) == []


def test_actions_are_pinned_by_full_tag(workflow):
    assert loosely_pinned(workflow) == []


def test_every_job_has_a_timeout(workflow):
    assert unbounded(workflow) == []


def test_only_jobs_on_machines_of_github_can_write(workflow):
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name: job for name, job in jobs(workflow).items() if "write" in job.get("permissions", {}).values()}
    assert {job["runs-on"] for job in writing.values()} == {"ubuntu-latest"}
    # Such a job runs nothing of the repository or of a pull request.
    assert not [step for job in writing.values() for step in job["steps"] if "checkout" in step.get("uses", "")]


def test_the_nightly_can_be_called_as_it_can_be_started_by_hand():
    events = yaml.safe_load((CI / "github-nightly.yml").read_text())[True]  # YAML 1.1 reads `on` as true
    assert set(events) == {"schedule", "workflow_dispatch", "workflow_call"}
    assert events["workflow_dispatch"] == events["workflow_call"]


def test_rules_see_what_they_forbid():
    bad = {"jobs": {"a": {"steps": [{"run": "echo ${{ github.head_ref }}"}, {"uses": "actions/checkout@v6"}]}}}
    assert interpolated(bad) == ["echo ${{ github.head_ref }}"]
    assert loosely_pinned(bad) == ["actions/checkout@v6"]
    assert unbounded(bad) == ["a"]


STUBS = {
    "scontrol": "printf '%s\\n' trn-1 trn-2",
    "hostname": 'echo "10.0.0.1 fe80::1"',
    "srun": """
case "$*" in *--nodelist=trn-1*) nodes=trn-1 ;; *) nodes="trn-1 trn-2" ;; esac
while case $1 in --*) true ;; *) false ;; esac; do shift; done
worst=0
for node in $nodes; do
    SLURMD_NODENAME=$node "$@" || worst=$?
done
exit $worst
""",
    "trncheck": """
echo "trncheck $*" >>"$CALLS"
for word; do case $word in --results=*) mkdir -p "${word#*=}/2.33.0/trn2/run" ;; esac; done
[ "$1" != run ] || [ "$SLURMD_NODENAME" != "$BAD_NODE" ]
""",
    "torchrun": """
echo "torchrun $FI_PROVIDER $FI_EFA_USE_DEVICE_RDMA ${NEURON_RT_VISIBLE_CORES-unset} $*" >>"$CALLS"
""",
}


@pytest.fixture
def slurm(tmp_path):
    """Runs ``slurm.sbatch`` on two nodes that are this machine; gives the process, what was called, the results."""
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").write_text("")
    for name, body in STUBS.items():
        (binaries / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (binaries / name).chmod(0o755)

    def run(bad_node: str = ""):
        environment = {
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "VENV": str(tmp_path / "venv"),
            "CALLS": str(tmp_path / "calls"),
            "BAD_NODE": bad_node,
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "trn-[1-2]",
            "SLURM_NNODES": "2",
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "FLAGS": "--hf_assets_path /models/x",
            "NEURON_RT_VISIBLE_CORES": "0-1",
        }
        script = ["bash", str(CI / "slurm.sbatch")]
        ended = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)
        return ended, (tmp_path / "calls").read_text().splitlines(), tmp_path / "results" / "slurm-7"

    return run


def test_slurm_judges_every_node_and_trains_over_all_of_them(slurm):
    ended, calls, results = slurm()
    assert ended.returncode == 0, ended.stderr
    assert [call.split(" --results=")[0] for call in calls[:2]] == ["trncheck run --target trn2 --level standard"] * 2
    assert (
        calls[2:4]
        == [
            "torchrun efa 1 unset --nnodes 2 --nproc_per_node 64 --rdzv_id 7 --rdzv_backend c10d "
            "--rdzv_endpoint 10.0.0.1:29500 -m trncheck.trainers --config qwen3_native_tiny --training.steps 20 "
            f"--dump_folder {results}/training --checkpoint.enable --hf_assets_path /models/x"
        ]
        * 2
    )
    for node in ("trn-1", "trn-2"):
        assert (results / node / "status").read_text() == "0\n"
        assert (results / node / "2.33.0" / "trn2" / "run").is_dir()


def test_slurm_keeps_the_results_of_a_red_node_and_trains_all_the_same(slurm):
    ended, calls, results = slurm(bad_node="trn-1")
    assert ended.returncode == 1
    assert [(results / node / "status").read_text() for node in ("trn-1", "trn-2")] == ["1\n", "0\n"]
    assert (results / "trn-1" / "2.33.0").is_dir()
    assert any(call.startswith("torchrun") for call in calls)
    assert "judged 1, trained 0" in ended.stdout


def test_slurm_says_that_it_has_not_run_on_hardware():
    assert "NOT BEEN RUN ON HARDWARE" in "\n".join((CI / "slurm.sbatch").read_text().splitlines()[:5])
