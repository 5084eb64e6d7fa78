"""Is the software the one that the release consists of?"""

import pytest

from trncheck.reports.schema import PinStatus


def test_pin(judge, pin_rows, pin):
    """The installed version is the one that the release pins."""
    row = next(row for row in pin_rows[0] if row.name == pin)
    if row.status is PinStatus.NOT_APPLICABLE:
        pytest.skip(row.note)
    judge.note("installed", row.found or "nothing")
    judge.equal("status", row.status.value, PinStatus.EQUAL.value)
    if judge.failures:
        judge.failures[:] = [f"{row.name}: {row.found or 'nothing'} is installed, {row.expected} expected; {row.note}"]


def test_stack(judge, pin_rows):
    """The installed packages form one of the release's supported stacks, as far as they apply to the target."""
    _, stack = pin_rows
    judge.note("stack", stack)
    judge.equal("a stack is met", stack.startswith("stack "), True)
    if judge.failures:
        judge.failures[:] = [stack]


def test_impostors(judge, pin_rows):
    """No package that only bears the name of a Neuron package is installed: PyPI placeholder or legacy XLA line."""
    rows, _ = pin_rows
    judge.equal("unpinned packages under a Neuron name", sum(row.expected == "not pinned" for row in rows), 0)
    impostors = [row.note for row in rows if row.status is PinStatus.DIFFERENT and row.note and _is_impostor(row.note)]
    judge.failures[:] = impostors


def _is_impostor(note: str) -> bool:
    return "placeholder" in note or "legacy PyTorch/XLA" in note
