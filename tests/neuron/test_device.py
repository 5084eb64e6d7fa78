"""The seam to the device, against what torch-neuronx may have: each answer is a measurement or says why it is none."""

import sys
import types

import pytest
import torch

from trncheck.neuron import device


@pytest.fixture
def neuron(monkeypatch):
    """Gives torch a module ``torch.neuron`` with the given members; returns the names of what was called."""
    calls: list[str] = []

    def register(**members) -> list[str]:
        def recorded(name, value):
            def function():
                calls.append(name)
                return value

            return function

        answers = {"is_available": True, "synchronize": None} | members
        functions = {name: recorded(name, value) for name, value in answers.items()}
        monkeypatch.setattr(torch, "neuron", types.SimpleNamespace(**functions), raising=False)
        return calls

    return register


# --- which torch-neuronx


def test_without_torch_neuronx():
    assert (device.line(), device.available(), device.module()) == (None, False, None)
    assert device.why_not_available().startswith("torch-neuronx is not installed; ")


@pytest.mark.parametrize(
    ("autoload", "problem"),
    [("1", "it is the PyTorch/XLA line or a placeholder; install the native one"), ("0", "AUTOLOAD=0; unset it")],
)
def test_a_torch_neuronx_that_brings_no_device(torch_neuronx, monkeypatch, autoload, problem):
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", autoload)
    torch_neuronx("def trace(): ...")
    assert (device.line(), device.available()) == ("xla", False)
    assert problem in device.why_not_available()


@pytest.mark.parametrize(("there", "problem"), [(True, ""), (False, "finds no NeuronCore; see what neuron-ls says")])
def test_the_native_line(torch_neuronx, neuron, there, problem):
    torch_neuronx()
    neuron(is_available=there)
    assert (device.line(), device.available()) == ("native", there)
    assert device.why_not_available().endswith(problem)


# --- memory

STATS = {"allocated_bytes.all.peak": 7, "active_bytes.all.peak": 6, "reserved_bytes.all.peak": 9}


@pytest.mark.parametrize(
    ("members", "peak", "reserved"),
    [
        ({"memory_stats": STATS}, 7, 9),
        ({"memory_stats": {"active_bytes.all.peak": 6}}, 6, None),
        ({"memory_stats": {}, "max_memory_allocated": 5, "max_memory_reserved": 8}, 5, 8),
        ({"max_memory_allocated": 0}, 0, None),
    ],
    ids=["stats", "active only", "functions", "zero is a number"],
)
def test_memory_is_read_after_a_synchronisation(neuron, members, peak, reserved):
    calls = neuron(**members)
    assert device.memory() == device.Memory(peak, reserved)
    assert calls[0] == "synchronize"
    assert "synchronize" not in calls[1:]


def test_memory_functions_of_the_package_will_do(neuron, torch_neuronx):
    neuron()
    torch_neuronx("def max_memory_allocated():\n    return 3\ndef reset_peak_memory_stats(): ...")
    assert device.memory().peak == 3
    assert device.reset_peak_memory()


def test_memory_that_is_not_measurable(neuron):
    assert device.memory() == device.Memory(None, None, device.why_not_available())
    assert not device.reset_peak_memory()
    neuron()
    memory = device.memory()
    assert memory.peak is None
    assert memory.why_not == "torch-neuronx has neither max_memory_allocated nor a peak in memory_stats"
    assert not device.reset_peak_memory()


def test_the_peak_is_reset_after_a_synchronisation(neuron):
    calls = neuron(reset_peak_memory_stats=None)
    assert device.reset_peak_memory()
    assert calls == ["synchronize", "reset_peak_memory_stats"]


# --- operators that ran on the CPU instead

TRACKING = """
ran, fell = ["aten::mm", "aten::add", "aten::mm"], ["aten::qr"]
def get_executed_ops():
    return ran
def get_fallback_ops():
    return fell
def clear_op_tracking():
    ran.clear(), fell.clear()
"""


def test_fallbacks(neuron, torch_neuronx):
    calls = neuron()
    torch_neuronx(TRACKING)
    assert device.fallbacks() == device.Fallbacks(True, ("aten::add", "aten::mm"), ("aten::qr",))
    device.clear_fallbacks()
    assert device.fallbacks() == device.Fallbacks(True)
    assert calls == ["synchronize"] * 3


