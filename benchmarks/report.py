"""How fast a report of many checks is written and opened, and whether its page works in a browser.

    .venv/bin/python benchmarks/report.py --out page

Renders synthetic runs of 250 to 4,000 checks, opens the page of 1,000 in headless Chromium, types into its filter, and
holds the numbers against the bars below; exit status 1 where one is missed. ``--out`` keeps that page.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from trncheck.reports.html import render_html
from trncheck.reports.junit import render_junit
from trncheck.reports.markdown import render_markdown
from trncheck.reports.schema import (
    CheckResult,
    Compared,
    Curve,
    Environment,
    Execution,
    Expectation,
    Measurement,
    Outcome,
    PinRow,
    PinStatus,
    Report,
    Verdict,
    VerdictStatus,
)
from trncheck.reports.store import RunFolder

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "reports"))
from browser import Browser, find_chromium

SIZES = (250, 500, 1000, 2000, 4000)
JUDGED = 1000
RENDER_S, OPEN_S, PAGE_MB = 2.0, 1.0, 1.5
"""Bars: seconds to render all forms, seconds until the page is there, size of the page."""
SUBJECTS = ("pins", "kernels", "paths", "losses", "checkpoint", "resume", "walkthrough")
OUTCOMES = dict(zip(Outcome, (780, 60, 20, 10, 90, 20, 20), strict=True))
"""Outcome -> share, per thousand."""
WORDS = (
    "loss",
    "gradient",
    "rotary",
    "expert",
    "router",
    "norm",
    "weight",
    "bfloat16",
    "export",
    "sharded",
    "position",
)
PROBE = """
const filter = document.getElementById("filter"), out = document.getElementById("shown");
const search = filter.elements.text, all = out.textContent;
const type = (text) => { search.value = text; search.dispatchEvent(new Event("input", { bubbles: true })); };
const since = performance.now();
type("case-77]");
const typed = performance.now() - since, one = out.textContent;
type("");
filter.querySelector('input[value="pass"]').click();
const redAndSoOn = out.textContent;
filter.reset();
setTimeout(() => done({ all, one, redAndSoOn, typed, reset: out.textContent }), 50);
"""


def main() -> int:
    """Render, open, print; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the run of 1,000 checks there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        render_html(synthetic(1, options.seed))  # matplotlib's imports are not the report's
        missed = []
        print("checks   json       html       md         junit      write one result")
        for size in SIZES:
            report = synthetic(size, options.seed)
            root = options.out if options.out and size == JUDGED else Path(temporary)
            missed += _render(report, root, judged=size == JUDGED)
            if size == JUDGED:
                page = _folder(root, report).page
        missed += _open(page, Path(temporary))
        if options.out:
            print(page)
    for problem in missed:
        print(f"missed: {problem}")
    return int(bool(missed))


def _folder(root: Path, report: Report) -> RunFolder:
    return RunFolder(root / report.release / report.target / report.run_id)


def _render(report: Report, root: Path, *, judged: bool) -> list[str]:
    folder = RunFolder.create(root, report)
    since = time.perf_counter()
    folder.write(report)
    written = time.perf_counter() - since
    cells, total = [], written
    for name, render in (
        ("report.json", None),
        ("report.html", render_html),
        ("report.md", render_markdown),
        ("junit.xml", render_junit),
    ):
        path, seconds = folder.path / name, written
        if render:
            since = time.perf_counter()
            path.write_text(render(report), encoding="utf-8")
            seconds = time.perf_counter() - since
            total += seconds
        size = path.stat().st_size / 1e6
        cells.append(f"{seconds:.2f}s {size:.2f}MB")
    print(f"{len(report.results):6}  ", *(f"{cell:10}" for cell in cells), f"{written * 1e3:.0f} ms")
    if not judged:
        return []
    found = []
    if total > RENDER_S:
        found.append(f"rendered in {total:.2f} s, at most {RENDER_S} s")
    if (size := folder.page.stat().st_size / 1e6) > PAGE_MB:
        found.append(f"page of {size:.2f} MB, at most {PAGE_MB} MB")
    return found


def _open(page: Path, work: Path) -> list[str]:
    chromium = find_chromium()
    if not chromium:
        print("browser: skipped, no chromium or google-chrome is on the path")
        return []
    opened = min((Browser(chromium, work).run(page, PROBE) for _ in range(3)), key=lambda o: o.result["load_ms"])
    found = opened.result
    print(
        f"browser: opened in {found['load_ms']:.0f} ms ({found['dom_ms']:.0f} ms to the document), filter answers in "
        f"{found['typed']:.0f} ms, {found['nodes']:,} elements, console: {opened.console or 'silent'}"
    )
    expected = {
        "all": f"{JUDGED} of {JUDGED} checks shown",
        "one": f"1 of {JUDGED} checks shown",
        "reset": f"{JUDGED} of {JUDGED} checks shown",
    }
    problems = [f"{key}: {found[key]!r}, expected {text!r}" for key, text in expected.items() if found[key] != text]
    if found["redAndSoOn"] == found["all"]:
        problems.append("unchecking an outcome hides nothing")
    if opened.console:
        problems.append(f"the console says {opened.console}")
    if found["load_ms"] > OPEN_S * 1e3:
        problems.append(f"opened in {found['load_ms']:.0f} ms, at most {OPEN_S * 1e3:.0f} ms")
    return problems


