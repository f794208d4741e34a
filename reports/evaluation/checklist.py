"""The checklist of Carlini et al. 2019, "On Evaluating Adversarial Robustness", as far as the evidence answers it.

arXiv:1902.06705, section 5. Its authors warn that the items are neither necessary nor sufficient, so the page says
"checked", "not checked" or "not checkable" and never that a list was passed. Attacks of the run and the automatic
checks both count as evidence.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

import numpy as np

from robustkit.checks import Check
from robustkit.primitives.ball import NORMS
from robustkit.primitives.mask import unmasked
from robustkit.statistics.intervals import proportion

from ..shared.words import printable
from .board import Board
from .headline_threat import headline_threat
from .manifest import attack_parameters
from .result_rows import ResultRow, ThreatLabel

State = Literal["checked", "not checked", "not checkable"]

_STEPS: Final = 10  # backward passes of an image that make an attack iterative
_DRAWS: Final = 10_000  # random points per image that the checklist asks for
_NOISE: Final = ("noise", "uniform_noise", "gaussian_noise")
_MOST: Final = 6  # names or sentences in a cell


class ChecklistItem(NamedTuple):
    """One item, its state, and the evidence for it or what is missing."""

    item: str
    state: State
    evidence: str


class _Facts(NamedTuple):
    """What the items are decided by; `cells` are the attacks at the headline's threat."""

    board: Board
    threat: ThreatLabel | None
    cells: list[ResultRow]

    @property
    def with_gradients(self) -> list[ResultRow]:
        return [cell for cell in self.cells if cell.backwards and "@" not in cell.attack]

    @property
    def without_gradients(self) -> list[ResultRow]:
        queried = [cell for cell in self.cells if not cell.backwards and cell.forwards and "@" not in cell.attack]
        return [cell for cell in queried if cell.attack not in self.board.examples]

    def checks(self, *names: str) -> list[Check]:
        """The automatic checks of these names, at the headline's threat and of models as a whole."""
        places = ("", str(self.threat or ""))
        return [
            each for run in self.board.runs for each in run.checks if each.name in names and each.threat in places
        ]  # fmt: skip

    def found(self, *names: str) -> str:
        """What those of them say that were made; empty if none was."""
        made = [each for each in self.checks(*names) if each.status in ("ok", "warning", "failed")]
        said = [f"{printable(each.model)}: {printable(each.finding)}" for each in made]
        return " ".join(said[:_MOST]) + (f" And {len(said) - _MOST} more, above." if len(said) > _MOST else "")


def checklist(board: Board) -> list[ChecklistItem]:
    """All items for a board."""
    leading = headline_threat(board)
    threat = leading.threat if leading else next(iter(board.minimums), None)
    roles = ("attack", "member")
    rows = [row for row in board.rows if row.role in roles and row.threat == threat] if threat else []
    facts = _Facts(board, threat, rows)
    return [item for each in _ITEMS for item in each(facts)]


def _threat_model(facts: _Facts) -> Iterator[ChecklistItem]:
    stated = ", ".join(str(each) for each in (*facts.board.threats, *facts.board.minimums))
    if stated:
        yield ChecklistItem(
            "A precise threat model", "checked", f"{stated}; knowledge and goal are in the head of this page."
        )
    else:
        yield ChecklistItem("A precise threat model", "not checked", "No attack was run.")
    yield ChecklistItem(
        "Adaptive attacks", "not checkable", "No program can tell whether an attack was made for this defense."
    )


def _strength(facts: _Facts) -> Iterator[ChecklistItem]:
    strong = [cell.attack for cell in facts.with_gradients if _most_backwards(facts, cell) >= _STEPS]
    found = f"Iterative attacks with gradients: {_listed(strong)}."
    none = "No attack of the run took ten gradient steps."
    yield ChecklistItem(
        "More than single-step attacks", "checked" if strong else "not checked", found if strong else none
    )
    yield from _single_step(facts, set(strong))
    yield _by_checks(facts, "Do more steps break more images?", "longer_search")
    yield _by_checks(facts, "Do more restarts break more images?", "restarts")


def _by_checks(facts: _Facts, item: str, *names: str, missing: str = "") -> ChecklistItem:
    """An item that automatic checks answer.

    Args:
        facts: of the board.
        item: its text.
        names: of the checks.
        missing: the evidence where none was made; by default why not.
    """
    if found := facts.found(*names):
        return ChecklistItem(item, "checked", found)
    on = any(run.checks for run in facts.board.runs)
    other = f"No automatic check is about {facts.threat}." if on else "Automatic checks were switched off."
    why = next((printable(each.finding) for each in facts.checks(*names)), other)
    return ChecklistItem(item, "not checked", missing or why)


def _single_step(facts: _Facts, strong: set[str]) -> Iterator[ChecklistItem]:
    single = [cell for cell in facts.with_gradients if 0 < _most_backwards(facts, cell) <= 1]
    item = "Do iterative attacks break more images than a single step?"
    if not single or not strong:
        yield ChecklistItem(item, "not checked", "It needs both kinds of attack at this radius.")
        return
    found = []
    for model in dict.fromkeys(cell.model for cell in single):
        own = [cell for cell in facts.with_gradients if cell.model == model]
        one = max(cell.broken for cell in own if cell in single)
        many = max((cell.broken for cell in own if cell.attack in strong), default=0)
        found.append(f"{model}: {many:,} broken by the best iterative attack, {one:,} by a single step")
    yield ChecklistItem(item, "checked", f"{'; '.join(found)}.")


def _numbers(facts: _Facts) -> Iterator[ChecklistItem]:
    yield ChecklistItem("Accuracy on clean images", "checked", "In the first table.")
    yield ChecklistItem(
        "The worst attack for each image",
        "checked",
        "Robust accuracy is the mean over images of the minimum over attacks.",
    )
    yield ChecklistItem("All hyper-parameters", "checked", "In the methods and in the manifest below.")


