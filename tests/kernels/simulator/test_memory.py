"""Memory: what was never written, and how much a core holds at once."""

import numpy as np
import pytest

from trncheck.kernels.simulator.errors import NkiError
from trncheck.kernels.simulator.launch import run
from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    import nki.isa as nisa
    import nki.language as nl

ROWS = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)


def output(shape=(16, 8), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def half_written(x):
    """A tile (16, 8) whose columns from 4 on nobody writes."""
    tile = nl.ndarray((16, 8), nl.float32, buffer=nl.sbuf, name="half")
    nisa.dma_copy(tile[:, :4], x[:, :4])
    return tile


def line_of(kernel, text):
    """``file:line`` of the line of ``kernel`` that holds ``text``."""
    code = kernel.__code__
    with open(code.co_filename) as file:
        lines = file.readlines()
    return f"test_memory.py:{next(i for i in range(code.co_firstlineno, len(lines)) if text in lines[i - 1])}"


def refused(kernel, *arguments, **options) -> str:
    with pytest.raises(NkiError) as error:
        run(kernel, arguments, options)
    return str(error.value)


def test_reading_what_was_never_written_is_a_warning_while_it_stays_harmless():
    def kernel(x):
        tile, out = half_written(x), output()
        scratch = nl.ndarray((16, 8), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(scratch, tile)  # reads
        nisa.dma_copy(scratch[:, 4:], x[:, 4:])
        nisa.dma_copy(out, scratch)
        return out

    out, report = run(kernel, (ROWS,))
    np.testing.assert_array_equal(out, ROWS)
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith(
        f"{line_of(kernel, '# reads')}: nisa.tensor_copy: src[0, 4] was never written (64 of 128 elements): sbuf 'half'"
    )


def test_an_output_made_of_it_is_an_error_at_the_instruction_that_read_it():
    def kernel(x):
        tile, out = half_written(x), output()
        scratch = nl.ndarray((16, 8), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(scratch, tile)  # reads
        nisa.tensor_scalar(scratch, scratch, nl.add, 1.0)
        nisa.dma_copy(out, scratch)
        return out

    error = refused(kernel, ROWS)
    assert error.startswith(f"{line_of(kernel, '# reads')}: kernel: output 0[0, 4] (64 of 128 elements) comes from ")
    assert "nisa.tensor_copy: src[0, 4] was never written" in error


@pytest.mark.parametrize(
    "through",
    [
        lambda x, tile: tile.reshape((16, 2, 4)),
        lambda x, tile: tile.view("int16"),
        lambda x, tile: tile.permute((0, 1)),
    ],
    ids=["reshape", "bytes", "permute"],
)
def test_views_and_scratch_in_hbm_do_not_hide_it(through):
    def kernel(x):
        tile, out = half_written(x), output()
        scratch = nl.ndarray((16, 8), nl.float32, buffer=nl.private_hbm)
        part = through(x, tile)
        target = scratch.view(part.dtype).reshape(part.shape)
        nisa.dma_copy(target, part)  # reads
        nisa.dma_copy(out, scratch)
        return out

    error = refused(kernel, ROWS)
    assert error.startswith(f"{line_of(kernel, '# reads')}: kernel: output 0[0, 4] (64 of 128 elements)")


def test_sums_over_it_are_made_of_it():
    def kernel(x):
        tile, out = half_written(x), output((16, 1))
        total = nl.ndarray((16, 1), nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(total, nl.add, tile, axis=1)
        nisa.dma_copy(out, total)
        return out

    assert "output 0[0, 0] (16 of 16 elements) comes from memory that was never written" in refused(kernel, ROWS)


def column(indices):
    return np.asarray(indices, np.int32).reshape(-1, 1)


def test_gathered_rows_that_were_never_written_are_known_by_row():
    def kernel(x, indices):
        index = nl.ndarray((16, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(index, indices)
        table, out = nl.ndarray((20, 8), nl.float32, buffer=nl.private_hbm), output()
        nisa.dma_copy(table[:16], x)
        nisa.dma_copy(out, table.ap([[8, 16], [1, 8]], vector_offset=index))
        return out

    out, report = run(kernel, (ROWS, column(np.arange(16)[::-1])))
    np.testing.assert_array_equal(out, ROWS[::-1])
    assert report.warnings == []
    error = refused(kernel, ROWS, column([*range(10), 17, *range(5)]))
    assert "output 0[10, 0] (8 of 128 elements) comes from memory that was never written" in error


def test_a_scatter_writes_its_rows_only():
    def kernel(x, indices, skip):
        index, tile, out = nl.ndarray((16, 1), nl.int32), nl.ndarray((16, 8), nl.float32), output((18, 8))
        nisa.dma_copy(index, indices)
        nisa.dma_copy(tile, x)
        mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
        nisa.dma_copy(out.ap([[8, 16], [1, 8]], vector_offset=index), tile, oob_mode=mode)
        nisa.dma_copy(out[16:], x[:2])
        return out

    out, _ = run(kernel, (ROWS, column(np.arange(16)[::-1]), False))
    np.testing.assert_array_equal(out, np.concatenate([ROWS[::-1], ROWS[:2]]))
    error = refused(kernel, ROWS, column([0, 99, *range(2, 16)]), True)
    assert "output 0[1, 0] was never written (8 of 144 elements)" in error


def test_scattered_data_that_was_never_written_is_known_by_row():
    def kernel(x, indices):
        index, tile, out = nl.ndarray((16, 1), nl.int32), nl.ndarray((16, 8), nl.float32), output((16, 8))
        nisa.dma_copy(index, indices)
        nisa.dma_copy(tile[:15], x[:15])
        nisa.dma_copy(out, x)
        nisa.dma_copy(out.ap([[8, 16], [1, 8]], vector_offset=index), tile, oob_mode=nisa.oob_mode.skip)
        return out

    indices = np.arange(16)[::-1].copy()
    indices[15] = 16
    out, report = run(kernel, (ROWS, column(indices)))
    np.testing.assert_array_equal(out, np.concatenate([ROWS[:1], ROWS[14::-1]]))
    assert "src[15, 0] was never written (8 of 128 elements)" in report.warnings[0]
    indices[[3, 15]] = 99, 12
    assert "output 0[12, 0] (8 of 128 elements) comes from memory" in refused(kernel, ROWS, column(indices))


def test_rows_that_a_gather_skips_stay_as_they_were():
    def kernel(x, indices, first):
        index, tile, out = nl.ndarray((16, 1), nl.int32), nl.ndarray((16, 8), nl.float32), output()
        nisa.dma_copy(index, indices)
        if first:
            nisa.memset(tile, 0.0)
        nisa.dma_copy(tile, x.ap([[8, 16], [1, 8]], vector_offset=index), oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(out, tile)  # reads
        return out

    indices = column([*range(15), -1])
    out, _ = run(kernel, (ROWS, indices, True))
    np.testing.assert_array_equal(out, np.where(indices >= 0, ROWS, 0))
    error = refused(kernel, ROWS, indices, False)
    assert error.startswith(f"{line_of(kernel, '# reads')}: kernel: output 0[15, 0] (8 of 128 elements)")


def test_an_index_that_was_never_written_is_an_error_at_once():
    def gather(x):
        index = nl.ndarray((16, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(output(), x.ap([[8, 16], [1, 8]], vector_offset=index))

    def select(x):
        index = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(output((8,)), x.select(0, index))

    for kernel in (gather, select):
        assert "nisa.dma_copy: " in (error := refused(kernel, ROWS))
        assert "comes from memory that was never written: int32" in error


def partly_written(x, rows):
    out = output()
    if rows:
        nisa.dma_copy(out[:rows], x[:rows])
    return out


def test_an_output_element_that_nobody_wrote_is_an_error_or_a_warning():
    error = refused(partly_written, ROWS, 15)
    line = line_of(output, "return nl.ndarray")
    assert error == f"{line}: partly_written: output 0[15, 0] was never written (8 of 128 elements)"

    out, report = run(partly_written, (ROWS, 15), strict=False)
    assert report.warnings == [error]
    np.testing.assert_array_equal(out[:15], ROWS[:15])
    assert np.isnan(out[15]).all()


def test_an_output_that_nobody_wrote_at_all_is_an_error_always():
    with pytest.raises(NkiError, match="128 of 128 elements"):
        run(partly_written, (ROWS, 0), strict=False)


def tiles(x, sizes, alive):
    """Fill a tile of each of ``sizes`` bytes per partition; ``alive`` reads all of them once more at the end."""
    kept = []
    for size in sizes:
        tile = nl.ndarray((16, size // 4), nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, 0.0)
        kept.append(tile)
    for tile in kept if alive else kept[:1]:
        nisa.dma_copy(x[:, :8], tile[:, :8])


def test_the_peak_counts_tensors_from_first_to_last_use():
    _, report = run(tiles, (ROWS.copy(), [4096] * 50, True))
    assert report.sbuf_peak == 50 * 4096
    _, report = run(tiles, (ROWS.copy(), [4096] * 500, False))
    assert report.sbuf_peak == 2 * 4096
    assert report.psum_peak == 0


def test_tensors_that_are_alive_at_once_must_fit():
    line = line_of(tiles, "tile = nl.ndarray")
    sizes = [64 * 1024, 128 * 1024, 64 * 1024]
    run(tiles, (ROWS.copy(), sizes, False))
    assert refused(tiles, ROWS.copy(), sizes, True) == (
        f"{line}: SBUF capacity exceeded on core 0: at least 262144 bytes per partition are alive at once, trn2 has "
        f"229376; largest: [16, 32768] float32 (131072 B) from {line}; [16, 16384] float32 (65536 B) from {line}; "
        f"[16, 16384] float32 (65536 B) from {line}"
    )


def test_psum_must_fit_too():
    def kernel(x, banks):
        kept = [nl.ndarray((16, 512), nl.float32, buffer=nl.psum) for _ in range(banks)]
        for tile in kept * 2:
            nisa.memset(tile, 0.0)

    _, report = run(kernel, (ROWS, 8))
    assert report.psum_peak == 16 * 1024
    assert "PSUM capacity exceeded on core 0: at least 18432 bytes per partition" in refused(kernel, ROWS, 9)


ALLOCATIONS = {
    "sbuf": (((128, 57345), nl.float32), {}, "SBUF capacity exceeded: [128, 57345] float32 takes 229380 bytes per"),
    "psum": (((128, 4097), nl.float32, nl.psum), {}, "PSUM capacity exceeded: [128, 4097] float32 takes 16388 bytes"),
    "address": (((8, 512), nl.float32, nl.psum), {"address": (0, 16384)}, "from byte 16384, trn2 has 16384"),
    "bank": (((8, 8), nl.float32, nl.psum), {"address": (0, 100)}, "must be a multiple of 2048 bytes"),
    "partitions": (((129, 8), nl.float32), {}, "[129, 8] has 129 partitions; at most 128"),
    "vector": (((128,), nl.float32), {}, "[128] on chip needs a partition and a free dimension"),
    "empty": (((128, 0), nl.float32), {}, "shape [128, 0] must have positive sizes"),
    "name": (((128, 8), nl.float32, "sbuf"), {}, "buffer 'sbuf' is not a buffer; use nl.sbuf"),
    "dtype": (((128, 8), "float64"), {}, "dtype 'float64' is not one of float32"),
}


@pytest.mark.parametrize("case", ALLOCATIONS)
def test_tensors_that_cannot_be_are_refused(case):
    arguments, options, problem = ALLOCATIONS[case]

    def kernel(x):
        nl.ndarray(*arguments, **options)

    error = refused(kernel, ROWS)
    assert problem in error
    assert error.startswith("test_memory.py:")


def test_the_largest_tensors_are_allowed():
    def kernel(x):
        nl.ndarray((128, 57344), nl.float32, buffer=nl.sbuf)
        nl.ndarray((128, 4096), nl.float32, buffer=nl.psum)
        nl.ndarray((128, 512), nl.float32, buffer=nl.psum, address=(0, 7 * 2048))

    run(kernel, (ROWS,))


def helper(columns, partitions=16):
    tile = nl.ndarray((partitions, columns), nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, 0.0)
    return tile


def test_what_a_helper_function_allocates_names_its_caller_too():
    here, caller = line_of(helper, "nl.ndarray"), "helper(30000)"

    def kernel(x):
        kept = [helper(30000) for _ in range(2)]
        nisa.memset(kept[0], 0.0)

    line = line_of(kernel, caller)
    error = refused(kernel, ROWS)
    assert error.startswith(f"{here}: SBUF capacity exceeded on core 0: at least 240000 bytes")
    assert error.count(f"[16, 30000] float32 (120000 B) from {here}, called from {line}") == 2

    def too_large(x):
        helper(8, 129)

    def too_wide(x):
        helper(60000)

    line = line_of(too_large, "helper(8, 129)")
    assert (
        refused(too_large, ROWS) == f"{here}: nl.ndarray: [129, 8] has 129 partitions; at most 128, called from {line}"
    )
    assert refused(too_wide, ROWS).endswith(f"has 229376, called from {line_of(too_wide, 'helper(60000)')}")


@pytest.mark.parametrize("loop", ["for", "while"])
def test_a_tile_of_a_loop_s_body_ends_with_the_loop(loop):
    def kernel(x, after):
        out, before, inside = output(), nl.ndarray((16, 8), nl.float32, buffer=nl.sbuf), []

        def body(i):
            inside.append(nl.ndarray((16, 8), nl.float32, buffer=nl.sbuf))
            nisa.dma_copy(inside[-1], x)
            nisa.tensor_copy(before, inside[-1])

        if loop == "for":
            nl.fori_loop(0, 2, body)
        else:
            never, once = nisa.register_alloc(0), nisa.register_alloc(1)
            nl.while_loop(once, lambda register: body(register) or never)
        nisa.dma_copy(out, inside[0] if after else before)  # after
        return out

    np.testing.assert_array_equal(run(kernel, (ROWS, False))[0], ROWS)
    error = refused(kernel, ROWS, True)
    assert error.startswith(f"{line_of(kernel, '# after')}: nisa.dma_copy: sbuf [16, 8] float32 allocated at ")
    assert error.endswith(" belongs to the body of a loop that has ended; allocate it before the loop")
