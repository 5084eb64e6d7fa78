"""Counts of launches, whatever thread they come from."""

import threading

import pytest
import torch

from trncheck.kernels import counters


def test_counts_of_threads_add_up():
    def launch():
        for _ in range(500):
            counters.bump("tests::threads", "backward", torch.bfloat16, "simulator")

    threads = [threading.Thread(target=launch) for _ in range(4)]
    with counters.counting() as outer, counters.counting() as inner:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    key = counters.Key("tests::threads", "backward", "bfloat16", "simulator")
    assert outer == inner == {key: 2000}
    assert counters.counts()[key] == 2000
    counters.bump(*key)
    assert inner[key] == 2000


def test_nested_counts_end_one_by_one():
    with counters.counting() as outer:
        with counters.counting() as inner:
            counters.bump("tests::nested", "forward", "float32", "simulator")
        counters.bump("tests::nested", "forward", "float32", "simulator")
    assert (inner.total(), outer.total()) == (1, 2)


def test_reset_leaves_a_count_in_progress(monkeypatch):
    monkeypatch.setattr(counters, "_COUNTS", counters._COUNTS.copy())
    with counters.counting() as launches:
        counters.bump("tests::reset", "forward", "float32", "simulator")
        counters.reset()
    assert counters.counts() == {}
    assert launches.total() == 1


@pytest.mark.parametrize("key", [("tests::op", "sideways", "float32", "neuron"), ("tests::op", "forward", "x", "gpu")])
def test_unknown_direction_or_backend_is_refused(key):
    with pytest.raises(ValueError, match="use one of"):
        counters.bump(*key)
