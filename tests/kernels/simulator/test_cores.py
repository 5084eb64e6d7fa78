"""Launches on two cores: what they share, where they wait, and which mistakes show."""

import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki
    import nki.isa as nisa
    import nki.language as nl

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def line_of(kernel, text):
    """``file:line`` of the line of ``kernel`` that holds ``text``."""
    code = kernel.__code__
    with open(code.co_filename) as file:
        lines = file.readlines()
    return f"test_cores.py:{next(i for i in range(code.co_firstlineno, len(lines)) if text in lines[i - 1])}"


def refused(kernel, *arguments, **options) -> str:
    with pytest.raises(NkiError) as error:
        run(nki.jit(kernel)[2], arguments, **options)
    return str(error.value)


def shared(shape=(8, 8), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def swapped_halves(x, barrier):
    """Each core copies its half to scratch, and the other's half from scratch to the output."""
    me, scratch, out = nl.program_id(0), shared(), shared()
    mine, theirs = nl.ds(4 * me, 4), nl.ds(4 * (1 - me), 4)
    nisa.dma_copy(scratch[mine], x[mine])
    if barrier:
        nisa.core_barrier(scratch, (0, 1))
    nisa.dma_copy(out[theirs], scratch[theirs])
    return out


def test_a_barrier_makes_the_other_core_s_writes_visible():
    out, report = run(nki.jit(swapped_halves)[2], (X, True))
    np.testing.assert_array_equal(out, X)
    assert report.warnings == []


def test_reading_before_the_other_core_has_written_is_an_error():
    error = refused(swapped_halves, X, False)
    assert "comes from memory that was never written" in error
    line = line_of(swapped_halves, "nisa.dma_copy(scratch[")
    assert error.endswith(f"; core 1 writes it only later, at {line}: a core_barrier is missing")


def handed_over(x, reader, barrier):
    """One core writes what the other reads."""
    scratch, out = shared(), shared()
    if nl.program_id(0) != reader:
        nisa.dma_copy(scratch, x)  # writes
    if barrier:
        nisa.core_barrier(scratch, (0, 1))
    if nl.program_id(0) == reader:
        nisa.dma_copy(out, scratch)  # reads
    return out


@pytest.mark.parametrize("orders", [1, 2])
@pytest.mark.parametrize("reader", [0, 1])
def test_an_error_in_one_order_of_cores_alone_is_a_missing_barrier(reader, orders):
    assert run(nki.jit(handed_over)[2], (X, reader, True), orders=orders)[1].warnings == []
    if (reader, orders) == (1, 1):
        return  # the order that is tried is the good one
    error = refused(handed_over, X, reader, False, orders=orders)
    assert error.startswith(f"{line_of(handed_over, '# reads')}: handed_over: output 0[0, 0] (64 of 64 elements) comes")
    assert f"; core {1 - reader} writes it only later, at {line_of(handed_over, '# writes')};" in error
    assert error.endswith(f"; with core {1 - reader} first it does not happen: a core_barrier is missing")


def test_an_error_in_both_orders_is_no_missing_barrier():
    def kernel(x):
        out, scratch = shared(), shared()
        nisa.dma_copy(out, scratch)
        return out

    assert "barrier" not in refused(kernel, X)


def overwritten(x, barrier):
    """Core 0 replaces what core 1 reads."""
    scratch, out = shared(), shared()
    if nl.program_id(0) == 0:
        nisa.dma_copy(scratch, x)
    nisa.core_barrier(scratch, (0, 1))
    if nl.program_id(0) == 1:
        nisa.dma_copy(out, scratch)
    if barrier:
        nisa.core_barrier(scratch, (0, 1))
    if nl.program_id(0) == 0:
        nisa.dma_copy(scratch[:2], x[2:4])
    return out


def test_a_result_that_depends_on_the_order_of_cores_is_a_missing_barrier():
    np.testing.assert_array_equal(run(nki.jit(overwritten)[2], (X, True))[0], X)
    line = f"test_cores.py:{overwritten.__code__.co_firstlineno}"
    assert refused(overwritten, X, False) == (
        f"{line}: overwritten: output 0[0, 0] (16.0 or 0.0; 16 of 64 elements differ) depends on which core runs "
        "first: a core_barrier is missing"
    )
    assert run(nki.jit(overwritten)[2], (X, False), orders=1)[0] is not None


def test_written_arguments_are_compared_too():
    def kernel(x, out):
        nisa.dma_copy(out[: 4 + nl.program_id(0)], x[nl.program_id(0) * 3 :][: 4 + nl.program_id(0)])
        nisa.dma_copy(out[5:], x[5:])

    out = np.zeros_like(X)
    assert "kernel: out[0, 0] (24.0 or 0.0; " in refused(kernel, X, out)
    assert not out.any()


def test_on_chip_and_private_memory_belong_to_one_core():
    def kernel(x):
        me, out = nl.program_id(0), shared()
        tile = nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf)
        private = nl.ndarray((4, 8), nl.float32, buffer=nl.private_hbm)
        nisa.dma_copy(tile, x[nl.ds(4 * me, 4)])
        nisa.dma_copy(private, tile)
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(out[nl.ds(4 * me, 4)], private)
        return out

    np.testing.assert_array_equal(run(nki.jit(kernel)[2], (X,))[0], X)


