"""Registers and scalars: between memory and instructions, never in Python's control flow."""

import ml_dtypes
import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl


def stored(dtype, value):
    """What a register or scalar that ``value`` makes from the argument leaves in a tensor of ``dtype``."""

    def kernel(x):
        out = nl.ndarray((1, 1), dtype, buffer=nl.shared_hbm)
        made = value(x)
        (nisa.scalar_store if isinstance(made, nisa.NkiScalar) else nisa.register_store)(out, made)
        return out

    return lambda x: run(kernel, (x,))[0][0, 0]


def loaded(x):
    register = nisa.register_alloc()
    nisa.register_load(register, x)
    return register


def moved(x):
    register = nisa.register_alloc(3)
    nisa.register_move(register, loaded(x))
    return register


@pytest.mark.parametrize("make", [loaded, moved, lambda x: nisa.register_alloc(x)], ids=["load", "move", "alloc"])
@pytest.mark.parametrize("value", [0, -1, 2**31 - 1, -(2**31)])
def test_registers_hold_32_bits(make, value):
    assert stored(nl.int32, make)(np.array([[value]], np.int32)) == value


def test_registers_take_ints():
    def kernel(x):
        out = nl.ndarray((2, 1), nl.int32, buffer=nl.shared_hbm)
        register = nisa.register_alloc(5)
        nisa.register_store(out[0], register)
        nisa.register_move(register, -6)
        nisa.register_store(out[1], register)
        return out

    assert run(kernel, (np.zeros((1, 1), np.float32),))[0].tolist() == [[5], [-6]]


def test_registers_keep_the_bits_of_floats():
    for dtype in (np.float32, ml_dtypes.bfloat16):
        x = np.array([[-1.5]], dtype)
        assert stored(np.dtype(dtype).name, loaded)(x) == x[0, 0]


def test_scalars_compute_with_ints_and_scalars():
    def value(x):
        scalar = nisa.scalar_load(x)
        return -(2 * scalar - 3) + scalar * scalar

    assert stored(nl.int32, value)(np.array([[7]], np.int32)) == 38
    assert stored(nl.int64, value)(np.array([[2**31]], np.int64)) == 2**62 - 2**32 + 3


def test_scalars_of_32_bits_wrap():
    assert stored(nl.int32, lambda x: nisa.scalar_load(x) + 1)(np.array([[2**31 - 1]], np.int32)) == -(2**31)


def test_the_generation_is_that_of_trainium2():
    def kernel(x):
        assert nisa.get_nc_version() is nisa.nc_version.gen3
        assert nisa.get_nc_version() >= nisa.nc_version.gen2

    run(kernel, (np.zeros((1, 1), np.float32),))


@pytest.mark.parametrize("make", [nisa.register_alloc, nisa.scalar_load], ids=["register", "scalar"])
@pytest.mark.parametrize(
    "use",
    [bool, int, range, lambda r: [0, 1][r], lambda r: r and 1, lambda r: 1 if r else 0],
    ids=["bool", "int", "range", "index", "and", "if"],
)
def test_python_cannot_branch_on_a_register(make, use):
    def kernel(x):
        use(make(x))

    with pytest.raises(NkiError, match=r"test_scalars.py:\d+: a register has no value while the kernel is compiled"):
        run(kernel, (np.ones((1, 1), np.int32),))


@pytest.mark.parametrize("dtype", [np.int32, np.float32], ids=["scalar", "register"])
def test_loops_count_from_and_to_registers(dtype):
    def kernel(x, count):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        end = nisa.scalar_load(count) if dtype is np.int32 else nisa.register_alloc(count)
        nl.fori_loop(0, end, lambda i: nisa.dma_copy(out.select(0, i), x.select(0, i)) and None)
        return out

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    out, report = run(kernel, (x, np.array([[4]], np.int32)))
    np.testing.assert_array_equal(out, x)
    assert report.executed["nisa.dma_copy"] == 4


def test_a_loop_runs_while_its_register_is_not_zero():
    def kernel(x, flags):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        row = [0]

        def body(condition):
            nisa.dma_copy(out[row[0]], x[row[0]])
            nisa.register_load(condition, flags[row[0]])
            row[0] += 1
            return condition

        nl.while_loop(nisa.register_alloc(1), body)
        return out

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    out, _ = run(kernel, (x, np.array([1, 5, -1, 0], np.int32)))
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda x: nisa.scalar_load(x[:1, 1:]), "nisa.scalar_load: src is float32; it must be int32 or int64"),
        (lambda x: nisa.scalar_load(x), "nisa.scalar_load: src [1, 2] must have one element"),
        (lambda x: nisa.scalar_store(x[:1, :1], 3), "nisa.scalar_store: value must be an NkiScalar, not 3"),
        (
            lambda x: nisa.register_move(3, 3),
            "nisa.register_move: dst must be a register of nisa.register_alloc, not 3",
        ),
        (lambda x: nisa.register_alloc(2**32), "nisa.register_alloc: x 4294967296 does not fit the 32 bits"),
        (lambda x: nisa.register_move(nisa.register_alloc(), 1.5), "src must be an int or a register, not 1.5"),
        (
            lambda x: nisa.register_move(nisa.register_alloc(), imm=1),
            "missing a required argument: 'src'; the signature is (dst, src)",
        ),
        (lambda x: nisa.register_load(nisa.register_alloc(), nl.ndarray((1, 1), nl.int32)), "never written"),
    ],
    ids=["dtype", "size", "int", "register", "wide", "float", "removed", "unwritten"],
)
def test_operands_are_checked(use, problem):
    with pytest.raises(NkiError) as error:
        run(lambda x: use(x), (np.zeros((1, 2), np.float32),))
    assert problem in str(error.value)
    assert str(error.value).startswith("test_scalars.py:")
