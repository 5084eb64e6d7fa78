"""The published numbers of the release, on the hardware that they were published for."""

import pytest

from trncheck.reports.schema import Expectation


@pytest.mark.trn2
def test_expectation(judge, target, expectation):
    """The published number holds at published size on the target."""
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