@pytest.mark.parametrize(("degree", "expected"), [(None, (0, 1, 0)), (1, (0, 1, 1)), (2, (1, 2, 1))])
def test_cores_know_their_place(degree, expected):
    seen = []

    def kernel(x):
        seen.append((nl.program_id(0), nl.num_programs(0), nl.program_ndim()))

    run(nki.jit(kernel)[degree] if degree else kernel, (X,), orders=1)
    assert seen[-1] == expected
    assert len(seen) == (degree or 1)


def test_a_barrier_does_nothing_on_one_core():
    def kernel(x):
        out = shared()
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(out, x)
        return out

    for launched in (kernel, nki.jit(kernel)[1]):
        np.testing.assert_array_equal(run(launched, (X,))[0], X)


@pytest.mark.parametrize("early", [0, 1])
def test_a_core_that_ends_without_coming_is_a_deadlock(early):
    def kernel(x):
        out = shared()
        if nl.program_id(0) != early:
            nisa.core_barrier(out, (0, 1))
        return out

    error = refused(kernel, X)
    assert error == (
        f"{line_of(kernel, 'core_barrier')}: nisa.core_barrier: core {1 - early} waits here, and core {early} has "
        "ended without coming: deadlock"
    )


def test_cores_that_wait_for_different_things_are_a_deadlock():
    def kernel(x):
        tile = nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))  # core 0
        else:
            nisa.sendrecv(tile, tile, 0, 0, pipe_id=3)

    assert f"core 1 waits at sendrecv 3, core 0 at core_barrier ({line_of(kernel, '# core 0')}): deadlock" in refused(
        kernel, X
    )


@pytest.mark.parametrize(("shape", "dtype"), [((8, 9), nl.float32), ((8, 8), nl.bfloat16)], ids=["shape", "dtype"])
def test_shared_tensors_must_be_the_same_on_both_cores(shape, dtype):
    def kernel(x):
        shared()
        if nl.program_id(0) == 0:
            shared()
        else:
            shared(shape, dtype)

    error = refused(kernel, X)
    assert f"nl.ndarray: shared tensor 1 is {list(shape)} {dtype} on core 1, and shared_hbm [8, 8] float32" in error
    assert "both cores must allocate shared tensors in the same order" in error


@pytest.mark.parametrize("barriers", [0, 2])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_on_either_core_ends_the_launch(failing, barriers):
    def kernel(x):
        for _ in range(barriers):
            nisa.core_barrier(x, (0, 1))
        if nl.program_id(0) == failing:
            [][0]  # fails
        nisa.core_barrier(x, (0, 1))

    error = refused(kernel, X)
    assert error == f"{line_of(kernel, '# fails')}: IndexError: list index out of range"


@pytest.mark.parametrize("failing", [0, 1])
def test_an_instruction_refused_on_either_core_ends_the_launch(failing):
    def kernel(x):
        nisa.core_barrier(x, (0, 1))
        nisa.dma_copy(x[: 8 - (nl.program_id(0) == failing)], x)

    assert "nisa.dma_copy: dst [7, 8] has 56 elements and src [8, 8] has 64" in refused(kernel, X)


@pytest.mark.parametrize(
    ("data", "cores", "warning"),
    [
        (lambda x, tile: x, 0, "cores is 0, so no core waits; a barrier needs (0, 1)"),
        (lambda x, tile: tile, (0, 1), "data [8, 8] is in sbuf, which the other core cannot see"),
    ],
    ids=["int", "sbuf"],
)
def test_barriers_that_do_not_protect_anything_are_warnings(data, cores, warning):
    def kernel(x):
        tile = nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
        nisa.core_barrier(data(x, tile), cores)

    _, report = run(nki.jit(kernel)[2], (X,))
    assert report.warnings == [f"{line_of(kernel, 'core_barrier')}: nisa.core_barrier: {warning}"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (lambda x: (x, (0,)), "cores must be (0, 1), not (0,)"),
        (lambda x: (x, (1, 0)), "cores must be (0, 1), not (1, 0)"),
        (lambda x: (None, (0, 1)), "data must be a tensor, not None"),
        (lambda x: (x, (0, 1), 3), "engine 3 must be one of nisa.engine"),
    ],
    ids=["one", "order", "data", "engine"],
)
def test_arguments_of_a_barrier_are_checked(arguments, problem):
    def kernel(x):
        nisa.core_barrier(*arguments(x))

    assert refused(kernel, X).endswith(f"nisa.core_barrier: {problem}")


