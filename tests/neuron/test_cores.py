"""Core lists as a user writes them, and which cores a process may use."""

import pytest

from trncheck.neuron import cores


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("4-7", (4, 5, 6, 7)),
        ("1,3", (1, 3)),
        ("0-63", tuple(range(64))),
        ("0-3,8,10-11", (0, 1, 2, 3, 8, 10, 11)),
        (" 3 , 1 - 2 ", (3, 1, 2)),
        ("0", (0,)),
        ("5-5", (5,)),
    ],
)
def test_lists_and_inclusive_ranges_are_read_in_the_order_written(text, listed):
    assert cores.parse(text) == listed


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "it lists no core"),
        (" ", "it lists no core"),
        ("1,", "'' is neither a core nor a range"),
        ("-1", "'-1' is neither a core nor a range"),
        ("1;2", "'1;2' is neither a core nor a range"),
        ("٣", "'٣' is neither a core nor a range"),
        ("0-99999999", "'0-99999999' is neither a core nor a range"),
        ("7-4", "the range 7-4 runs backwards"),
        ("1,3,1", "core 1 is there twice"),
        ("0-3,2-5", "core 2 is there twice"),
    ],
)
def test_anything_else_is_refused_in_one_line_with_a_right_example(text, wrong):
    with pytest.raises(ValueError, match=r"NEURON_RT_VISIBLE_CORES=0-3,8$") as refused:
        cores.parse(text)
    assert wrong in str(refused.value)
    assert repr(text) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["0-3,8,10-11", "0", "1,3", "0-63"])
def test_what_is_shown_is_what_was_read(text):
    assert cores.show(cores.parse(text)) == text


def test_shown_cores_are_in_order():
    assert cores.show([8, 3, 1, 2, 0]) == "0-3,8"


# --- what a process may use


@pytest.mark.parametrize(
    ("environ", "logical", "usable"),
    [
        ({}, 64, "0-63"),
        ({"NEURON_RT_NUM_CORES": "0"}, 64, "0-63"),
        ({"NEURON_RT_NUM_CORES": "4"}, 64, "0-3"),
        ({"NEURON_RT_VISIBLE_CORES": "4-7"}, 64, "4-7"),
        ({"NEURON_RT_VISIBLE_CORES": "1,3", "NEURON_RT_NUM_CORES": "2"}, 64, "1,3"),
        ({"NEURON_RT_VISIBLE_CORES": "100-127", "NEURON_LOGICAL_NC_CONFIG": "1"}, 128, "100-127"),
    ],
)
def test_a_process_may_use_what_it_inherits_or_all(environ, logical, usable):
    assert cores.show(cores.allowed(environ, logical)) == usable


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"NEURON_RT_VISIBLE_CORES": "60-65"},
            r"^NEURON_RT_VISIBLE_CORES=60-65 names core 64-65, but this machine has 64 logical cores, 0-63 "
            r"\(at NEURON_LOGICAL_NC_CONFIG=2\)$",
        ),
        ({"NEURON_RT_NUM_CORES": "65"}, r"^NEURON_RT_NUM_CORES=65, but this machine has 64 logical cores"),
        ({"NEURON_RT_NUM_CORES": "all"}, r"^NEURON_RT_NUM_CORES='all' is not a number of cores; write"),
        (
            {"NEURON_RT_VISIBLE_CORES": "4-7", "NEURON_RT_NUM_CORES": "2"},
            r"^NEURON_RT_VISIBLE_CORES=4-7 lists 4 cores, but NEURON_RT_NUM_CORES=2; unset one of the two$",
        ),
        (
            {"NEURON_RT_VISIBLE_CORES": "64", "NEURON_LOGICAL_NC_CONFIG": "3"},
            r"^NEURON_LOGICAL_NC_CONFIG='3' is not 1 or 2; unset it for 2, the default on Trn2$",
        ),
    ],
)
def test_contradictions_are_one_line(environ, message):
    with pytest.raises(ValueError, match=message):
        cores.allowed(environ, 64)


# --- a rank of torchrun


@pytest.mark.parametrize(
    ("environ", "core"),
    [
        ({}, None),
        ({"LOCAL_RANK": "0"}, 0),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, 3),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NEURON_RT_VISIBLE_CORES": "4-7"}, 5),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NEURON_RT_VISIBLE_CORES": "1,3"}, 3),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NEURON_RT_NUM_CORES": "4"}, 1),
    ],
)
def test_a_rank_has_the_core_of_its_place_in_the_list(environ, core):
    assert cores.own(environ) == core


def test_more_ranks_than_cores_are_refused_by_every_rank():
    environ = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8", "NEURON_RT_VISIBLE_CORES": "4-7"}
    with pytest.raises(ValueError, match=r"^8 ranks need .* NEURON_RT_VISIBLE_CORES=4-7 allows 4; start torchrun with"):
        cores.own(environ)
