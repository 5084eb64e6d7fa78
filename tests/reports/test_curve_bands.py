"""The bands of a baseline around the curves of a run."""

import pytest

from trncheck.cli import main
from trncheck.reports.baseline import Baseline, write_baseline
from trncheck.reports.baseline_build import build
from trncheck.reports.curve_bands import curve_bands
from trncheck.reports.html import render_html
from trncheck.reports.schema import CheckResult, Curve, Measurement, Outcome, Report
from trncheck.reports.store import RunFolder

ID = "paths.trajectory[native]"


@pytest.fixture
def run(make_report):
    """``run(n, gap)``: the n-th repeat, whose curve is at most ``gap`` from its reference."""

    def run(n: int, gap: float, *, version: str = "a" * 12, name: str = "largest |difference of loss|") -> Report:
        check = CheckResult(
            id=ID,
            subject="paths",
            title="Over 3 steps the loss follows plain Transformers'.",
            outcome=Outcome.PASS,
            level="smoke",
            target="cpu",
            version=version,
            measurements=[
                Measurement(name=name, value=gap, bar=1.0, unit="nat"),
                Measurement(name="steps", value=3.0, bar=3.0, relation=">="),
            ],
        )
        curves = [Curve(name="reference", group="g", model="m", steps=[1, 2, 3], losses=[4.0, 3.0, 2.0])]
        curves[0].reference = True
        # The distance is this one to the last bit, as the check computes it from the same losses.
        own = [4.0, 3.0, 2.0 + gap]
        curves.append(Curve(name="native", group="g", model="m", steps=[1, 2, 3], losses=own, check=ID))
        started = f"2026-03-0{n}T10:15:00+00:00"
        fields = {"run_id": f"run-{n}", "started": started, "kit_commit": "c3931d2", "curves": curves}
        return make_report(results=[check], **fields)

    return run


@pytest.fixture
def baseline(run) -> Baseline:
    return build([run(n, 0.25) for n in (1, 2, 3)], "measured", None)[0]


def test_band_is_as_far_from_the_reference_as_the_distance_may_be(run, baseline):
    (band,) = curve_bands(run(4, 0.5), baseline).values()
    # All runs agreed: mean +- a tenth of the bar.
    assert (band.nearest, band.farthest) == (pytest.approx(0.15), pytest.approx(0.35))
    assert band.steps == [1, 2, 3]
    assert band.low == pytest.approx([3.65, 2.65, 1.65])
    assert band.high == pytest.approx([4.35, 3.35, 2.35])


def test_no_band_without_a_number_that_is_comparable(run, baseline):
    assert list(curve_bands(run(4, 0.5), baseline)) == [("g", "m", "native")]
    assert curve_bands(run(4, 0.5, version="b" * 12), baseline) == {}
    assert curve_bands(run(4, 0.5, name="another"), baseline) == {}
    older = run(4, 0.5)
    older.curves[1].check = ""
    assert curve_bands(older, baseline) == {}
    other = run(4, 0.5)
    other.results[0].measurements[0].value = 0.6
    assert curve_bands(other, baseline) == {}


def test_page_has_the_band_and_says_whose_it_is(run, baseline, tmp_path, capsys):
    folder = RunFolder.create(tmp_path, run(4, 0.5)).path
    file = tmp_path / "baseline.json"
    write_baseline(baseline, file)
    assert main(["report", str(folder)]) == 0
    plain = (folder / "report.html").read_text()
    assert "Shaded" not in plain
    assert plain == render_html(run(4, 0.5))
    assert main(["report", str(folder), "--baseline", str(file)]) == 0
    page = (folder / "report.html").read_text()
    assert "Shaded: the band of the baseline, Neuron 2.33.0 on cpu, level standard, 3 runs" in page
    assert page.count("fill-opacity: 0.18") == 2
    capsys.readouterr()
    assert main(["report", str(folder), "--baseline", str(tmp_path / "absent.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