def exchanged(x, **options):
    """Each core sends its half, doubled on core 1, and writes what it receives."""
    me, out = nl.program_id(0), shared()
    mine = nl.ds(4 * me, 4)
    tile, received = (nl.ndarray((4, 8), x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(tile, x[mine])
    nisa.sendrecv(src=tile, dst=received, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0, **options)
    nisa.memset(tile, 0.0)
    nisa.dma_copy(out[mine], received)
    return out


@pytest.mark.parametrize("options", [{}, {"dma_engine": nisa.dma_engine.gpsimd_dma}], ids=["dma", "gpsimd"])
def test_sendrecv_exchanges_tiles(options):
    out, _ = run(nki.jit(exchanged)[2], (X,), options)
    np.testing.assert_array_equal(out, np.concatenate([X[4:], X[:4]]))


def test_what_was_never_written_stays_known_on_the_other_core():
    def kernel(x):
        out, tile, received = shared(), *(nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf) for _ in range(2))
        if nl.program_id(0) == 1:
            nisa.dma_copy(tile, x)
        nisa.sendrecv(tile, received, 1 - nl.program_id(0), 1 - nl.program_id(0), 0)  # reads
        if nl.program_id(0) == 1:
            nisa.dma_copy(out, received)
        return out

    error = refused(kernel, X)
    assert error.startswith(f"{line_of(kernel, '# reads')}: kernel: output 0[0, 0] (64 of 64 elements) comes from")
    assert "nisa.sendrecv: src[0, 0] was never written" in error


def sbuf(*shape, dtype=nl.float32):
    tile = nl.ndarray(shape, dtype, buffer=nl.sbuf)
    nisa.memset(tile, 0)
    return tile


@pytest.mark.parametrize(
    ("operands", "options", "problem"),
    [
        (lambda me: (sbuf(4, 8), sbuf(4, 9)), {}, "src [4, 8] float32 and dst [4, 9] float32 must agree"),
        (lambda me: (sbuf(4, 8), sbuf(4, 8, dtype=nl.int32)), {}, "dst [4, 8] int32 must agree"),
        (lambda me: (shared(), sbuf(8, 8)), {}, "src must be a tensor in sbuf, not float32 [8, 8] in shared_hbm"),
        (lambda me: (sbuf(4, 8), sbuf(4, 8)), {"send_to_rank": 0}, "send_to_rank must be 1 on core 0, not 0"),
        (lambda me: (sbuf(4, 8), sbuf(4, 8)), {"recv_from_rank": 2}, "recv_from_rank must be 1 on core 0, not 2"),
        (lambda me: (sbuf(4 + me, 8), sbuf(4 + me, 8)), {}, "core 1 sends [5, 8] float32, core 0 expects [4, 8]"),
        (lambda me: (sbuf(4, 8), sbuf(4, 8)), {"dma_engine": 1}, "dma_engine 1 must be one of nisa.dma_engine"),
        (
            lambda me: (sbuf(4, 257), sbuf(4, 257)),
            {"dma_engine": nisa.dma_engine.gpsimd_dma},
            "[4, 257] float32 takes 1028 bytes per partition; gpsimd_dma moves 1024",
        ),
    ],
    ids=["shape", "dtype", "buffer", "send", "receive", "other", "engine", "size"],
)
def test_operands_of_sendrecv_are_checked(operands, options, problem):
    def kernel(x):
        me = nl.program_id(0)
        src, dst = operands(me)
        ranks = {"send_to_rank": 1 - me, "recv_from_rank": 1 - me}
        nisa.sendrecv(src, dst, pipe_id=0, **(ranks | options))

    error = refused(kernel, X)
    assert "nisa.sendrecv: " in error
    assert problem in error


def test_sendrecv_needs_two_cores():
    with pytest.raises(NkiError, match=r"nisa.sendrecv: needs a launch on two cores, kernel\[2\]"):
        run(exchanged, (X,))


def test_a_peak_is_that_of_one_core():
    def kernel(x):
        for _ in range(1 + nl.program_id(0)):
            kept = [sbuf(4, 8) for _ in range(1 + nl.program_id(0))]
        for tile in kept:
            nisa.memset(tile, 0.0)

    assert run(nki.jit(kernel)[2], (X,))[1].sbuf_peak == 2 * 32