def _radii(facts: _Facts) -> Iterator[ChecklistItem]:
    board = facts.board
    norms = [threat.norm for threat in board.threats]
    several = [norm for norm in dict.fromkeys(norms) if norms.count(norm) > 1]
    item = "Does a larger radius break more images?"
    if several:
        yield ChecklistItem(
            item, "checked", f"See the curve of {_listed(several)}; what a radius breaks counts at larger ones."
        )
    else:
        yield ChecklistItem(item, "not checked", "There is one radius in each norm.")
    yield _to_chance(facts)


def _to_chance(facts: _Facts) -> ChecklistItem:
    board = facts.board
    item, classes = "Does accuracy fall to chance at a large radius?", len(board.class_names)
    if not board.threats or not classes:
        return ChecklistItem(item, "not checked", "It needs a radius and the number of classes.")
    largest = max((each for each in board.threats if each.norm == board.threats[0].norm), key=lambda each: each.eps)
    cells = [cell for model in board.models if (cell := board.worst(model, largest)) and cell.n]
    above = [cell for cell in cells if proportion(cell.correct, cell.n).low > 1 / classes]
    if cells and not above:
        return ChecklistItem(item, "checked", f"At {largest} no model is significantly above chance.")
    left = ", ".join(f"{cell.model} {cell.percent}" for cell in above) or "not known"
    text = f"At {largest}, the largest radius: {left}."
    return _by_checks(facts, item, "unbounded", "fixed_randomness", missing=text)


def _kinds(facts: _Facts) -> Iterator[ChecklistItem]:
    blind = list(dict.fromkeys(cell.attack for cell in facts.without_gradients))
    item = "Attacks without gradients"
    if blind:
        yield ChecklistItem(item, "checked", f"{_listed(blind)}.")
    elif facts.found("random_search"):
        yield ChecklistItem(item, "checked", "Random points and Square, by an automatic check, on some images.")
    else:
        yield ChecklistItem(item, "not checked", "None was run.")
    item = "Do attacks without gradients break what gradients do not?"
    if blind and facts.with_gradients:
        yield ChecklistItem(item, "checked", f"Broken by attacks without gradients only: {_only_blind(facts)}.")
    else:
        yield _by_checks(facts, item, "random_search", missing="It needs attacks with and without gradients.")
    moved = [name for name in facts.board.attacks if "@" in name]
    item = "Transfer from another model"
    if moved:
        yield ChecklistItem(item, "checked", f"{_listed(moved)}.")
    else:
        yield _by_checks(facts, item, "transfer_wins", missing="No surrogate was given.")
    parameters = attack_parameters(facts.board)
    aimed = [name for name, values in parameters.items() if values.get("targets")]
    item = "Targeted and untargeted attacks"
    if aimed:
        yield ChecklistItem(item, "checked", f"With target classes: {_listed(aimed)}.")
    else:
        yield _by_checks(facts, item, "other_targets", missing="All attacks are untargeted.")
    noise = [name for name, values in parameters.items()
             if name.partition(":")[0] in _NOISE and int(values.get("queries") or 0) >= _DRAWS]  # fmt: skip
    item = f"Random noise, {_DRAWS:,} draws for each image"
    yield ChecklistItem(
        item, "checked" if noise else "not checked", f"{_listed(noise)}." if noise else "Not as many were drawn."
    )


def _beyond(facts: _Facts) -> Iterator[ChecklistItem]:
    board = facts.board
    if board.randomized:
        yield ChecklistItem(
            "Expectation over randomness", "checked", "Attacks saw means over draws; verdicts used other draws."
        )
    proven = board.smoothing
    yield ChecklistItem(
        "Provable bounds", "checked" if proven else "not checked",
        f"Certified by smoothing: {_listed(list(proven))}." if proven else "Nothing here proves a lower bound.",
    )  # fmt: skip
    tried = [norm for norm in dict.fromkeys(threat.norm for threat in board.threats) if unmasked(norm) not in NORMS]
    tried += ["corruptions"] if any(len(run.corruptions) for run in board.runs) else []
    yield ChecklistItem(
        "Other changes than small norms", "checked" if tried else "not checked",
        f"{_listed(tried)}." if tried else "No rotations, shifts, patches, colours or corruptions.",
    )  # fmt: skip
    yield ChecklistItem("Which part of a defense helps", "not checkable", "It needs the same model without the part.")


_ITEMS: tuple[Callable[[_Facts], Iterator[ChecklistItem]], ...] = (
    _threat_model, _numbers, _strength, _radii, _kinds, _beyond,
)  # fmt: skip


def _most_backwards(facts: _Facts, cell: ResultRow) -> int:
    """The most backward passes that the attack spent on one image."""
    return 0 if cell.threat is None else facts.board.verdicts.most_backwards(cell.model, cell.threat, cell.attack)


def _only_blind(facts: _Facts) -> str:
    """Images of each model that no attack with gradients broke, but one without."""
    assert facts.threat is not None
    texts = []
    for model in dict.fromkeys(cell.model for cell in facts.cells):
        broken = facts.board.verdicts.broken_by(model, facts.threat)
        seeing, blind = (
            {int(number) for cell in cells if cell.model == model for number in broken.get(cell.attack, np.empty(0))}
            for cells in (facts.with_gradients, facts.without_gradients)
        )
        texts.append(f"{len(blind - seeing):,} images of {model}")
    return ", ".join(texts)


def _listed(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:_MOST]) + (f" and {len(unique) - _MOST} more" if len(unique) > _MOST else "")