def synthetic(checks: int, seed: int) -> Report:
    """A run with ``checks`` checks of every outcome; the same for the same arguments."""
    chosen = random.Random(seed)
    return Report(
        run_id=f"20260101T030000-{checks:06x}",
        kit_version="0.1.0",
        kit_commit="c3931d2",
        release="2.33.0",
        release_date="2026-10-19",
        target="cpu",
        level="full",
        command="pytest --pyargs trncheck.conformance --level full",
        seed=seed,
        started="2026-01-01T03:00:00+00:00",
        finished="2026-01-01T04:00:00+00:00",
        duration_s=3600.0,
        complete=True,
        required_checks=checks,
        verdict=Verdict(
            status=VerdictStatus.NOT_CONFORMANT,
            headline="Neuron 2.33.0 must not be trusted.",
            reasons=[_words(chosen, 12) for _ in range(6)],
        ),
        environment=Environment(
            python="3.12.1",
            os="Linux",
            machine="x86_64",
            cpu="Xeon",
            cores=2,
            memory_gib=15.6,
            accelerator="none",
            packages={f"package-{k}": f"2.{k}.0" for k in range(40)},
        ),
        pins=[
            PinRow(name=f"pin-{k}", kind="distribution", expected="2.14", found="2.14.0", status=PinStatus.EQUAL)
            for k in range(20)
        ],
        results=[_check(k, chosen) for k in range(checks)],
        curves=[curve for group in range(max(checks // 250, 1)) for curve in _curves(f"model {group}", chosen)],
        expectations=[
            Expectation(name=f"published number {k}", published=6.54, measured=6.5, source=_words(chosen, 8))
            for k in range(8)
        ],
        executions=[
            Execution(
                operator=f"trncheck::operator{k % 6}",
                direction=("forward", "backward")[k % 2],
                dtype=("float32", "bfloat16")[k // 6 % 2],
                backend="simulator",
                where=f"qwen3_moe_tiny_nki_{k % 9}, 20 steps, 2 ranks",
                count=chosen.randrange(200),
                check=f"kernels.check[case-{k}]",
            )
            for k in range(checks // 5)
        ],
    )


def _check(place: int, chosen: random.Random) -> CheckResult:
    (outcome,) = chosen.choices(list(OUTCOMES), list(OUTCOMES.values()))
    subject = SUBJECTS[place % len(SUBJECTS)]
    ran = outcome is not Outcome.NOT_RUN
    many = chosen.random() < 0.03
    measurements = [_measurement(k, chosen) for k in range(chosen.randrange(20, 60) if many else chosen.randrange(5))]
    lines = chosen.randrange(2, 40) if outcome.is_failure else 1
    quiet = outcome is Outcome.PASS
    return CheckResult(
        id=f"{subject}.check{place % 13}[case-{place}]",
        subject=subject,
        title=f"{_words(chosen, 9).capitalize()}.",
        outcome=outcome,
        message="" if quiet else "\n".join(_words(chosen, 14) for _ in range(lines)),
        level=("smoke", "standard", "full")[place % 3],
        target="cpu" if ran else "trn2",
        required=place % 9 > 0,
        version=f"{place:012x}",
        compared=Compared(tensors=12, elements=1_234_567) if ran else Compared(),
        measurements=measurements if ran else [],
        evidence={f"fact {k}": f"{chosen.getrandbits(160):040x}" for k in range(chosen.randrange(4))},
        duration_s=round(chosen.expovariate(1.0), 3),
    )


def _measurement(place: int, chosen: random.Random) -> Measurement:
    value, bar = 10 ** chosen.uniform(-9, -2), 10 ** chosen.uniform(-6, -1)
    return Measurement(
        name=f"relative error of {_words(chosen, 3)} {place}",
        value=value,
        bar=bar,
        source="error of plain bfloat16 against float64, times 2",
        ok=value <= bar,
    )


def _curves(name: str, chosen: random.Random) -> list[Curve]:
    steps = list(range(1, 41))
    reference = [12 * 0.97**step + chosen.gauss(0, 0.05) for step in steps]
    curves = [Curve(name=f"plain Transformers, {name}", group=name, model=name, steps=steps, losses=reference)]
    curves[0].reference = True
    for path in ("native", "hf", "nki"):
        losses = [loss + chosen.choice((0.0, chosen.gauss(0, 1e-5))) for loss in reference]
        curves.append(Curve(name=f"{path}, {name}", group=name, model=name, steps=steps, losses=losses))
    return curves


def _words(chosen: random.Random, count: int) -> str:
    return " ".join(chosen.choices(WORDS, k=count))


if __name__ == "__main__":
    sys.exit(main())
