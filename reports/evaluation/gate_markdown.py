"""The checks of a gate as a table in Markdown, for the summary of a step in continuous integration."""

from robustkit.comparison.gate import Gate

from .plain_tables import PlainTable, as_markdown


def gate_markdown(gate: Gate) -> str:
    """One row for each check, those that failed first."""
    ordered = sorted(gate.checks, key=lambda check: check.passed)
    lines = [["pass" if each.passed else "FAIL", each.model, each.threat, each.reason] for each in ordered]
    failed = sum(not check.passed for check in gate.checks)
    caption = f"robustkit gate: {failed} of {len(lines)} checks failed." if failed else "robustkit gate: all passed."
    caption += f" Note: {gate.note}" if gate.note else ""
    return as_markdown(PlainTable(caption, ["status", "model", "threat", "measured"], lines))
