"""Views of tensors: what indexing and the view methods select, and what they refuse."""

import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl


def selected(view, shape=(4, 6, 8), on_chip=False, dtype=np.int32):
    """The elements that ``view`` selects of a tensor holding 0, 1, 2 and so on."""

    def kernel(x):
        tensor = x
        if on_chip:
            tensor = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tensor, x)
        part = view(tensor)
        out = nl.ndarray(part.shape, part.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part)
        return out

    return run(kernel, (counting(shape, dtype),))[0]


def counting(shape=(4, 6, 8), dtype=np.int32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def here(error) -> bool:
    """Whether the error names a line of this file."""
    return str(error.value).startswith("test_views.py:")


@pytest.mark.parametrize("on_chip", [False, True], ids=["hbm", "sbuf"])
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[1:3],
        lambda t: t[..., 2:5],
        lambda t: t[1:, ..., :3],
        lambda t: t[:, 1:6:2, ::3],
        lambda t: t[0:4, slice(2, 4)],
        lambda t: t[:, -3:-1],
        lambda t: t[:, 2],
        lambda t: t[:, :, -1],
        lambda t: t[1:4][:, 2:][..., 1:2],
        lambda t: t[:, np.int64(3)],
    ],
    ids=range(10),
)
def test_indexing_selects_what_numpy_selects(view, on_chip):
    np.testing.assert_array_equal(selected(view, on_chip=on_chip), view(counting()))


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (lambda t: t[1], (1, 6, 8)),  # the partition dimension stays
        (lambda t: t[-1], (1, 6, 8)),
        (lambda t: t[:, 2], (4, 8)),
        (lambda t: t[:, 0, 3], (4, 1)),  # two dimensions stay at least
        (lambda t: t[0, 0, 3], (1, 1)),
        (lambda t: t[1:3, :, 5], (2, 6)),
    ],
    ids=["first", "last", "free", "both-free", "all", "mixed"],
)
def test_integers_on_chip_keep_partition_and_two_dimensions(view, shape):
    taken = selected(view, on_chip=True)
    assert taken.shape == shape
    np.testing.assert_array_equal(taken.reshape(-1), np.ravel(view(counting())))


@pytest.mark.parametrize(
    ("view", "shape"),
    [(lambda t: t[1], (6, 8)), (lambda t: t[1, 2], (8,)), (lambda t: t[1, 2, 3], (1,))],
    ids=["one", "two", "all"],
)
def test_integers_in_hbm_drop_dimensions_but_one(view, shape):
    taken = selected(view)
    assert taken.shape == shape
    np.testing.assert_array_equal(taken.reshape(-1), np.ravel(view(counting())))


def test_ds_is_start_and_size():
    np.testing.assert_array_equal(selected(lambda t: t[nl.ds(1, 2), :, nl.ds(3, 4)]), counting()[1:3, :, 3:7])


@pytest.mark.parametrize("on_chip", [False, True], ids=["hbm", "sbuf"])
@pytest.mark.parametrize(
    ("view", "numpy"),
    [
        (lambda t: t.slice(1, 1, 5, 2), lambda a: a[:, 1:5:2]),
        (lambda t: t.slice(dim=2, start=0, end=3), lambda a: a[:, :, :3]),
        (lambda t: t.select(1, 3), lambda a: a[:, 3]),
        (lambda t: t.permute((0, 2, 1)), lambda a: a.transpose(0, 2, 1)),
        (lambda t: t[:, 0:1].broadcast(1, 5), lambda a: np.broadcast_to(a[:, :1], (4, 5, 8))),
        (lambda t: t.expand_dim(1), lambda a: a[:, None]),
        (lambda t: t.expand_dim(3), lambda a: a[..., None]),
        (lambda t: t[:, 2:3].squeeze_dim(1), lambda a: a[:, 2]),
        (lambda t: t.reshape((4, 48)), lambda a: a.reshape(4, 48)),
        (lambda t: t.reshape([4, 2, 3, 8]), lambda a: a.reshape(4, 2, 3, 8)),
        (lambda t: t[..., ::2].reshape((4, 2, 3, 4)), lambda a: a[..., ::2].reshape(4, 2, 3, 4)),
        (lambda t: t.permute((0, 2, 1)).reshape((4, 8, 2, 3)), lambda a: a.transpose(0, 2, 1).reshape(4, 8, 2, 3)),
        (lambda t: t.reshape_dim(2, (2, -1)), lambda a: a.reshape(4, 6, 2, 4)),
        (lambda t: t.flatten_dims(1, 2), lambda a: a.reshape(4, 48)),
        (lambda t: t.view("int16"), lambda a: a.view(np.int16)),
        (lambda t: t.reinterpret_cast("int8")[..., 4:8], lambda a: a.view(np.int8)[..., 4:8]),
        (lambda t: t[:, 1:].view("uint16"), lambda a: a[:, 1:].view(np.uint16)),
    ],
    ids=range(17),
)
def test_view_methods_select_what_numpy_selects(view, numpy, on_chip):
    np.testing.assert_array_equal(selected(view, on_chip=on_chip), numpy(counting()))


