"""How the numbers were computed, in a paragraph written from the manifest, and what was not checked."""

import math
from collections.abc import Iterator, Sequence

from robustkit.primitives.ball import NORMS
from robustkit.statistics.resolution import POWER, detectable_paired, detectable_unpaired

from ..shared.words import percent, printable
from . import audit, bisection, corruptions, precision, randomized, rejection, smoothing
from .board import Board
from .cost import requests
from .manifest import attacks, chooses_images
from .result_rows import ResultRow


def methods(board: Board) -> str:
    """The methods paragraph of a board."""
    images = board.images
    listed = list(dict.fromkeys(text for run in board.runs for text in attacks(run)))
    used = f"The attacks were {'; '.join(listed)}. " if listed else _IN_MANIFEST
    used += _CHOICE if any(map(chooses_images, board.runs)) else ""
    threats = ", ".join(str(threat) for threat in board.threats) or "none"
    versions = ", ".join(dict.fromkeys(str(run.manifest["robustkit"]) for run in board.runs))
    return (
        f"robustkit {versions} attacked {_listed(board.models)} on {images.n:,} images of {images.dataset} "
        f"{images.split}. "
        f"Radii: {threats}, in units of the input before the model's own normalisation{_units(board)}. {_masks(board)}"
        f"{used}"
        "Only images that the model classifies correctly were attacked; the others count as wrong under every attack. "
        "An image counts as broken only if a fresh fp32 forward of the unmodified model misclassifies the projected "
        "point; an attack's own claim of success is not used. Worst-case means that an image counts as robust only "
        "if no attack broke it: the mean over images of the minimum over attacks. "
        f"{precision.methods(board)}{_scope(board)}{smoothing.methods(board)}{randomized.methods(board)}"
        f"{rejection.methods(board)}{corruptions.methods(board.runs)}{audit.methods(board)}{bisection.methods(board)}"
        f"{_TRANSFERRED if board.transferred else ''}"
    )


_IN_MANIFEST = "The hyper-parameters of the attacks are in the manifest below. "
_CHOICE = (
    "A member of an ensemble attacks the images that no member before it broke and that are near another class, as the "
    "gradients predict it (its thresholds are in the manifest). "
)
_TRANSFERRED = (
    " ATTACK@MODEL is a transfer attack: that model, the surrogate, answered all of the attack's queries, and the "
    "attacked model only judged the last point of each trial, so the images that it broke are its transfer success."
)


def unchecked(board: Board) -> list[str]:
    """What was not checked, although a reader may think so."""
    norms = list(dict.fromkeys(threat.norm for threat in (*board.threats, *board.minimums)))
    missing = [norm for norm in NORMS if norm not in norms]
    others = [
        *([f"perturbations in {_listed(missing)}"] if missing else []), *_natural(norms),
        *([] if "patch" in norms else ["patches"]), *corruptions.unchecked(board.runs), "new data",
    ]  # fmt: skip
    proven = (
        "; only the certified accuracies are lower ones" if board.smoothing else ", and nothing here proves a lower one"
    )
    return [
        f"Stronger attacks: the robust accuracies are upper bounds{proven}.",
        "Adaptive attacks: none of these attacks was written against a particular model or defense.",
        f"Other changes of the input: {_listed(others)}.",
        "Randomness of a model: an attacker who predicts its random numbers, or may try again, was not considered.",
        "Randomness of training and of attacks: intervals cover the choice of images only, one model and one seed.",
        *_rounding(board),
    ]


def _rounding(board: Board) -> Iterator[str]:
    """That image files have 256 levels was not checked, but for models on servers, which get nothing else."""
    servers = {row.model for row in requests(board)}
    others = [model for model in board.models if model not in servers]
    if others:
        whose = f" of {_listed(others)}" if len(others) < len(board.models) else ""
        yield (
            f"Rounding: adversarial images{whose} were not rounded to the 256 levels of an image file before the "
            "verdict."
        )


