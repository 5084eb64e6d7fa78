"""Loss plots: deterministic, readable in light and dark, and safe with odd curves."""

import math
import os
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET

import pytest

from trncheck.reports.curve_bands import Band
from trncheck.reports.plots import curve_styles, loss_plot
from trncheck.reports.schema import Curve


def curve(losses: list[float], steps: list[int] | None = None, **fields: object) -> Curve:
    names = {"name": "n", "group": "g", "model": "m"} | fields
    return Curve(**names, steps=steps or list(range(1, len(losses) + 1)), losses=losses)


def test_deterministic_and_without_a_date(report):
    first = loss_plot(report.curves[:4], "title")
    assert loss_plot(report.curves[:4], "title") == first
    assert "metadata" not in first
    assert not re.search(r"\b20\d\d-\d\d", first)


def test_is_a_labelled_image_in_the_colour_of_the_page(report):
    svg = loss_plot(report.curves[:4], 'A "plot" <of> losses & more')
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'A "plot" <of> losses & more'
    assert "currentColor" in svg
    assert "#000000" not in svg
    assert "<style" not in svg


def test_coinciding_curves_stay_apart():
    curves = [curve([3.0, 2.0], reference=True), *(curve([3.0, 2.0]) for _ in range(3))]
    styles = curve_styles(curves)
    assert len({style.colour for style in styles}) == 4
    widths = [style.width for style in styles]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 4
    drawn = [float(w) for w in re.findall(r"stroke-width: ([\d.]+)", loss_plot(curves, "t")) if float(w) > 1]
    assert drawn[: len(widths)] == widths
    assert drawn[len(widths) :] == [1.5] * 3, "the distances, each zero, on the floor of their axis"


@pytest.mark.parametrize(
    "curves",
    [
        [curve([math.nan, 2.0, math.nan]), curve([math.inf, -math.inf, math.nan], reference=True)],
        [curve([3.0])],
        [curve([1.0, 1.0]), curve([1.0, 1.0], reference=True)],
        [curve([1.0], steps=[5]), curve([2.0], steps=[9], reference=True)],
        [curve([1e30, 1e-30], steps=[2, 1]), curve([1.0, 2.0, 3.0], reference=True)],
        [curve([2.0, 1.0]) for _ in range(9)],
        [curve([])],
    ],
)
def test_odd_curves_draw_without_a_warning(curves):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ET.fromstring(loss_plot(curves, "odd $x$ \u4e2d"))


def test_prints_nothing_and_leaves_pyplot_alone(tmp_path):
    (tmp_path / "file").touch()
    code = (
        "import sys; from trncheck.reports.plots import loss_plot; from trncheck.reports.schema import Curve\n"
        "loss_plot([Curve(name='a', group='g', model='m', steps=[1, 2], losses=[2.0, 1.0])], 't')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    # A cache folder that cannot be made, as in a container with a read-only home.
    env = os.environ | {"MPLCONFIGDIR": str(tmp_path / "file" / "none")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def axis_labels(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_distances_below_what_float32_can_tell_lie_on_a_labelled_floor():
    losses = [4.0, 3.0, 2.0]
    curves = [curve(losses, reference=True), curve(losses), curve([4.0, 3.0 + 1e-9, 2.0 + 1e-4])]
    labels = axis_labels(loss_plot(curves, "t"))
    assert "&lt; 2e-07" in labels
    assert "|Δ reference|" in labels
    # As it is drawn from any mixture of curves: a clean run has a panel, too.
    assert "&lt; 2e-07" in axis_labels(loss_plot(curves[:2], "t"))


def test_band_is_shaded_around_the_curve_and_its_distance():
    curves = [curve([4.0, 3.0], reference=True, name="r"), curve([4.0, 3.001], name="c")]
    band = Band(steps=[1, 2], low=[3.9, 2.9], high=[4.1, 3.1], nearest=0.0, farthest=0.1)
    plain, shaded = loss_plot(curves, "t"), loss_plot(curves, "t", {("g", "m", "c"): band})
    assert plain.count("fill-opacity: 0.18") == 0
    assert shaded.count("fill-opacity: 0.18") == 2
    assert loss_plot(curves, "t", {("other", "m", "c"): band}) == plain
