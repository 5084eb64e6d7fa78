"""``junit.xml`` of a run: one testsuite per subject, one testcase per check."""

import xml.etree.ElementTree as ET

from .schema import CheckResult, Outcome, Report
from .summary import NOT_FINISHED, folded_text, group_by, message_alone, most_used, verdict_line
from .text import clean, one_line

_SKIPPED = (Outcome.NOT_RUN, Outcome.EXPECTED_FAIL, Outcome.INCONCLUSIVE)


def render_junit(report: Report) -> str:
    """JUnit XML. A run that did not finish has an extra testcase, in error, so that no CI shows it green."""
    root = ET.Element("testsuites", name="trncheck")
    for subject, results in group_by(report.results, lambda r: r.subject).items():
        suite = _suite(root, subject, report)
        for result in results:
            _testcase(suite, result)
    if not report.complete:
        case = ET.SubElement(_suite(root, "run", report), "testcase", classname="run", name="run.finished", time="0")
        ET.SubElement(case, "error", message=f"The run did not finish. {NOT_FINISHED}").text = clean(
            verdict_line(report)
        )
    for suite in root:
        _count(suite, list(suite.iter("testcase")))
    _count(root, list(root.iter("testcase")))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, subject: str, report: Report) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=clean(subject), timestamp=clean(report.started))
    facts = {"release": report.release, "target": report.target, "run_id": report.run_id}
    _properties(suite, facts | {"verdict": verdict_line(report)})
    return suite


def _testcase(suite: ET.Element, result: CheckResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=clean(result.subject),
        name=one_line(result.id),
        time=f"{result.duration_s:.3f}",
    )
    values = {"compared.tensors": str(result.compared.tensors), "compared.elements": str(result.compared.elements)}
    shown, folded = most_used(result.measurements)
    for m in shown:
        bar = "" if m.bar is None else f" {m.relation} {m.bar!r}"
        values[m.name] = " ".join(f"{m.value!r}{bar} {m.unit}".split())
    if folded:
        values["measurements.not_listed"] = folded_text(folded)
    _properties(case, values)
    reason = result.message or result.title
    if result.outcome.is_failure:
        failure = ET.SubElement(case, "failure", type=result.outcome.value, message=one_line(reason, 300))
        failure.text = clean(f"{result.title}\n\n{message_alone(result)}")
    elif result.outcome in _SKIPPED:
        ET.SubElement(case, "skipped", type=result.outcome.value, message=one_line(f"{result.outcome}: {reason}", 1000))


def _properties(parent: ET.Element, values: dict[str, str]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", name=one_line(name), value=one_line(value))


def _count(element: ET.Element, cases: list[ET.Element]) -> None:
    element.set("tests", str(len(cases)))
    for plural, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(plural, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
