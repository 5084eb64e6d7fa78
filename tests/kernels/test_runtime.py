"""Launches through the seam: what they say they did, what does not count, and warnings that reach the user."""

import warnings

import pytest
import torch

from trncheck.kernels import counters, runtime
from trncheck.kernels.simulator import launch as simulator
from trncheck.kernels.simulator.errors import NkiError, NkiWarning

with runtime.importing():
    import nki
    import nki.isa as nisa
    import nki.language as nl

pytestmark = pytest.mark.skipif(runtime.cpu_backend() != "simulator", reason="the official NKI executes")
X = torch.arange(64, dtype=torch.float32).reshape(8, 8)


@nki.jit
def doubled(x, *, idle=False):
    """Twice x; each core does its rows, or core 0 all of them."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    cores = 1 if idle else nl.num_programs(0)
    rows = x.shape[0] // cores
    if nl.program_id(0) < cores:
        part = nl.ds(nl.program_id(0) * rows, rows)
        tile = nl.ndarray((rows, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[part])
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nisa.dma_copy(out[part], tile)
    return out


def launch(kernel, *args, cores=2, **kwargs):
    return runtime.launch("tests::op", "forward", kernel, *args, cores=cores, **kwargs)


@pytest.mark.parametrize(
    ("cores", "idle", "instructions"), [(1, False, (3,)), (2, False, (3, 3)), (2, True, (3, 0))], ids=str
)
def test_a_launch_says_on_which_cores_it_ran(cores, idle, instructions):
    with runtime.observing() as launches:
        assert launch(doubled, X.bfloat16(), cores=cores, idle=idle).equal(2 * X.bfloat16())
    assert launches == [("tests::op", "forward", "bfloat16", "simulator", cores, instructions, ())]


def test_cores_are_those_that_ran_whatever_was_asked_for(monkeypatch):
    run = simulator.run
    monkeypatch.setattr(simulator, "run", lambda kernel, *args, **options: run(doubled[1], *args, **options))
    with runtime.observing() as launches:
        launch(doubled, X, cores=2)
    assert (launches[0].cores, launches[0].instructions) == (1, (3,))


def test_observers_see_their_own_time():
    with runtime.observing() as outer:
        launch(doubled, X)
        with runtime.observing() as inner:
            launch(doubled, X)
    launch(doubled, X)
    assert (len(outer), len(inner)) == (2, 1)


@pytest.mark.parametrize(("cores", "idle"), [(1, "core 0"), (2, "core 0 and core 1")])
def test_a_launch_without_instructions_does_not_count(cores, idle):
    def empty(x):
        return nl.zeros(x.shape, x.dtype, buffer=nl.shared_hbm)

    with counters.counting() as counts, runtime.observing() as launches:
        message = (
            f"^tests::op forward: kernel empty has executed no instruction on {idle}, so the launch does not count$"
        )
        with pytest.raises(RuntimeError, match=message):
            launch(nki.jit(empty), X, cores=cores)
    assert counts.total() == len(launches) == 0


def nothing(x):
    launch_one_instruction(x)


def launch_one_instruction(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)


def itself(x):
    launch_one_instruction(x)
    return x


def part_of_itself(x):
    launch_one_instruction(x)
    return (x[:2],)


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (nothing, "kernel nothing returns no tensor but NoneType; return the outputs"),
        (itself, "kernel itself returns its argument 'x', which it has not written; return an output of its own"),
        (part_of_itself, "kernel part_of_itself returns its argument 'x', which it has not written; "),
    ],
)
def test_a_kernel_must_return_what_it_has_made(kernel, problem):
    with counters.counting() as counts, pytest.raises(ValueError, match=f"^tests::op forward: {problem}"):
        launch(nki.jit(kernel), X)
    assert counts.total() == 0


def test_an_argument_that_was_written_may_be_returned():
    def written(x, out):
        nisa.dma_copy(out, x)
        return out

    out = torch.zeros_like(X)
    assert launch(nki.jit(written), X, out) is out
    assert out.equal(X)


def racing(x, flag=None):
    """Right when core 0 runs first."""
    out, scratch = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    if nl.program_id(0) == 0:
        nisa.dma_copy(scratch, x)
    else:
        nisa.dma_copy(out, scratch if "16" in x.dtype or flag else x)
    return out


def test_both_core_orders_are_tried_for_every_dtype_and_option():
    kernel = nki.jit(racing)
    launch(kernel, X)
    for arguments, options in (((X.bfloat16(),), {}), ((X,), {"flag": True})):
        with pytest.raises(NkiError, match="with core 0 first it does not happen: a core_barrier is missing"):
            launch(kernel, *arguments, **options)


def test_warnings_reach_the_user_once():
    def careless(x):
        nisa.core_barrier(x, 0)
        return doubled(x)

    text = r"test_runtime.py:\d+: nisa.core_barrier: cores is 0, so no core waits; a barrier needs \(0, 1\)"
    with runtime.observing() as launches, pytest.warns(NkiWarning, match=text) as seen:
        launch(nki.jit(careless), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with runtime.observing() as again:
            launch(nki.jit(careless), X)
    assert [done.warnings for done in launches + again] == [(str(seen[0].message),)] * 2


def test_a_launch_needs_a_tensor():
    with pytest.raises(ValueError, match=r"^tests::op forward: no argument of the launch is a tensor$"):
        launch(doubled)
