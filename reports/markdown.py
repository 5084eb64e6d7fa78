"""``report.md``: a run for pull requests and chat, within the size of one GitHub comment for usual runs."""

from . import gfm
from .kernels import Parity, kernels
from .schema import CheckResult, Outcome, PinRow, Report
from .summary import (
    NOT_FINISHED,
    against_bar,
    budget_used,
    compared_text,
    counts_line,
    failures,
    folded_text,
    from_bundle,
    message_beside_table,
    most_used,
    not_run_by_reason,
    reproduce,
    status_word,
    usage,
)
from .text import duration, first_lines, moment, number, one_line, plural, share

_MESSAGES = 10
"""Failures shown with their message; the others are named."""
_NAMES = 12
"""Checks named per reason for not having run."""


def render_markdown(report: Report) -> str:
    """GitHub-flavoured Markdown. Everything that comes from outside is shown as plain text or as code."""
    sections = [
        _head(report),
        _pins(report.pins, report.stack),
        _failures(report),
        _named(report.results, Outcome.EXPECTED_FAIL, "Expected failures"),
        _named(report.results, Outcome.INCONCLUSIVE, "Inconclusive"),
        _kernels(report),
        _not_run(report),
        _numbers(report),
        _published(report),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(report: Report) -> str:
    verdict = f"## {status_word(report)}: {gfm.text(report.verdict.headline)}"
    commit = report.kit_commit or "no checkout"
    facts = (
        f"Neuron {gfm.text(report.release)} ({gfm.text(report.release_date)}) on {report.target}, "
        f"level {report.level}, {gfm.text(moment(report.started))}, {duration(report.duration_s)}; "
        f"trncheck {gfm.text(report.kit_version)}, commit {gfm.code(commit)}; run {gfm.code(report.run_id)}"
    )
    parts = [
        verdict,
        "" if report.complete else f"> **The run did not finish.** {NOT_FINISHED}",
        "\n".join(f"1. {gfm.text(reason)}" for reason in report.verdict.reasons),
        f"**{counts_line(report)}**",
        facts,
    ]
    return "\n\n".join(part for part in parts if part)


def _pins(pins: list[PinRow], stack: str) -> str:
    rows = [
        (gfm.code(p.name), gfm.text(p.expected), gfm.text(p.found or "–"), p.status.value, gfm.text(p.note or ""))
        for p in pins
    ]
    table = gfm.table(("name", "release pins", "found", "status", "note"), rows)
    parts = ["### Environment against the release", gfm.text(stack), table]
    return "\n\n".join(part for part in parts if part) if pins or stack else ""


def _failures(report: Report) -> str:
    failed = failures(report)
    if not failed:
        return ""
    parts = [f"### {plural(len(failed), 'failure')}"]
    for result in failed[:_MESSAGES]:
        nothing = result.outcome is Outcome.NOTHING_COMPARED
        compared = "" if nothing else f", {compared_text(result.compared)}"
        parts.append(f"**{gfm.text(result.title)}**\n{gfm.code(result.id)}: {_outcome(result)}{compared}")
        if result.message.strip():
            parts.append(gfm.fenced(first_lines(message_beside_table(result), lines=25, width=200)))
        bundle = f" or {gfm.code(command)}" if (command := from_bundle(result)) else ""
        parts.append(f"Again: {gfm.code(reproduce(report, result))}{bundle}")
    parts += [f"* {gfm.code(r.id)}: {_outcome(r)}, {gfm.text(one_line(r.message, 160))}" for r in failed[_MESSAGES:]]
    return "\n\n".join(parts)


def _outcome(result: CheckResult) -> str:
    return result.outcome.value + ("" if result.required else " (not required)")


def _named(results: list[CheckResult], outcome: Outcome, heading: str) -> str:
    lines = [f"* {gfm.code(r.id)}: {gfm.text(one_line(r.message, 300))}" for r in results if r.outcome is outcome]
    return f"### {heading}\n\n" + "\n".join(lines) if lines else ""


def _kernels(report: Report) -> str:
    found = kernels(report)
    if not found:
        return ""
    executed = []
    for row in found.executed:
        runs = "; ".join(f"{gfm.code(where)}: {count:,}" for where, count in row.training.items())
        catalogue = "–" if row.catalogue is None else f"{row.catalogue:,}"
        names = (gfm.code(row.operator), row.direction, gfm.text(row.dtype), gfm.text(row.backend))
        executed.append((*names, catalogue, runs or "–"))
    parts = ["### Kernels", *map(gfm.text, found.notes)]
    if executed:
        header = ("operator", "direction", "dtype", "backend", "executed in catalogue checks", "in training")
        parts.append(gfm.table(header, executed, right=(4,)))
    if closest := [(gfm.code(row.kernel), row.direction, *_closest(row)) for row in found.parity]:
        parts.append(gfm.table(("kernel", "direction", "check", "of its bar", "measured"), closest, right=(3,)))
    return "\n\n".join(parts)


def _closest(row: Parity) -> tuple[str, str, str]:
    """Outcome of the check, and the measurement that used most of its bar."""
    outcome = row.check.outcome.value
    if not row.worst:
        return outcome, "–", "nothing"
    measurement = max((worst.measurement for worst in row.worst), key=usage)
    used = budget_used(measurement)
    text = "–" if used is None else share(used)
    return outcome, text if measurement.ok else f"**{text}**", gfm.text(measurement.name)


def _not_run(report: Report) -> str:
    lines = []
    for reason, results in not_run_by_reason(report).items():
        names = ", ".join(gfm.code(r.id) for r in results[:_NAMES])
        more = f" and {len(results) - _NAMES} more" if len(results) > _NAMES else ""
        lines.append(f"* {gfm.text(one_line(reason, 300))} ({len(results)}): {names}{more}")
    return "### Not run\n\n" + "\n".join(lines) if lines else ""


def _numbers(report: Report) -> str:
    rows = []
    for result in report.results:
        shown, folded = most_used(result.measurements)
        for m in shown:
            value, bar = against_bar(m)
            met = "reported" if m.bar is None else "met" if m.ok else "**missed**"
            rows.append(
                (gfm.code(result.id), gfm.text(m.name), gfm.text(value), gfm.text(bar), met, gfm.text(m.source))
            )
        if folded:
            rows.append((gfm.code(result.id), folded_text(folded), "", "", "", ""))
    if not rows:
        return ""
    table = gfm.table(("check", "measured", "value", "bar", "", "source of the bar"), rows, right=(2, 3))
    count = sum(len(result.measurements) for result in report.results)
    return f"### Numbers\n\n<details><summary>{plural(count, 'measurement')}</summary>\n\n{table}\n\n</details>"


def _published(report: Report) -> str:
    rows = []
    for e in report.expectations:
        unit = f" {e.unit}" if e.unit else ""
        measured = "–" if e.measured is None else number(e.measured) + unit
        rows.append(
            (
                gfm.text(e.name),
                gfm.text(number(e.published) + unit),
                gfm.text(measured),
                gfm.text(e.source),
                gfm.text(e.note),
            )
        )
    header = ("name", "published", "measured", "source", "note")
    return "### Published beside measured\n\n" + gfm.table(header, rows, right=(1, 2)) if rows else ""
