"""The published numbers of the release, on the hardware that they were published for."""

import pytest

from trncheck.reports.schema import Expectation


@pytest.mark.trn2
def test_expectation(judge, target, expectation):
    """The published number holds at published size on the target.

    Why: The numbers published with a release are what its users will look for. They count on the hardware and at the
    size that they were published for, each with its source; where a number is in doubt, the manifest says why.

    Red when: the measurement on the target lies outside of the tolerance that the manifest gives.

    Reading a failure: `not-run` is the only outcome so far: it says which hardware and weights are needed. The
    published number stands in the report, with its source and its doubt. Nothing is concluded from a check that did not
    run.
    """
    on = expectation.measured_on
    judge.expectations.append(
        Expectation(
            name=expectation.title,
            published=expectation.published,
            unit=expectation.unit,
            source=f"{expectation.provenance.source}; {on.config}, {on.target}, {on.cores} cores",
            note=expectation.doubt,
        )
    )
    if target != on.target:
        pytest.skip(f"needs a {on.target} with {on.cores} NeuronCores and the weights of {on.config.split(',')[0]}")
    pytest.skip("this version of the kit has no launcher for runs at published size")
