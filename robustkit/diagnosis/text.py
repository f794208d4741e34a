"""A diagnosis as text: its table, and the findings below the table."""

import math
from collections.abc import Iterator
from pathlib import Path

from .proof import Proof
from .record import CAVEAT, DiagnosisRecord, LayerRow

COLUMNS = ("#", "layer", "kind", "|grad|", "zero", "fid", "fid/100", "lin", "verdict")
LEGEND = (
    "|grad|, zero: length of the loss's gradient at the call's output, and share of images where it is exactly zero. "
    "fid: how well the call's own backward pass predicts its response to a move of size eps (1 exactly, 0 not at all); "
    "fid/100: the same for a move of eps/100; lin (linearity): how well the response at eps/100 predicts that at eps."
)
_NO_GAIN = "The remedy gains nothing on these images: at this radius the layer did not stop the attack."
_WEAKER = "The remedy alone breaks fewer images than the model's own gradients: attack with it and without it."
SHOWN = 24  # rows; a longer table leaves out faithful ones
_LEFT_ALIGNED = ("layer", "kind", "verdict")


def cells(row: LayerRow, number: int) -> tuple[str, ...]:
    """One line of the table."""
    zero = "-" if math.isnan(row.zero) else f"{100 * row.zero:.0f} %"
    return (
        str(number), row.name, row.kind, _scientific(row.grad_norm), zero, _two_digits(row.fidelity),
        _two_digits(row.fidelity_small), _two_digits(row.linearity),
        row.verdict if row.verdict != "faithful" else "ok",
    )  # fmt: skip


def chosen(diagnosis: DiagnosisRecord) -> list[tuple[int, LayerRow]]:
    """The rows to show, with their numbers: all, or from many the unfaithful ones and some at both ends."""
    rows = list(enumerate(diagnosis.rows))
    if len(rows) <= SHOWN:
        return rows
    special = [entry for entry in rows if entry[1].verdict not in ("faithful", "constant", "unresolved", "flat")]
    edge = max(0, (SHOWN - len(special)) // 2)
    shown = {number for number, _ in [*special[:SHOWN], *rows[:edge], *rows[len(rows) - edge :]]}
    return [entry for entry in rows if entry[0] in shown]


def lines_of(diagnosis: DiagnosisRecord) -> Iterator[tuple[LayerRow | None, tuple[str, ...]]]:
    """Each line of the table with its row, and a line of dots where rows are left out."""
    last = -1
    for number, row in chosen(diagnosis):
        if number > last + 1:
            yield None, tuple("..." if name == "layer" else "" for name in COLUMNS)
        yield row, cells(row, number)
        last = number


def findings(diagnosis: DiagnosisRecord) -> Iterator[tuple[str, str]]:
    """The lines below the table: a label and a text."""
    yield "columns", LEGEND
    yield "verdict", f"{diagnosis.verdict.upper()}. {diagnosis.reason}"
    for row in diagnosis.causes:
        yield "where", f"{row.name} ({row.kind}): {row.verdict}, {row.hint}"
    for site in diagnosis.source:
        yield "line", f"{short_path(site.file)}:{site.line}  {site.code}  ({site.op}: {site.reason})"
    for remedy in diagnosis.prescription:
        yield "remedy", remedy.text + (f"  [{remedy.option}]" if remedy.option else "")
    yield from _proof(diagnosis)
    whole = diagnosis.whole
    at_eps, finer = _two_digits(whole.fidelity), _two_digits(whole.fidelity_small)
    zero = f"input gradient exactly zero for {100 * whole.zero:.0f} % of the images"
    yield "whole", f"from image to margin: fidelity {at_eps} at eps, {finer} at eps/100; {zero}"
    yield from (("note", note) for note in diagnosis.notes)
    yield from _unseen(diagnosis)
    threat = f"{diagnosis.norm} eps {diagnosis.eps}"
    yield "setting", f"{diagnosis.n} images, {threat}, loss {diagnosis.loss}, seed {diagnosis.seed}"
    yield "caveat", CAVEAT


def short_path(file: str) -> str:
    """The path relative to the current folder if the file is inside it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def plain(diagnosis: DiagnosisRecord) -> str:
    """The table and the findings with aligned columns."""
    lines = [COLUMNS, *(texts for _, texts in lines_of(diagnosis))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(_aligned, COLUMNS, line, widths)).rstrip() for line in lines]
    below = (f"{label:<8} {text}" for label, text in findings(diagnosis))
    return "\n".join([*table, *_left_out(diagnosis), "", *below])


def markdown(diagnosis: DiagnosisRecord) -> str:
    """The same as Markdown."""
    table = [_markdown_row(COLUMNS), _markdown_row(("---",) * len(COLUMNS))]
    table += [_markdown_row(texts) for _, texts in lines_of(diagnosis)]
    below = (f"- **{label}**: {text}" for label, text in findings(diagnosis))
    return "\n".join([*table, *_left_out(diagnosis), "", *below])


def _aligned(column: str, text: str, width: int) -> str:
    return text.ljust(width) if column in _LEFT_ALIGNED else text.rjust(width)


def _markdown_row(parts: tuple[str, ...]) -> str:
    return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"


def _left_out(diagnosis: DiagnosisRecord) -> list[str]:
    missing = len(diagnosis.rows) - len(chosen(diagnosis))
    return [f"({missing} more calls, none of them masking)"] if missing else []


def _proof(diagnosis: DiagnosisRecord) -> Iterator[tuple[str, str]]:
    proof = diagnosis.proof
    if proof is None:
        return
    before, after = (
        "not measurable" if accuracy is None else f"{100 * accuracy:.1f} %" for accuracy in (proof.before, proof.after)
    )
    with_remedy = f"; {after} under {proof.attack_after} with the remedy" if proof.attack_after else ""
    clean = f"clean {100 * proof.clean:.1f} %, n = {proof.n}"
    yield "proof", f"robust accuracy {before} under {proof.attack_before}{with_remedy}{_search(proof)} ({clean})"
    if note := note_on_remedy(proof):
        yield "note", note
    if proof.refusal:
        yield "note", proof.refusal


def note_on_remedy(proof: Proof) -> str:
    """Why the remedy does not lower robust accuracy; empty where it does."""
    if not proof.attack_after:
        return ""
    return _NO_GAIN if proof.gains_nothing else _WEAKER if proof.remedy_is_weaker else ""


def _search(proof: Proof) -> str:
    if not proof.attack_search:
        return ""
    return f"; {100 * proof.worst:.1f} % with {proof.attack_search} on the remaining images"


def _unseen(diagnosis: DiagnosisRecord) -> Iterator[tuple[str, str]]:
    if diagnosis.unseen:
        some = ", ".join(each.layer for each in diagnosis.unseen[:4])
        more = f" and {len(diagnosis.unseen) - 4} more" if len(diagnosis.unseen) > 4 else ""
        yield "unseen", f"{some}{more}: {diagnosis.unseen[0].reason}"


def _two_digits(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _scientific(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1e}"