@pytest.mark.parametrize("gone", ["get_fallback_ops", "get_executed_ops", "clear_op_tracking"])
def test_fallbacks_that_are_not_measurable(neuron, torch_neuronx, gone):
    neuron()
    torch_neuronx(TRACKING + f"del {gone}")
    device.clear_fallbacks()
    expected = device.Fallbacks(
        False, why_not=f"torch_neuronx has no {gone}, and how it logs a fallback is not published"
    )
    assert device.fallbacks() == expected


def test_fallbacks_without_torch_neuronx():
    device.clear_fallbacks()
    assert device.fallbacks() == device.Fallbacks(False, why_not=device.why_not_available())


# --- compilations


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache of executables, and nothing else that counts."""
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", raising=False)
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    return tmp_path


def test_compilations_are_executables_of_this_run(cache):
    (cache / "before.neff").touch()
    watch = device.Compilations()
    for new in (2, 0, 1):
        for i in range(new):
            (cache / f"{new}-{i}").mkdir()
            (cache / f"{new}-{i}" / "graph.neff").touch()
        watch.end_step()
    assert watch.by_step() == ([2, 0, 1], "")


@pytest.mark.parametrize("where", ["torch.neuron", "torch_neuronx", "metrics"])
def test_compilations_are_graphs(cache, neuron, torch_neuronx, monkeypatch, where):
    graphs = ["first"]
    functions = {"get_dynamo_metrics": lambda: graphs}
    package = torch_neuronx()
    if where == "torch.neuron":
        neuron()
        torch.neuron.get_dynamo_metrics = functions["get_dynamo_metrics"]
    elif where == "torch_neuronx":
        package.get_dynamo_metrics = functions["get_dynamo_metrics"]
    else:
        name = "torch_neuronx.neuron_dynamo_backend.metrics"
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**functions))
    watch = device.Compilations()
    watch.end_step()
    graphs.append("second")
    watch.end_step()
    assert watch.by_step() == ([0, 1], "")


def test_sources_that_count_the_same_do_not_add_up(cache, monkeypatch):
    counters = {"stats": {"unique_graphs": 0}}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.SimpleNamespace(counters=counters))
    watch = device.Compilations()
    counters["stats"]["unique_graphs"] = 2
    (cache / "one.neff").touch()
    watch.end_step()
    assert watch.by_step() == ([2], "")


def test_compilations_that_nothing_counts(cache):
    watch = device.Compilations()
    watch.end_step()
    steps, why_not = watch.by_step()
    assert steps is None
    assert why_not.startswith("neither torch.compile nor torch-neuronx has counted a graph, and TORCH_NEURONX_NEFF_")


# --- kernels


class Kernel:
    """As an ``@nki.jit`` function: called with tensors, with the number of cores in brackets."""

    __name__ = "doubled"

    def __getitem__(self, cores):
        return lambda *args, **kwargs: ("by itself", cores, args, kwargs)


WRAPPER = """
class Wrapped:
    def __init__(self, grid=None):
        self.grid = grid
    def __getitem__(self, grid):
        return Wrapped({grid})
    def __call__(self, *args, **kwargs):
        return "wrapped", self.grid, args, kwargs
def wrap_nki(kernel):
    return Wrapped()
"""


@pytest.mark.parametrize(("grid", "expected"), [("grid", 2), ("tuple(map(int, grid))", (2,))])
@pytest.mark.parametrize("in_package", [True, False])
def test_kernels_go_through_the_wrapper(torch_neuronx, grid, expected, in_package):
    source = WRAPPER.format(grid=grid)
    torch_neuronx(source if in_package else "", nki_hop="" if in_package else source)
    assert device.launch(Kernel(), 2, (1,), {"op": 3}) == ("wrapped", expected, (1,), {"op": 3})


def test_kernels_without_a_wrapper_take_tensors_themselves(torch_neuronx):
    torch_neuronx()
    assert device.launch(Kernel(), 2, (1,), {"op": 3}) == ("by itself", 2, (1,), {"op": 3})


def test_operators_are_registered_where_they_can(torch_neuronx):
    assert device.nki_op() is None
    package = torch_neuronx("def nki_op(): ...")
    assert device.nki_op() is package.nki_op
