"""Launches: arguments and results, environment, and errors of the kernel's own."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import torch

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki
    import nki.isa as nisa
    import nki.language as nl


def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, x)
    return out


@nki.jit
def double(x):
    """Twice x, through SBUF."""
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def double_in_place(x, unused, out):
    nisa.dma_copy(out, double(x))
    return out


X = np.arange(32, dtype=np.float32).reshape(8, 4)
DTYPES = ["float32", "bfloat16", "float16", "int32", "uint8", "bool", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_goes_in_and_comes_out(dtype):
    x = X.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    out = nki.simulate(copied)(x)
    assert out.dtype == x.dtype
    assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e4m3fn", "int64"])
def test_torch_goes_in_and_comes_out(dtype):
    x = torch.from_numpy(X).to(getattr(torch, dtype))
    out = nki.simulate(copied)(x)
    assert isinstance(out, torch.Tensor)
    assert out.dtype == x.dtype
    assert torch.equal(out.float(), x.float())


def test_tensors_that_need_gradients_go_in():
    x = torch.from_numpy(X).requires_grad_()
    assert torch.equal(nki.simulate(double)(x), 2 * x.detach())


def test_arguments_of_any_layout_go_in():
    np.testing.assert_array_equal(nki.simulate(copied)(X.T), X.T)
    np.testing.assert_array_equal(nki.simulate(copied)(np.asfortranarray(X)[::2, ::-1]), X[::2, ::-1])
    x = torch.from_numpy(X)
    assert torch.equal(nki.simulate(copied)(x.t()[1:]), x.t()[1:])
    assert torch.equal(nki.simulate(copied)(x[:1].expand(3, 4)), x[:1].expand(3, 4))


def test_read_only_arrays_and_one_array_for_two_arguments_go_in():
    x = X.copy()
    x.setflags(write=False)
    np.testing.assert_array_equal(nki.simulate(double)(x), 2 * X)
    both = X.copy()
    for degree in (1, 2):
        run(double_in_place[degree], (both, X, both))
    np.testing.assert_array_equal(both, 4 * X)


def layouts():
    """Tensors (8, 4) to be written: whole, transposed, every second row, a slice of more."""
    return {
        "whole": lambda like: like(np.zeros((8, 4), np.float32)),
        "transposed": lambda like: like(np.zeros((4, 8), np.float32)).T,
        "strided": lambda like: like(np.zeros((16, 4), np.float32))[::2],
        "sliced": lambda like: like(np.zeros((9, 6), np.float32))[1:, 1:5],
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize(
    "like",
    [
        lambda a: a,
        lambda a: a.astype(ml_dtypes.bfloat16),
        torch.from_numpy,
        lambda a: torch.from_numpy(a).to(torch.bfloat16),
    ],
    ids=["numpy", "numpy-bf16", "torch", "torch-bf16"],
)
@pytest.mark.parametrize("degree", [1, 2])
def test_arguments_that_are_written_are_updated_in_place(layout, like, degree):
    x, unused, out = like(X.copy()), like(X.copy()), layouts()[layout](like)
    returned, report = run(double_in_place[degree], (x, unused, out))
    assert returned is out
    assert report.mutated == ["out"]
    np.testing.assert_array_equal(np.asarray(out.tolist()), 2 * X)
    np.testing.assert_array_equal(np.asarray(x.tolist()), X)


def test_a_slice_that_is_written_leaves_the_rest_alone():
    whole = torch.full((9, 6), -1.0)
    run(double_in_place, (torch.from_numpy(X), torch.zeros(1), whole[1:, 1:5]))
    assert (whole[0] == -1).all()
    assert (whole[:, [0, 5]] == -1).all()


def test_an_argument_may_be_read_and_written():
    def accumulate(x, total):
        nisa.dma_compute(total, [total, x], nl.add)

    total = X.copy()
    for degree in (1, 2):
        kernel = nki.jit(accumulate)[degree]
        if degree == 2:  # both cores would add
            kernel = nki.jit(lambda x, total: accumulate(x, total) if nl.program_id(0) == 0 else None)[2]
        assert run(kernel, (X, total))[0] is None
    np.testing.assert_array_equal(total, 3 * X)


def test_results_keep_their_structure_and_other_arguments_pass_through():
    @dataclass
    class Options:
        scale: float

    def kernel(x, options, dtype, *, names=(), flag=None):
        assert (options.scale, dtype, names, flag) == (2.0, "bfloat16", ("a", "b"), None)
        return [copied(x), (copied(x[:2]), 7)], {"x": x, "none": None}

    (first, (second, seven)), rest = nki.simulate(kernel)(X, Options(2.0), nl.bfloat16, names=("a", "b"))
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X[:2])
    assert seven == 7
    assert rest["x"] is X
    assert rest["none"] is None


def test_a_permuted_result_comes_out_permuted():
    for degree in (1, 2):
        out, _ = run(nki.jit(lambda x: copied(x).permute((1, 0)))[degree], (X,))
        np.testing.assert_array_equal(out, X.T)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.private_hbm, nl.hbm])
def test_outputs_must_be_in_shared_memory(buffer):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=buffer)
        nisa.dma_copy(out, x)
        return out

    with pytest.raises(NkiError, match=r"^test_launch.py:\d+: kernel returns .*; an output must be in nl.shared_hbm"):
        run(kernel, (X,))


def test_the_report_counts_instructions():
    _, report = run(double, (X,))
    assert report.executed == {"nisa.dma_copy": 2, "nisa.tensor_scalar": 1}
    assert report.warnings == []
    assert report.mutated == []
    assert run(double[2], (X,))[1].executed == {"nisa.dma_copy": 4, "nisa.tensor_scalar": 2}


def test_direct_calls_simulate_where_the_environment_says_so(monkeypatch):
    monkeypatch.delenv("NKI_SIMULATOR", raising=False)
    with pytest.raises(RuntimeError, match=r"double: no Neuron device here; call it through nki.simulate"):
        double(X)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    np.testing.assert_array_equal(double(X), 2 * X)
    np.testing.assert_array_equal(double[2](x=X), 2 * X)


def test_jit_keeps_name_and_docstring_and_knows_its_options():
    assert (double.__name__, double.__doc__) == ("double", "Twice x, through SBUF.")
    np.testing.assert_array_equal(nki.simulate(nki.jit(mode="trace")(copied))(X), X)
    with pytest.raises(ValueError, match="NEURON_PLATFORM_TARGET_OVERRIDE"):
        nki.jit(copied, platform_target="trn2")
    with pytest.raises(TypeError, match=r"nki.jit has no argument debug"):
        nki.jit(copied, debug=True)
    for degree in (0, 3, True, (2, 2)):
        with pytest.raises(ValueError, match="1 or 2, the cores of the LNC"):
            double[degree]


def test_instructions_need_a_launch():
    with pytest.raises(RuntimeError, match=r"through nki.simulate or kernel\[lnc\]"):
        nisa.dma_copy(X, X)


def test_low_precision_can_be_kept_in_fp32(monkeypatch):
    def through_bf16(x):
        tile = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        return copied(tile), copied(x)

    x = X / 7
    assert not np.array_equal(nki.simulate(through_bf16)(x)[0].astype(np.float32), x)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    def back_in_fp32(x):
        tile = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    np.testing.assert_array_equal(nki.simulate(back_in_fp32)(x), x)
    assert nki.simulate(through_bf16)(x)[0].dtype == ml_dtypes.bfloat16
    with pytest.raises(NkiError, match="NKI_PRECISE_FP=0 does not keep them"):
        nki.simulate(lambda x: copied(x.view("int32")))(x)


@pytest.mark.parametrize(
    ("name", "version", "sbuf"),
    [("trn1", "gen2", 192), ("gen3", "gen3", 224), ("trn2", "gen3", 224), ("trn3", "gen4", 256)],
)
def test_the_platform_can_be_chosen(monkeypatch, name, version, sbuf):
    def kernel(x):
        assert nisa.get_nc_version() is nisa.nc_version[version]
        assert nl.tile_size.sbuf_fmax_bytes == sbuf * 1024
        assert nl.tile_size.pmax == 128
        nl.ndarray((128, sbuf * 256), nl.float32, buffer=nl.sbuf)
        with pytest.raises(NkiError, match="SBUF capacity exceeded"):
            nl.ndarray((128, sbuf * 256 + 1), nl.float32, buffer=nl.sbuf)

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    run(kernel, (X,))


def test_a_platform_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(ValueError, match="NEURON_PLATFORM_TARGET_OVERRIDE='trn9' names no platform; one of trn1, trn2"):
        run(double, (X,))


def bad_index(x):
    return [1, 2][x.shape[0]]


def bad_assert(x):
    assert x.shape[0] == 9, "rows"


def bad_deeper(x):
    return bad_index(x)


def bad_library(x):
    return nl.shared_constant(np.stack([]))


def bad_in_loop(x):
    nl.fori_loop(0, 2, lambda i: bad_index(x))


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "where", "problem"),
    [
        (bad_index, bad_index, "IndexError: list index out of range"),
        (bad_assert, bad_assert, "AssertionError: rows"),
        (bad_deeper, bad_index, "IndexError: list index out of range"),
        (bad_library, bad_library, "ValueError: need at least one array to stack"),
        (bad_in_loop, bad_index, "IndexError: list index out of range"),
    ],
    ids=["index", "assert", "function", "numpy", "loop"],
)
def test_an_error_in_the_kernel_s_own_python_names_its_line(kernel, where, problem, degree):
    with pytest.raises(NkiError) as error:
        run(nki.jit(kernel)[degree], (X,))
    line = f"test_launch.py:{where.__code__.co_firstlineno + 1}"
    assert str(error.value).splitlines()[0] == f"{line}: {problem}"  # pytest adds lines to an AssertionError
    assert type(error.value.__cause__).__name__ == problem.partition(":")[0]


def test_a_chain_of_64_errors_keeps_its_first_cause():
    def deep(level):
        if level == 0:
            raise KeyError("the first")
        try:
            deep(level - 1)
        except Exception as error:
            raise ValueError(f"level {level}") from error

    with pytest.raises(NkiError, match=r"^test_launch.py:\d+: ValueError: level 64$") as caught:
        run(lambda x: deep(64), (X,))
    error, depth = caught.value, 0
    while error.__cause__ is not None:
        error, depth = error.__cause__, depth + 1
    assert (repr(error), depth) == ("KeyError('the first')", 65)


def test_wrong_arguments_are_named():
    with pytest.raises(NkiError, match="double: missing a required argument: 'x'"):
        run(double, ())
    with pytest.raises(NkiError, match="argument 'x' is float64, which Trainium does not have; convert it first"):
        run(double, (X.astype(np.float64),))
    with pytest.raises(NkiError, match=r"nisa.dma_copy: missing a required argument: 'src'; the signature is \(dst, "):
        run(lambda x: nisa.dma_copy(x), (X,))
