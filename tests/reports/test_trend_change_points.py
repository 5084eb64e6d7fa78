"""The rule for change points: what it finds, where, and what it leaves alone."""

import math
import random

import pytest

from trncheck.reports.change_points import MIN_SEGMENT, change_points


def noisy(*levels: tuple[int, float], seed: int = 0, noise: float = 1.0) -> list[float]:
    """``count`` normal values around each level."""
    source = random.Random(seed)
    return [level + noise * source.gauss(0, 1) for count, level in levels for _ in range(count)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("shift", [8.0, -8.0])
def test_a_clear_shift_is_found_at_its_run(seed, shift):
    (point,) = change_points(noisy((30, 100.0), (20, 100.0 + shift), seed=seed), scale=1.0)
    assert point.index == 30
    assert point.after - point.before == pytest.approx(shift, abs=2.5)
    assert 0.3 < point.noise < 2.0


def test_two_shifts_are_two_points():
    values = noisy((20, 0.0), (20, 10.0), (20, 0.0))
    assert [point.index for point in change_points(values, scale=1.0)] == [20, 40]


def test_it_needs_as_many_values_as_it_says():
    for after in (MIN_SEGMENT - 1, MIN_SEGMENT):
        found = [point.index for point in change_points([1.0] * 9 + [2.0] * after, scale=1.0)]
        assert found == ([9] if after == MIN_SEGMENT else [])


@pytest.mark.parametrize(
    "kind",
    {
        "normal": lambda r: r.gauss(0, 1),
        "heavy tails": lambda r: r.gauss(0, 1) / max(r.random(), 0.02),
        "skewed": lambda r: math.exp(r.gauss(0, 1)),
        "two values": lambda r: float(r.random() < 0.3),
    }.items(),
    ids=lambda kind: kind[0],
)
def test_noise_alone_has_none(kind):
    series = [[kind[1](random.Random(f"{seed} {n}")) for n in range(60)] for seed in range(60)]
    assert sum(bool(change_points(values, scale=1.0)) for values in series) <= 2


def test_one_outlier_is_none_and_hides_none():
    values = noisy((20, 100.0), (20, 110.0))
    values[8] = 1e6
    assert [point.index for point in change_points(values, scale=1.0)] == [20]
    assert change_points([*noisy((20, 100.0)), 1e6, *noisy((20, 100.0), seed=1)], scale=1.0) == []


def test_a_shift_that_is_nothing_beside_the_bar_is_none():
    values = [1.0e-7] * 10 + [2.0e-7] * 10
    assert change_points(values, scale=1.0) == []
    assert [point.index for point in change_points(values, scale=1e-6)] == [10]
    assert [point.index for point in change_points(values)] == [10], "without a bar beside the old median"
    assert change_points([1.0] * 10 + [1.001] * 10) == []


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 100, [0.0] * 5 + [1.0] * 4])
def test_too_little_is_nothing(values):
    assert change_points(values) == []
