"""A diagnosis in words and as a table of text."""

import math
from collections.abc import Iterator
from pathlib import Path

from .diagnosis import CAVEAT, Diagnosis, LayerRow

COLUMNS = ("#", "layer", "kind", "|grad|", "zero", "fid", "fid/100", "lin", "verdict")
NO_GAIN = "The remedy gains nothing on these images: at this radius the mask did not stop the attack."
SHOWN = 24  # rows; a table of more leaves out faithful ones


def cells(row: LayerRow, number: int) -> tuple[str, ...]:
    """One line of the table."""
    zero = "-" if math.isnan(row.zero) else f"{100 * row.zero:.0f} %"
    return (
        str(number), row.name, row.kind, _short(row.grad_norm), zero, _share(row.fidelity), _share(row.fidelity_small),
        _share(row.linearity), row.verdict if row.verdict != "faithful" else "ok",
    )  # fmt: skip


def chosen(diagnosis: Diagnosis) -> list[tuple[int, LayerRow]]:
    """The rows to show, with their numbers: all, or of many those that are not faithful and the first and last."""
    rows = list(enumerate(diagnosis.rows))
    if len(rows) <= SHOWN:
        return rows
    special = [entry for entry in rows if entry[1].verdict not in ("faithful", "constant", "unresolved", "flat")]
    edge = max(0, (SHOWN - len(special)) // 2)
    kept = {number for number, _ in [*special[:SHOWN], *rows[:edge], *rows[len(rows) - edge :]]}
    return [entry for entry in rows if entry[0] in kept]


def lines_of(diagnosis: Diagnosis) -> Iterator[tuple[LayerRow | None, tuple[str, ...]]]:
    """Each line of the table with its row, and a line of dots where rows are left out."""
    last = -1
    for number, row in chosen(diagnosis):
        if number > last + 1:
            yield None, tuple("..." if name == "layer" else "" for name in COLUMNS)
        yield row, cells(row, number)
        last = number


def findings(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """The lines below the table: a word and what it says."""
    yield "verdict", f"{diagnosis.verdict.upper()}. {diagnosis.reason}"
    for culprit in diagnosis.culprits:
        yield "where", f"{culprit.name} ({culprit.kind}): {culprit.verdict}, {culprit.hint}"
    for site in diagnosis.source:
        yield "line", f"{short_path(site.file)}:{site.line}  {site.code}  ({site.op}: {site.reason})"
    for remedy in diagnosis.prescription:
        yield "remedy", remedy.text + (f"  [{remedy.option}]" if remedy.option else "")
    yield from _proof(diagnosis)
    whole = diagnosis.whole
    at_eps, finer = _share(whole.fidelity), _share(whole.fidelity_small)
    yield "whole", (
        f"from image to margin: fidelity {at_eps} at eps, {finer} at eps/100; input gradient exactly zero for "
        f"{100 * whole.zero:.0f} % of the images"
    )  # fmt: skip
    yield from (("note", note) for note in diagnosis.notes)
    yield from _unseen(diagnosis)
    threat = f"{diagnosis.norm} eps {diagnosis.eps}"
    yield "asked", f"{diagnosis.n} images, {threat}, loss {diagnosis.loss}, seed {diagnosis.seed}"
    yield "mind", CAVEAT


def short_path(file: str) -> str:
    """A path as seen from the current folder, where it lies inside."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def plain(diagnosis: Diagnosis) -> str:
    """The table and the findings with aligned columns."""
    lines = [COLUMNS, *(texts for _, texts in lines_of(diagnosis))]
    wide = [max(len(line[place]) for line in lines) for place in range(len(COLUMNS))]
    left = (1, 2, 8)
    table = ["  ".join(text.ljust(width) if place in left else text.rjust(width)
                       for place, (text, width) in enumerate(zip(line, wide, strict=True))).rstrip()
             for line in lines]  # fmt: skip
    return "\n".join([*table, *_left_out(diagnosis), "", *(f"{word:<8} {text}" for word, text in findings(diagnosis))])


def markdown(diagnosis: Diagnosis) -> str:
    """The same as Markdown."""

    def line(parts: tuple[str, ...]) -> str:
        return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"

    table = [line(COLUMNS), line(("---",) * len(COLUMNS))]
    table += [line(texts) for _, texts in lines_of(diagnosis)]
    return "\n".join(
        [*table, *_left_out(diagnosis), "", *(f"- **{word}**: {text}" for word, text in findings(diagnosis))]
    )


def _left_out(diagnosis: Diagnosis) -> list[str]:
    missing = len(diagnosis.rows) - len(chosen(diagnosis))
    return [f"({missing} more calls, none of them guilty)"] if missing else []


def _proof(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    proof = diagnosis.proof
    if proof is None:
        return
    before = f"{100 * proof.before:.1f} %" if proof.before is not None else "could not run"
    after = f"{100 * proof.after:.1f} %" if proof.after is not None else "could not run"
    with_it = f"{after} by {proof.attack_after} with the remedy"
    clean = f"clean {100 * proof.clean:.1f} %, n = {proof.n}"
    yield "proof", f"robust accuracy {before} by {proof.attack_before}; {with_it} ({clean})"
    if proof.gains_nothing:
        yield "note", NO_GAIN
    if proof.refusal:
        yield "note", proof.refusal


def _unseen(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    if diagnosis.unseen:
        some = ", ".join(each.layer for each in diagnosis.unseen[:4])
        more = f" and {len(diagnosis.unseen) - 4} more" if len(diagnosis.unseen) > 4 else ""
        yield "unseen", f"{some}{more}: {diagnosis.unseen[0].reason}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1e}"
