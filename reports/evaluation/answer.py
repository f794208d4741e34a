"""The answer of a page in one sentence: which model withstands most, how sure that is, and against what."""

from collections.abc import Iterator
from typing import NamedTuple

from robustkit.evidence.own_features import OWN_FEATURES, own_features

from ..shared.words import in_plain_words, percent, point_range, points, printable
from .board import Board
from .corruption_mean import answer_on_corruptions
from .headline_threat import HeadlineThreat, headline_threat
from .ranking import Pair, Ranking, ranking
from .result_rows import ResultRow, ThreatLabel


class Answer(NamedTuple):
    """What a reader sees first."""

    sentence: str
    support: str  # what the sentence's number is
    threat: str  # what the attacker may do and know
    rule: str  # which radius leads, and why; empty where there is none
    comments: list[str]  # what a reader may overlook in the numbers


def answer(board: Board) -> Answer:
    """The answer of a board."""
    leading = headline_threat(board)
    comments = [text for model in board.models if (text := _comment(board, model, leading))]
    if leading is None:
        sentence, support = _without_radius(board)
        return Answer(_unbroken(sentence), support, _attacker(board, None), "", comments)
    ranked = ranking(board, leading.threat)
    several = len(ranked.models) > 1
    if several and own_features(run.manifest["identity"] for run in board.runs):
        comments.append(OWN_FEATURES)
    sentence = _of_several(board, ranked) if several else _of_one(board, leading.threat, ranked)
    if several and _without_verdict(board, ranked):
        sentence = f"Counting images without a verdict as wrong: {sentence}"
    if not _unreliable(board, leading.threat).isdisjoint(_named(ranked)):
        sentence = f"Not reliable: {sentence}"
    support = _support(board, leading.threat, ranked)
    return Answer(_unbroken(sentence), support, _attacker(board, leading), leading.rule, comments)


def _unreliable(board: Board, threat: ThreatLabel) -> set[str]:
    """Models that failed a check, at this threat or as a whole."""
    failed = [
        (names.get(printable(check.model), check.model), check)
        for run, names in zip(board.runs, board.names, strict=True)
        for check in run.checks
        if check.status == "failed" and check.threat in ("", str(threat))
    ]
    return {
        model for model, check in failed
        # Attacks that failed make an accuracy too high, and 0 is not; that the model answers otherwise later counts.
        if not (check.threat and _is_least(board.worst(model, threat)) and check.name != "fresh_answers")
    }  # fmt: skip


def _is_least(cell: ResultRow | None) -> bool:
    """Whether no attack can lower an accuracy."""
    return cell is not None and not (cell.correct or cell.errors)


def _of_one(board: Board, threat: ThreatLabel, ranked: Ranking) -> str:
    cell = board.worst(ranked.models[0], threat) if ranked.models else None
    if cell is None:
        return "No model has a result yet."
    accuracy = f"{'at most ' if cell.errors else ''}{_most(cell)} robust accuracy at {threat}"
    return f"{cell.model}: {accuracy} under the attacks tried (95 %: {cell.interval}, n = {cell.n:,})."


def _alike(ranked: Ranking) -> list[str]:
    """The models that the test does not tell apart from the best; that need not be the next ones."""
    return [pair.second for pair in ranked.pairs if pair.first == ranked.models[0] and not pair.told_apart]


def _named(ranked: Ranking) -> list[str]:
    """The models that the sentence names: the best, and the next of those that may be as good."""
    return [*ranked.models[:1], *(_alike(ranked) or ranked.models[1:])[:1]]


def _of_several(board: Board, ranked: Ranking) -> str:
    first, second = _named(ranked)
    best, next_best = (board.worst(model, ranked.threat) for model in (first, second))
    assert best is not None
    assert next_best is not None
    if best.correct == 0:
        return (
            f"None of {len(ranked.models)} models withstands the attacks at {ranked.threat}: all have {best.percent}."
        )
    if not ranked.pairs:
        return f"{first} leads so far with {best.percent} at {ranked.threat}; differences are not tested yet."
    pair = ranked.pair(first, second)
    if pair.told_apart:
        ahead = f"{points(pair.difference.value)} points ({_range(pair)}) above {second}"
        return f"{first} is the most robust: {best.percent} at {ranked.threat}, {ahead}."
    others = _alike(ranked)[1:]
    more = f" and {len(others)} other{'s' if len(others) > 1 else ''}" if others else ""
    whose = "the difference of the first two" if others else "their difference"
    return (
        f"{first} ({best.percent}) and {second} ({next_best.percent}){more} do not differ significantly at "
        f"{ranked.threat}: {whose} is {points(pair.difference.value)} points ({_range(pair)})."
    )


def _range(pair: Pair) -> str:
    return f"95 %: {point_range(pair.difference.low, pair.difference.high)}"


def _unbroken(sentence: str) -> str:
    """The sentence with its numbers and units on one line each."""
    for text in (" %", " points", "n = "):
        sentence = sentence.replace(text, text.replace(" ", "\N{NO-BREAK SPACE}"))
    return sentence


