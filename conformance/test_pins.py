"""Is the software the one that the release consists of?"""

import pytest

from trncheck.reports.schema import PinStatus


def test_pin(judge, pin_rows, pin):
    """The installed version is the one that the release pins.

    Why: The parts of a Neuron release work in the versions that were released together. A loose dependency brings a
    newer part, and then flags are unknown or executables are refused
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/1012); published NKI samples stop working with another nki
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/1327).

    Red when: what is installed is below none of the accepted version prefixes, is missing, or only bears the name.

    Reading a failure: The message says what is installed, what the release pins, and what the manifest knows about it.
    Install the pinned version, or judge the release that these versions belong to (`--release`). Every number of the
    same report belongs to the software that is installed, not to the release.
    """
    row = next(row for row in pin_rows[0] if row.name == pin)
    if row.status is PinStatus.NOT_APPLICABLE:
        pytest.skip(row.note)
    judge.note("installed", row.found or "nothing")
    judge.equal("status", row.status.value, PinStatus.EQUAL.value)
    if judge.failures:
        judge.failures[:] = [f"{row.name}: {row.found or 'nothing'} is installed, {row.expected} expected; {row.note}"]


def test_stack(judge, pin_rows):
    """The installed packages form one of the release's supported stacks, as far as they apply to the target.

    Why: torch and torch-neuronx are built for each other, and a release may support several such pairs. Versions of two
    pairs can each be pinned somewhere and still not go together, which shows as undefined symbols or not at all
    (https://github.com/aws-neuron/aws-neuron-sdk/issues/1012).

    Red when: no stack of the manifest has all of its pins met.

    Reading a failure: The message names the package that no stack accepts, or what each stack lacks. Install one stack
    whole; its name then stands in the evidence.
    """
    _, stack = pin_rows
    judge.note("stack", stack)
    judge.equal("a stack is met", stack.startswith("stack "), True)
    if judge.failures:
        judge.failures[:] = [stack]


def test_impostors(judge, pin_rows):
    """No package that only bears the name of a Neuron package is installed: PyPI placeholder or legacy XLA line.

    Why: The Neuron names on PyPI are empty placeholders, and torch-neuronx names two products, the native line and the
    older PyTorch/XLA line. An installation from the wrong index gives no error.

    Red when: a package under a Neuron name is a placeholder, or the XLA product in place of the native one.

    Reading a failure: The message says which package it is and what it is in truth. Remove it and install from the
    Neuron package index.
    """
    rows, _ = pin_rows
    judge.equal("unpinned packages under a Neuron name", sum(row.expected == "not pinned" for row in rows), 0)
    impostors = [row.note for row in rows if row.status is PinStatus.DIFFERENT and row.note and _is_impostor(row.note)]
    judge.failures[:] = impostors


def _is_impostor(note: str) -> bool:
    return "placeholder" in note or "legacy PyTorch/XLA" in note
