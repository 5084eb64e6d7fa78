"""Variables: what a run sets, what it refuses, what users are shown."""

from dataclasses import replace
from pathlib import Path

import pytest

from trncheck.neuron import settings
from trncheck.neuron.machine import Machine
from trncheck.neuron.neuron_ls import Device

CPU = Machine(None, (), None, "absent", (), None, None, ())
TRN2 = Machine(
    instance_type="trn2.48xlarge",
    files=tuple(range(16)),
    driver="2.31.7.0",
    listing="read",
    listed=tuple(Device(number, 4, tuple(range(4 * number, 4 * number + 4)), 2) for number in range(16)),
    lnc=2,
    lnc_source="neuron-ls",
    busy=(),
)


def conflicts(machine=TRN2, **environ: str) -> list[str]:
    return settings.conflicts(environ, machine)


@pytest.mark.parametrize("machine", [CPU, TRN2], ids=["cpu", "trn2"])
def test_empty_environment_is_free_of_conflicts(machine):
    assert conflicts(machine) == []


def test_what_a_run_sets_is_free_of_conflicts(tmp_path):
    assert settings.conflicts(settings.explicit({}, tmp_path), TRN2) == []


def test_defaults_that_moved_or_are_unknown_are_set(tmp_path):
    added = settings.explicit({}, tmp_path)
    assert added["TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"] == "1"
    assert added["NEURON_RT_STOCHASTIC_ROUNDING_EN"] == "0"
    assert added["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn2"


def test_caches_are_the_runs_own(tmp_path):
    first, second = (settings.explicit({}, tmp_path / run) for run in ("a", "b"))
    for name in ("TORCH_NEURONX_NEFF_CACHE_DIR", "NKI_COMPILE_CACHE_URL", "TORCH_NEURONX_DEBUG_DIR"):
        assert first[name].startswith(f"{tmp_path}/a/")
        assert first[name] != second[name]
    assert len(list((tmp_path / "a").iterdir())) == 4


def test_folders_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings.explicit({}, Path("run"))["NKI_COMPILE_CACHE_URL"] == f"{tmp_path}/run/nki-cache"


def test_what_the_user_set_is_left_alone(tmp_path):
    mine = {"NEURON_RT_STOCHASTIC_ROUNDING_EN": "1", "NKI_COMPILE_CACHE_URL": "/mine"}
    added = settings.explicit(mine, tmp_path)
    assert not mine.keys() & added.keys()
    assert not (tmp_path / "nki-cache").exists()


@pytest.mark.parametrize("flag", ["-lnc 1", "--lnc=1", "--logical-nc-config=1", "--logical-nc-config 1 -O1"])
@pytest.mark.parametrize("runtime", [{"NEURON_LOGICAL_NC_CONFIG": "2"}, {}], ids=["set", "default"])
def test_lnc_of_compiler_and_runtime(flag, runtime):
    (line,) = conflicts(NEURON_CC_FLAGS=flag, **runtime)
    assert "NEURON_LOGICAL_NC_CONFIG=2" in line
    assert "compiles for LNC 1" in line


def test_equal_lnc_is_no_conflict():
    assert conflicts(NEURON_CC_FLAGS="-lnc 2", NEURON_LOGICAL_NC_CONFIG="2") == []
    assert conflicts(NEURON_CC_FLAGS="-lnc=1", NEURON_LOGICAL_NC_CONFIG="1") == []


def test_lnc_of_the_machine_counts_where_the_process_does_not_say():
    machine = replace(TRN2, lnc=1, lnc_source="/opt/aws/neuron/logical_nc_config")
    (line,) = conflicts(machine)
    assert line.endswith("export NEURON_LOGICAL_NC_CONFIG=1")
    assert conflicts(machine, NEURON_LOGICAL_NC_CONFIG="2") == []


def test_lnc_that_does_not_exist_is_said_once():
    (line,) = conflicts(NEURON_LOGICAL_NC_CONFIG="4", NEURON_RT_VISIBLE_CORES="0-3")
    assert "NEURON_LOGICAL_NC_CONFIG='4' is not 1 or 2" in line


def test_earlier_name_of_lnc():
    assert conflicts(NEURON_RT_VIRTUAL_CORE_SIZE="2") == []
    (line,) = conflicts(NEURON_RT_VIRTUAL_CORE_SIZE="1")
    assert "the earlier name of NEURON_LOGICAL_NC_CONFIG" in line


@pytest.mark.parametrize(
    ("cores", "says"),
    [("0-64", "names core 64"), ("4-", "neither a core nor a range"), ("7-4", "runs backwards"), ("", "lists no core")],
)
def test_visible_cores(cores, says):
    (line,) = conflicts(NEURON_RT_VISIBLE_CORES=cores)
    assert says in line


def test_visible_cores_are_counted_at_the_lnc_of_the_process():
    assert conflicts(NEURON_RT_VISIBLE_CORES="0-127", NEURON_LOGICAL_NC_CONFIG="1") == []
    assert conflicts(NEURON_RT_VISIBLE_CORES="0-63") == []


def test_cores_of_an_unknown_machine_are_only_read():
    assert conflicts(CPU, NEURON_RT_VISIBLE_CORES="0-127") == []
    assert len(conflicts(CPU, NEURON_RT_VISIBLE_CORES="x")) == 1


def test_number_of_cores_against_their_list():
    (line,) = conflicts(NEURON_RT_VISIBLE_CORES="0-3", NEURON_RT_NUM_CORES="8")
    assert "unset one of the two" in line


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("NEURON_RT_STOCHASTIC_ROUNDING_EN", "true", "rounds at random"),
        ("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0", "run eagerly"),
        ("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "0", "by way of the CPU"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3", "another chip"),
        ("NKI_SIMULATOR", "1", "no result is the device's"),
        ("NKILIB_USE_TORCH_REF", "1", "none of them is tested"),
        ("NEURON_CC_FLAGS", "--auto-cast all", "behind the model's back"),
        ("NEURON_CC_FLAGS", "--target=inf2", "another chip"),
        ("NEURON_CC_FLAGS", "--tensorizer-options='x", "cannot be split"),
        ("NEURON_RT_ROOT_COMM_ID", "10.0.0.1:48620", "left over"),
        ("PJRT_DEVICE", "NEURON", "unset PJRT_DEVICE"),
    ],
)
def test_one_line_names_the_variable_and_what_it_does(name, value, says):
    (line,) = conflicts(**{name: value})
    assert name in line
    assert says in line
    assert "\n" not in line