def _support(board: Board, threat: ThreatLabel, ranked: Ranking) -> str:
    cell = board.worst(ranked.models[0], threat) if ranked.models else None
    if cell is None:
        return ""
    clean = board.clean(cell.model)
    before = f" Without an attack, {cell.model} classifies {clean.correct:,} correctly." if clean else ""
    if _is_least(cell):
        return (
            f"Of {cell.n:,} images, {cell.model} classifies none correctly under every attack tried; no attack can "
            f"lower that.{before}"
        )
    certified = board.certified(cell.model, threat)
    correctly = "correctly or rejects them" if cell.model in board.rejecting else "correctly"
    least = f" At least {certified.correct:,} are certified." if certified else ""
    return (
        f"An upper bound for these images: of {cell.n:,}, {cell.model} classifies {cell.correct:,} {correctly} under "
        f"every attack tried, and a stronger attack can only lower that.{_missing(board, ranked)}{least}{before}"
    )


def _without_verdict(board: Board, ranked: Ranking) -> list[ResultRow]:
    """The models at the headline's threat some of whose images have no verdict."""
    cells = [board.worst(model, ranked.threat) for model in ranked.models]
    return [cell for cell in cells if cell is not None and cell.errors]


def _missing(board: Board, ranked: Ranking) -> str:
    cells = _without_verdict(board, ranked)
    if not cells:
        return ""
    if len(ranked.models) == 1:
        (cell,) = cells
        return (
            f" {cell.errors:,} of the images {'has' if cell.errors == 1 else 'have'} no verdict; tables count them as "
            f"wrong ({cell.percent}), and intervals cover both."
        )
    counts = ", ".join(f"{cell.errors:,} of {cell.model} (up to {_most(cell)})" for cell in cells)
    return (
        f" Without a verdict are {counts}; tables and comparisons count them as wrong, and intervals of accuracies "
        "cover both."
    )


def _most(cell: ResultRow) -> str:
    """The accuracy if all images without a verdict were correct."""
    return percent(cell.correct + cell.errors, cell.n) if cell.errors else cell.percent


def _without_radius(board: Board) -> tuple[str, str]:
    """Sentence and support of a board without a radius."""
    cells = [(norm, cell) for norm in board.minimums for model in board.models if (cell := board.worst(model, norm))]
    known = [(norm, cell) for norm, cell in cells if cell.distance_text]
    on_corruptions = answer_on_corruptions(board)
    if not known and on_corruptions[0]:
        return on_corruptions
    if not known:
        clean = [cell for model in board.models if (cell := board.clean(model))]
        counts = ", ".join(f"{cell.model} {cell.percent}" for cell in clean)
        return f"No attack was run{f'; clean accuracy: {counts}' if counts else ''}.", ""
    norm = known[0][0]
    own = sorted((cell for other, cell in known if other == norm), key=lambda cell: -cell.distance)
    parts = ", ".join(f"{cell.model} {cell.distance_text} (95 %: {cell.distance_interval})" for cell in own)
    return (
        f"Median {norm.norm} distance of the nearest adversarial example: {parts}.",
        "An upper bound: half of the correctly classified images have an adversarial example at least as near as "
        "that, and a stronger attack may find nearer ones.",
    )


def _attacker(board: Board, leading: HeadlineThreat | None) -> str:
    """What the attacker may change and know, in words."""
    changes = ""
    if leading is not None:
        allowed = in_plain_words(leading.threat.norm, leading.threat.eps_text)
        what = "makes the model take it for another class" if board.rejecting else "changes that"
        changes = f"An image counts as robust if it is classified correctly and no attack {what} {allowed}. "
    return changes + " ".join(_knowledge(board))


def _knowledge(board: Board) -> Iterator[str]:
    attacks = [row for row in board.rows if row.role in ("attack", "member") and row.attacked]
    if not attacks:
        return
    direct = [row for row in attacks if "@" not in row.attack and row.attack not in board.examples]
    if any(row.backwards for row in direct):
        yield "The attacker knows the model and its weights (white box)."
    elif direct:
        yield "The attacker only queries the model (black box)."
    if board.examples:
        named = ", ".join(sorted(map(printable, board.examples)))
        yield f"How the examples in {named} were made is not known; they are judged within these radii."
    if board.transferred:
        yield "Some attacks query another model and are transferred."


def _comment(board: Board, model: str, leading: HeadlineThreat | None) -> str:
    """What a reader may overlook in the numbers of a model; empty if nothing."""
    if model in board.unfinished:
        return ""
    cell, clean = board.worst(model, leading.threat) if leading else None, board.clean(model)
    if cell is None:
        looked_for = any(board.worst(model, norm) for norm in board.minimums)
        looked_for = looked_for or any(len(run.corruptions) for run in board.runs)
        return "" if looked_for else f"{model}: no attack was run; this says nothing about robustness."
    if cell.n < 30:
        return f"With {cell.n} image{'' if cell.n == 1 else 's'} this is a trial of the tool, not a measurement."
    certified = board.certified(model, cell.threat) if cell.threat else None
    if certified and certified.correct == cell.correct:
        return (
            f"{model}: the two bounds are equal. Unless a certificate is wrong, no stronger attack can lower this "
            "accuracy on these images."
        )
    if clean and clean.correct == cell.correct and clean.correct:
        return (
            f"{model}: No attack broke any image at {cell.threat}. Either the radius is small, or the attacks fail on "
            "this model; check which."
        )
    classes = len(board.class_names)
    if not classes or cell.correct / cell.n > 1 / classes:
        return ""
    return (
        f"At {cell.threat} the accuracy of {model} under attack ({cell.percent}) is not above chance "
        f"({percent(1, classes)})."
    )