def _natural(norms: Sequence[str]) -> list[str]:
    """Rotations and shifts, as far as they were not tried."""
    tried = {"spatial": ("rotations", "shifts"), "rotation": ("rotations",), "translation": ("shifts",)}
    done = {word for norm in norms for word in tried.get(norm, ())}
    return [word for word in ("rotations", "shifts") if word not in done]


def joined(board: Board) -> list[str]:
    """Sentences about runs that stopped early, and about models that several runs attacked."""
    return [*precision.notes(board), *(
        f"{model}: the runs {_listed(where)} attacked the same model; its worst case is over all of their attacks."
        for model, where in board.joined.items()
    )]  # fmt: skip


def unions(board: Board) -> Iterator[str]:
    """A sentence about the images of each model that stand under every threat at once; none for one norm."""
    rows = [row for row in map(board.union, board.models) if row is not None and row.n]
    for row in rows:
        assert row.threat is not None
        yield (
            f"{row.model}: {row.percent} ({row.interval}, {row.count}) are correct under every threat at once "
            f"({row.threat.eps_text}; a smaller radius lies within the larger one)."
        )


def resolution(board: Board) -> str:
    """The differences between two models that can be seen with this many images; empty without images.

    Of several models or radii the accuracy counts that needs the largest difference, and is named.
    """
    n, cells = board.images.n, _compared(board)
    if not cells:
        return ""
    cell = max(cells, key=lambda each: _needed(each, n))
    where = f" ({_place(cell)}, which needs the largest difference)" if len(cells) > 1 else ""
    apart, together = _needed(cell, n), detectable_paired(n)
    if math.isinf(apart) or together is None:
        return f"Resolution{where}: n={n} is too few to detect a difference between two models."
    apart = max(apart, together)  # near 0 and 100 % both tests see the same, up to their approximations
    most, least = f"{100 * apart:.1f}", f"{100 * together:.1f}"
    start = f"Resolution at {percent(cell.correct, cell.n)}{where} and n={n} (power {100 * POWER:.0f} %, level 5 %):"
    if most == least:
        return f"{start} another model must differ by {most} points to be told apart, on other or on these same images."
    return (
        f"{start} another model must differ by {most} points to be told apart on {n} other images. On these same "
        f"images (paired test), {least} points are enough if one model is right wherever the other is, and {most} if "
        "their errors are independent."
    )


def _compared(board: Board) -> list[ResultRow]:
    """The accuracies that are compared between models: the worst cases, or the clean ones of a run without attacks.

    None where only some attacks of a run are shown, which leaves out the worst case.
    """
    # Distances have no share that a test could compare.
    worst = [row for row in board.rows if row.role == "worst-case" and row.threat and not row.threat.is_minimum]
    clean = [row for row in board.rows if row.role == "clean"]
    return [row for row in (worst if worst or board.threats or board.minimums else clean) if row.n]


def _needed(cell: ResultRow, n: int) -> float:
    """The difference from an accuracy that is seen on n other images; infinite if none is."""
    difference = detectable_unpaired(cell.correct / cell.n, n)
    return math.inf if difference is None else difference


def _place(cell: ResultRow) -> str:
    return f"{cell.model}, {cell.threat or 'clean'}"


def _units(board: Board) -> str:
    lengths = {"patch": "the side of a patch", "frame": "the width of a frame"}
    used = [words for norm, words in lengths.items() if any(threat.norm == norm for threat in board.threats)]
    return f"; {' and '.join(used)} in pixels" if used else ""


def _masks(board: Board) -> str:
    masks = {label: text for run in board.runs for label, text in run.manifest["identity"].get("masks", {}).items()}
    return "".join(f"Only the pixels of {name} ({printable(text)}) may change. " for name, text in masks.items())


def _scope(board: Board) -> str:
    if len(board.models) < 2:
        return "They hold for each accuracy on its own."
    return (
        "They hold for each accuracy on its own: all models saw the same images, so a test on pairs of verdicts "
        "(samples.csv) detects smaller differences than two overlapping intervals suggest."
    )


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
