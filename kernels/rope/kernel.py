"""Rotary position embedding in Hugging Face layout, and its gradient: an NKI kernel.

The contract is nkilib's ``rope_hf`` (Neuron 2.28 and later). Positions lie on partitions, all heads of one position
side by side; everything is computed in fp32 and rounded once.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from trncheck.kernels import grid

MAX_FREE = 4096
"""Elements per partition of one tile, so that the five tiles of a step fit SBUF several times over."""


@nki.jit
def rope_hf(q, k, q_out, k_out, cos=None, sin=None, rope_cache=None, backward=False):
    """Rotate q (B, Hq, S, D) and k (B, Hk, S, D) into ``q_out`` and ``k_out``, which are written and returned.

    The tables are ``cos`` and ``sin``, each (S, D) or (B, S, D), or ``rope_cache``, (S, 2D) or (B, S, 2D) holding cos
    then sin; longer tables are read from their start. ``backward`` gives the gradient of the inputs from the gradient
    of the outputs. S must be a multiple of 128 times the cores, which share the sequence.
    """
    cores, core = grid.cores()
    _check(q, k, q_out, k_out, cos, sin, rope_cache, cores)
    batch, _, length, dim = q.shape
    positions = nl.tile_size.pmax
    tiles_per_core = length // positions // cores
    for b in range(batch):
        for tile in range(core * tiles_per_core, (core + 1) * tiles_per_core):
            start = tile * positions
            if rope_cache != None:
                cos_PD = _load_table(rope_cache, b, start, 0, dim)
                sin_PD = _load_table(rope_cache, b, start, dim, dim)
            else:
                cos_PD = _load_table(cos, b, start, 0, dim)
                sin_PD = _load_table(sin, b, start, 0, dim)
            for x, out in ((q, q_out), (k, k_out)):
                heads = x.shape[1]
                group = max(1, MAX_FREE // dim)
                for first in range(0, heads, group):
                    _rotate(x, out, cos_PD, sin_PD, b, first, min(group, heads - first), start, backward)
    return q_out, k_out


def _rotate(x, out, cos_PD, sin_PD, b, first, heads, start, backward):
    """Rotate ``heads`` heads of 128 positions.

    Forward: y1 = x1 cos1 - x2 sin1, y2 = x2 cos2 + x1 sin2. Transposed: d1 = g1 cos1 + g2 sin2, d2 = g2 cos2 - g1 sin1.
    """
    positions, dim = cos_PD.shape
    half = dim // 2
    x_PHD = nl.ndarray((positions, heads, dim), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(x_PHD, _positions_first(x, b, first, heads, start))
    cos_PHD = cos_PD.expand_dim(1).broadcast(1, heads)
    sin_PHD = sin_PD.expand_dim(1).broadcast(1, heads)
    y_PHD = nl.ndarray((positions, heads, dim), dtype=nl.float32, buffer=nl.sbuf)
    turned_PHD = nl.ndarray((positions, heads, dim), dtype=nl.float32, buffer=nl.sbuf)
    low, high = slice(0, half), slice(half, dim)
    nisa.tensor_tensor(y_PHD, x_PHD, cos_PHD, op=nl.multiply)
    sin_low, sin_high = (high, low) if backward else (low, high)
    nisa.tensor_tensor(turned_PHD[:, :, low], x_PHD[:, :, high], sin_PHD[:, :, sin_low], op=nl.multiply)
    nisa.tensor_tensor(turned_PHD[:, :, high], x_PHD[:, :, low], sin_PHD[:, :, sin_high], op=nl.multiply)
    add_low, add_high = (nl.add, nl.subtract) if backward else (nl.subtract, nl.add)
    result_PHD = nl.ndarray((positions, heads, dim), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(result_PHD[:, :, low], y_PHD[:, :, low], turned_PHD[:, :, low], op=add_low)
    nisa.tensor_tensor(result_PHD[:, :, high], y_PHD[:, :, high], turned_PHD[:, :, high], op=add_high)
    nisa.dma_copy(_positions_first(out, b, first, heads, start), result_PHD)


def _positions_first(x, b, first, heads, start):
    """128 positions of some heads of x (B, H, S, D) as (128, heads, D)."""
    _, all_heads, length, dim = x.shape
    return x.ap(
        pattern=[[dim, nl.tile_size.pmax], [length * dim, heads], [1, dim]],
        offset=((b * all_heads + first) * length + start) * dim,
    )


def _load_table(table, b, start, column, dim):
    """128 rows and ``dim`` columns of a table (S, C) or (B, S, C), in fp32."""
    length, columns = table.shape[-2], table.shape[-1]
    row = start + (b * length if len(table.shape) == 3 else 0)
    tile_PD = nl.ndarray((nl.tile_size.pmax, dim), dtype=nl.float32, buffer=nl.sbuf)
    pattern = [[columns, nl.tile_size.pmax], [1, dim]]
    nisa.dma_copy(tile_PD, table.ap(pattern=pattern, offset=row * columns + column))
    return tile_PD


def _check(q, k, q_out, k_out, cos, sin, rope_cache, cores):
    assert len(q.shape) == 4 and len(k.shape) == 4, f"q {q.shape} and k {k.shape} must be (B, H, S, D)"
    assert q.shape[0] == k.shape[0] and q.shape[2:] == k.shape[2:], f"q {q.shape} and k {k.shape} differ beyond heads"
    assert q_out.shape == q.shape and k_out.shape == k.shape, "outputs must have the shapes of q and k"
    dim = q.shape[3]
    assert dim % 2 == 0, f"head dimension {dim} is odd"
    packed = rope_cache != None
    assert packed == (cos == None and sin == None), "give cos and sin, or rope_cache"
    tables = [(rope_cache, 2 * dim)] if packed else [(cos, dim), (sin, dim)]
    for table, columns in tables:
        shape = table.shape
        assert shape[-1] == columns, f"a table {shape} must have {columns} columns for head dimension {dim}"
        assert shape[-2] >= q.shape[2], f"a table {shape} is shorter than the sequence of {q.shape[2]}"
        assert len(shape) == 2 or (len(shape) == 3 and shape[0] == q.shape[0]), f"a table {shape} for q {q.shape}"
    multiple = nl.tile_size.pmax * cores
    assert q.shape[2] % multiple == 0, f"sequence length {q.shape[2]} must be a multiple of {multiple} = 128 x {cores}"