@pytest.mark.parametrize(
    ("view", "numpy"),
    [
        (lambda t: t.rearrange(("a", "b", "c"), ("a", "c", "b")), lambda a: a.transpose(0, 2, 1)),
        (lambda t: t.rearrange(("a", "b", "c"), ("a", ("b", "c"))), lambda a: a.reshape(4, 48)),
        (
            lambda t: t.rearrange(("a", ("b", "c"), "d"), ("a", "c", "b", "d"), {"b": 3}),
            lambda a: a.reshape(4, 3, 2, 8).transpose(0, 2, 1, 3),
        ),
    ],
    ids=["permute", "merge", "split"],
)
def test_rearrange_names_dimensions(view, numpy):
    np.testing.assert_array_equal(selected(view), numpy(counting()))


def test_attributes_are_those_of_the_view():
    def kernel(x):
        tile = nl.ndarray((128, 4, 8), dtype=nl.bfloat16, buffer=nl.sbuf, name="tile")
        part = tile[32:64, 1:3, ::2]
        assert (part.shape, part.ndim, part.size, part.dtype) == ((32, 2, 4), 3, 256, "bfloat16")
        assert (part.strides, part.offset, part.name, part.buffer) == ((32, 8, 2), 32 * 32 + 8, "tile", nl.sbuf)
        assert part.get_pattern() == [[32, 32], [8, 2], [2, 4]]
        assert tile.is_contiguous
        assert tile[64:].is_contiguous
        assert not part.is_contiguous
        assert not part.is_indirect
        assert not x[:, 1:].is_contiguous
        assert bool(part)
        assert (part == None) is False  # noqa: E711 (what kernels write)
        assert (part != None) is True  # noqa: E711
        assert len({tile, part}) == 2

    run(kernel, (counting((4, 4)),))


REFUSED = {
    "beyond": (lambda t: t[:, 4:9], " of dimension 1 is outside its size 6"),
    "empty": (lambda t: t[:, 3:3], " of dimension 1 is outside its size 6, or empty"),
    "backwards": (lambda t: t[:, ::-1], " of dimension 1 is outside its size 6"),
    "integer": (lambda t: t[:, 6], "index 6 is outside dimension 1 of size 6"),
    "negative": (lambda t: t[:, -7], "index -7 is outside dimension 1 of size 6"),
    "too-many": (lambda t: t[0, 0, 0, 0], "4 indices for 3 dimensions"),
    "float": (lambda t: t[1.0], "index 1.0 of dimension 0 is neither an int nor a slice"),
    "register": (lambda t: t[nisa.register_alloc(1)], "a register has no value while the kernel is compiled"),
    "slice-method": (lambda t: t.slice(1, 2, 7), "outside its size 6"),
    "select": (lambda t: t.select(2, 8), "index 8 is outside dimension 2 of size 8"),
    "permute": (lambda t: t.permute((0, 1, 1)), "does not name each dimension"),
    "broadcast": (lambda t: t.broadcast(1, 3), "broadcast needs size 1 in dimension 1"),
    "squeeze": (lambda t: t.squeeze_dim(1), "needs size 1"),
    "elements": (lambda t: t.reshape((4, 47)), "changes the number of elements"),
    "no-view": (lambda t: t.permute((0, 2, 1)).reshape((4, 48)), "is no view"),
    "bytes": (lambda t: t[..., ::2].view("int8"), "the last dimension must be contiguous"),
    "dimension": (lambda t: t.select(3, 0), "dimension 3 of [4, 6, 8]"),
    "six": (lambda t: t.reshape((4, 2, 3, 2, 2, 2)), "a view of 6 dimensions; at most 5"),
    "indirect": (lambda t: t.indirect(t, 1), "from trn3 on"),
}