def test_settings_that_do_no_harm():
    assert conflicts(NEURON_CC_FLAGS="--auto-cast=none --model-type transformer --target trn2") == []
    assert conflicts(NEURON_RT_STOCHASTIC_ROUNDING_EN="0", NEURON_PLATFORM_TARGET_OVERRIDE="gen3") == []
    assert conflicts(NEURON_RT_EXEC_TIMEOUT="30", NEURON_LAUNCH_BLOCKING="1", NKI_SIMULATOR="0") == []


def test_simulator_is_no_conflict_where_there_is_no_device():
    assert conflicts(CPU, NKI_SIMULATOR="1") == []


def test_variables_of_the_xla_line_share_a_line():
    (line,) = conflicts(XLA_USE_BF16="1", NEURON_FRAMEWORK_DEBUG="1")
    assert line.endswith("unset NEURON_FRAMEWORK_DEBUG XLA_USE_BF16")


def test_rows_show_values_flags_and_what_a_run_sets():
    environ = {"NEURON_CC_FLAGS": "-lnc 1 --auto-cast=none", "XLA_USE_BF16": "1"}
    rows = {row.name: row for row in settings.describe(environ)}
    assert rows["--logical-nc-config"].value == "1"
    assert rows["--auto-cast"].value == "none"
    assert rows["--native-int64"].value == "unset"
    assert rows["NEURON_RT_STOCHASTIC_ROUNDING_EN"][:3] == ("NEURON_RT_STOCHASTIC_ROUNDING_EN", "unset", "unknown")
    assert rows["NEURON_RT_STOCHASTIC_ROUNDING_EN"].ours.startswith("0: ")
    assert rows["XLA_USE_BF16"].value == "1"
    assert "PJRT_DEVICE" not in rows


def test_flags_that_cannot_be_read_do_not_end_the_table():
    rows = {row.name: row.value for row in settings.describe({"NEURON_CC_FLAGS": "'"})}
    assert rows["NEURON_CC_FLAGS"] == "'"


@pytest.mark.parametrize("setting", settings.SETTINGS + settings.FLAGS, ids=lambda setting: setting.name)
def test_every_setting_has_default_and_source_and_reason(setting):
    assert setting.default
    assert setting.source
    assert bool(setting.ours) == bool(setting.why)
    assert bool(setting.demanded) == bool(setting.harm)
    assert not setting.demanded or not setting.ours or setting.ours in setting.demanded
