"""The page of a diagnosis: the verdict with its proof, the masking line, the remedy, and a table of all calls.

One HTML file that loads nothing. Names and lines of code are not trusted: they are escaped. `section` is the same
without head and foot, for other pages.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from robustkit.diagnosis import Diagnosis, LayerRow
from robustkit.diagnosis.record import CAVEAT
from robustkit.diagnosis.text import note_on_remedy, short_path
from robustkit.host.files import write_text

from ..shared.layer_names import LayerName, common_prefix, table_names
from ..shared.rendering import render, styles
from ..shared.words import DASH, printable

TITLES = {
    "clear": "No masking found",
    "masked": "Gradients are masked",
    "randomized": "The model is randomized",
    "loss saturated": "The loss is saturated",
    "inconclusive": "Inconclusive",
}


@dataclass(frozen=True)
class DiagnosisContext:
    """What was diagnosed, for the head of the page."""

    dataset: str = ""
    command: str = ""


class CallRow(NamedTuple):
    """One call as text."""

    number: int
    name: str
    short: LayerName
    kind: str
    shape: str
    norm: str
    zero: str
    fidelity: str
    fidelity_small: str
    linearity: str
    saturation: str
    verdict: str
    hint: str
    is_cause: bool  # of the verdict
    level: float  # fidelity as a share, for the bar; 0 where it was not measured
    measured: bool


class SourceLine(NamedTuple):
    """A line of the model's source code, and why it is shown."""

    where: str
    code: str
    why: str


class ProofSide(NamedTuple):
    """One number of the proof."""

    title: str
    percent: str
    attack: str


def write_diagnosis(diagnosis: Diagnosis, folder: Path, about: DiagnosisContext | None = None) -> None:
    """Write diagnosis.html and diagnosis.json into `folder`, each replaced in one step.

    Raises:
        UserError: `folder` cannot be written to.
    """
    write_text(folder / "diagnosis.json", diagnosis.to_json() + "\n")
    write_text(folder / "diagnosis.html", page(diagnosis, about or DiagnosisContext()))


def page(diagnosis: Diagnosis, about: DiagnosisContext) -> str:
    """The whole page as HTML."""
    style = styles("shared/style.css", "diagnosis/diagnosis.css")
    data = json.loads(diagnosis.to_json())
    about = DiagnosisContext(printable(about.dataset), printable(about.command))
    return _rendered("diagnosis/diagnosis.html.jinja", diagnosis, about=about, style=style, data=data)


def section(diagnosis: Diagnosis) -> str:
    """The body alone, as HTML; the page around it needs style.css and diagnosis.css."""
    return _rendered("diagnosis/diagnosis_section.html.jinja", diagnosis)


def _rendered(template: str, diagnosis: Diagnosis, **more: Any) -> str:
    names = [printable(row.name) for row in diagnosis.rows]
    rows = [
        _row(diagnosis, number, row, short)
        for number, (row, short) in enumerate(zip(diagnosis.rows, table_names(names), strict=True))
    ]
    return render(
        template,
        diagnosis=diagnosis,
        model=printable(diagnosis.model),
        title=TITLES[diagnosis.verdict],
        rows=rows,
        special=[row for row in rows if row.verdict != "ok"],
        prefix=common_prefix(names),
        causes=[row for row in rows if row.is_cause],
        places=[
            SourceLine(
                f"{printable(short_path(site.file))}:{site.line}", printable(site.code), f"{site.op}: {site.reason}"
            )
            for site in diagnosis.source
        ],
        proof=_proof(diagnosis),
        refusal=printable(diagnosis.proof.refusal) if diagnosis.proof else "",
        whole=(
            _share(diagnosis.whole.fidelity),
            _share(diagnosis.whole.fidelity_small),
            _percent(diagnosis.whole.zero),
        ),
        unseen=[(printable(each.layer or "(forward)"), printable(each.reason)) for each in diagnosis.unseen],
        caveat=CAVEAT,
        note_on_remedy=note_on_remedy(diagnosis.proof) if diagnosis.proof else "",
        **more,
    )


def _row(diagnosis: Diagnosis, number: int, row: LayerRow, short: LayerName) -> CallRow:
    return CallRow(
        number=number, name=printable(row.name), short=short, kind=printable(row.kind),
        shape=" \N{MULTIPLICATION SIGN} ".join(map(str, row.shape)), norm=_size(row.grad_norm), zero=_percent(row.zero),
        fidelity=_share(row.fidelity), fidelity_small=_share(row.fidelity_small), linearity=_share(row.linearity),
        saturation=_percent(row.saturation), verdict="ok" if row.verdict == "faithful" else row.verdict,
        hint="" if row.verdict == "faithful" else printable(row.hint), is_cause=row in diagnosis.causes,
        level=min(1.0, max(0.0, row.fidelity)) if math.isfinite(row.fidelity) else 0.0,
        measured=math.isfinite(row.fidelity),
    )  # fmt: skip


def _proof(diagnosis: Diagnosis) -> list[ProofSide]:
    proof = diagnosis.proof
    if proof is None:
        return []
    sides = [("Robust accuracy, as it is", proof.before, proof.attack_before)]
    if proof.attack_after:
        sides.append(("Robust accuracy, with the remedy", proof.after, proof.attack_after))
    if proof.attack_search:
        sides.append(
            ("Robust accuracy, all together", proof.worst, f"with {proof.attack_search} on the remaining images")
        )
    return [
        ProofSide("Clean accuracy", _percent(proof.clean), f"{proof.n} images"),
        *(
            ProofSide(title, "could not run" if value is None else _percent(value), attack)
            for title, value, attack in sides
        ),
    ]


def _share(value: float) -> str:
    return DASH if math.isnan(value) else f"{value:.2f}"


def _percent(value: float) -> str:
    return DASH if math.isnan(value) else f"{100 * value:.1f} %" if 0 < value < 1 else f"{100 * value:.0f} %"


def _size(value: float) -> str:
    return DASH if math.isnan(value) else "0" if value == 0 else f"{value:.1e}"