@pytest.mark.parametrize("on_chip", [False, True], ids=["hbm", "sbuf"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_view_can_be_is_refused_with_the_line(case, on_chip):
    view, problem = REFUSED[case]
    with pytest.raises(NkiError) as error:
        selected(view, on_chip=on_chip)
    assert problem in str(error.value)
    assert here(error)


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (lambda t: t.permute((1, 0, 2)), "the partition dimension; on chip it must stay first"),
        (lambda t: t[0:1].broadcast(0, 4), "broadcast over partitions"),
        (lambda t: t.expand_dim(0), "in front of the partition dimension"),
        (lambda t: t[0:1].squeeze_dim(0), "not the partition dimension"),
        (lambda t: t.reshape((2, 96)), "changes the partition dimension"),
        (lambda t: t[::2], "its step is always 1"),
        (lambda t: t.vector_select(0, t), "of an HBM tensor"),
    ],
    ids=["permute", "broadcast", "expand", "squeeze", "reshape", "step", "vector"],
)
def test_on_chip_the_partition_dimension_stays(view, problem):
    with pytest.raises(NkiError) as error:
        selected(view, on_chip=True)
    assert problem in str(error.value)
    assert here(error)


def test_an_error_names_the_tensor_and_where_it_was_made():
    def kernel(x):
        tile = nl.ndarray((64, 8), dtype=nl.float32, buffer=nl.sbuf, name="weights")
        tile[:, 4:9]

    with pytest.raises(NkiError, match=r"outside its size 8.*'weights' \[64, 8\] float32 allocated at test_views.py:"):
        run(kernel, (counting((4, 4)),))


@pytest.mark.parametrize(
    ("pattern", "options", "index"),
    [
        ([[8, 3], [1, 4]], {}, [[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]]),
        ([[1, 2], [2, 3]], {"offset": 5}, [[5, 7, 9], [6, 8, 10]]),
        ([[0, 2], [1, 3]], {}, [[0, 1, 2], [0, 1, 2]]),
        ([[-1, 4]], {"offset": 3}, [3, 2, 1, 0]),
        ([[48, 2], [1, 1], [8, 2], [2, 2]], {}, [[[[0, 2], [8, 10]]], [[[48, 50], [56, 58]]]]),
    ],
    ids=["rows", "columns", "repeat", "backwards", "four"],
)
def test_ap_in_hbm_steps_over_the_storage(pattern, options, index):
    np.testing.assert_array_equal(selected(lambda t: t.ap(pattern, **options)), index)


def test_ap_ignores_shape_and_strides_of_the_view():
    taken = selected(lambda t: t.permute((2, 1, 0)).ap([[48, 4], [1, 2]]))
    np.testing.assert_array_equal(taken, counting().reshape(4, 48)[:, :2])


def test_ap_on_chip_steps_over_partitions_first():
    taken = selected(lambda t: t.ap([[48, 2], [8, 6], [2, 3]], offset=48 + 1), on_chip=True)
    np.testing.assert_array_equal(taken, counting()[1:3, :, 1:7:2])


def test_ap_reinterprets_in_elements_of_the_new_dtype():
    taken = selected(lambda t: t.ap([[96, 4], [2, 3]], offset=1, dtype="int16"))
    np.testing.assert_array_equal(taken, counting().view(np.int16).reshape(4, 96)[:, 1:7:2])


@pytest.mark.parametrize(
    ("view", "on_chip", "problem"),
    [
        (lambda t: t.ap([[48, 4], [1, 49]]), False, "reaches elements 0 to 192 of"),
        (lambda t: t.ap([[-1, 4]]), False, "reaches elements -3 to 0"),
        (lambda t: t[1:].ap([[48, 2]], offset=0), False, "call it on the whole tensor"),
        (lambda t: t.ap([[1, 4], [48, 2]]), True, "first step of a pattern on chip is the 48 elements of a partition"),
        (lambda t: t.ap([[48, 4], [1, 2]], offset=48), True, "partitions 1 to 4"),
        (lambda t: t.ap([[48, 3], [2, 24]], offset=2), True, "reaches elements 2 to 48 of a partition that has 48"),
        (lambda t: t.ap([[48, 0]]), False, "positive count"),
        (lambda t: t.ap([[48, 1]] * 6), False, "1 to 5 pairs"),
        (lambda t: t.ap([[48, 1]], scalar_offset=2), False, "scalar_offset must be an SBUF tensor of one element"),
        (lambda t: t.ap([[48, 4]], vector_offset=t), False, "vector_offset must be an SBUF tensor (P, 1)"),
        (lambda t: t.ap([[48, 4]], scalar_offset=t, vector_offset=t), False, "exclude each other"),
        (lambda t: t.ap([[48, 4]], vector_offset=t), True, "vector_offset addresses HBM tensors only"),
    ],
    ids=["beyond", "below", "offset", "step", "partitions", "free", "count", "six", "int", "buffer", "both", "on-chip"],
)
def test_patterns_that_no_storage_has_are_refused(view, on_chip, problem):
    with pytest.raises(NkiError) as error:
        selected(view, on_chip=on_chip)
    assert problem in str(error.value)
    assert here(error)


@pytest.mark.parametrize("source", ["tensor", "register", "scalar"])
@pytest.mark.parametrize(
    ("view", "numpy"),
    [
        (lambda t, i: t.ap([[48, 1], [1, 48]], scalar_offset=i), lambda a: a[2].reshape(1, 48)),
        (lambda t, i: t.ap([[48, 4], [1, 8]], scalar_offset=i, indirect_dim=1), lambda a: a[:, 2]),
        (lambda t, i: t.ap([[48, 4], [8, 6]], offset=1, scalar_offset=i, indirect_dim=2), lambda a: a[:, :, 3]),
        (lambda t, i: t.select(1, i), lambda a: a[:, 2]),
        (lambda t, i: t.select(0, i)[1:3], lambda a: a[2, 1:3]),
    ],
    ids=["dim-0", "dim-1", "dim-2", "select", "select-slice"],
)
def test_scalar_offsets_are_read_when_the_instruction_runs(view, numpy, source):
    def kernel(x, two):
        index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        register = nisa.register_alloc(0)
        if source == "scalar":
            nisa.dma_copy(index, two)
            part = view(x, nisa.scalar_load(index))
        else:
            part = view(x, index if source == "tensor" else register)
            nisa.dma_copy(index, two)
            nisa.register_load(register, two)
        out = nl.ndarray(part.shape, part.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part)
        return out

    out, _ = run(kernel, (counting(), np.array([[2]], np.int32)))
    np.testing.assert_array_equal(out, numpy(counting()))


@pytest.mark.parametrize("index", [-1, 4, 2**31 - 1])
def test_scalar_offset_out_of_bounds_is_an_error_where_it_is_used(index):
    def kernel(x, at):
        part = x.select(0, nisa.register_alloc(at))
        out = nl.ndarray(part.shape, part.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part)
        return out

    with pytest.raises(NkiError, match=rf"scalar offset {index} is outside the 4 entries of hbm 'x'") as error:
        run(kernel, (counting(), index))
    assert here(error)


def test_a_scalar_offset_on_chip_stays_within_its_partition():
    def view(tile, at):
        return tile.ap([[48, 3], [1, 10]], scalar_offset=nisa.register_alloc(at), indirect_dim=1)

    np.testing.assert_array_equal(selected(lambda t: view(t, 4), on_chip=True), counting().reshape(4, 48)[:3, 32:42])
    with pytest.raises(NkiError, match="scalar offset 5 reaches element 49, of 48, of sbuf"):
        selected(lambda t: view(t, 5), on_chip=True)
