"""Attack pictures and write those that the model still gets wrong after they were rounded, written and read again."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.data import LazyData
from robustkit.data.decoding import Decoder, PictureReader
from robustkit.engine.jobs import reached
from robustkit.host.text import csv_cell, encodable
from robustkit.primitives.threat import is_rendered

from .class_names import ClassNames
from .comparison import Titles, write_comparison
from .eight_bits import Levels, distance, levels_of, roundings
from .files import output_names, write_png
from .making import AttackChoice, Attempt, Opinion, Outcome, attacked, attempt, opinion, with_confidence

_TRIES = 5  # attacks on a picture, each with another seed, as long as rounding takes the error away
_VALUES = 2**24  # of all pictures in memory at once, with about 40 bytes for each; 111 pictures of 3 x 224 x 224


class PictureResult(NamedTuple):
    """What became of one picture."""

    source: Path
    file: str  # its adversarial example; empty unless the attack succeeded
    label: str
    label_is_prediction: bool  # whether the label is the model's own prediction
    confidence: float | None  # of the label, before; None of a model that answers with labels only
    prediction: str  # at the adversarial example, or at the last point that was tried
    prediction_confidence: float | None
    outcome: Outcome
    distance: float | None
    queries: int


@dataclass(frozen=True)
class PictureRun:
    """All that is needed to attack pictures."""

    classifier: Classifier
    data: LazyData
    labels: Sequence[int | None]
    classes: ClassNames
    choice: AttackChoice
    folder: Path
    comparisons: int  # at most so many pictures that show clean, adversarial and difference

    def results(self) -> Iterator[PictureResult]:
        """The results in the order of the pictures; their files are written when they are yielded."""
        assert self.data.files is not None
        names, drawn = output_names(self.data.files), 0
        at_once = max(1, _VALUES // math.prod(self.data.shape))
        for start in range(0, len(self.data), at_once):
            numbers = range(start, min(start + at_once, len(self.data)))
            x, _ = self.data.batch(numbers)
            tried = attempt(self.classifier, x, [self.labels[number] for number in numbers], numbers, self.choice)
            found = self._written(x, tried, range(len(x)), numbers, names)
            tried, found = self._tried_again(x, tried, found, numbers, names)
            last = opinion(self.classifier, tried.x_adv, numbers, self.choice.seed)
            for row, number in enumerate(numbers):
                kept = found.get(row)
                if kept is not None and drawn < self.comparisons:
                    self._compare(levels_of(x[row]), kept, tried, row, names[number])
                    drawn += 1
                yield self._result(tried, row, number, names[number], kept, last)

    def _tried_again(
        self, x: Tensor, tried: Attempt, found: "dict[int, _Kept]", numbers: Sequence[int], names: Sequence[str]
    ) -> "tuple[Attempt, dict[int, _Kept]]":
        """Both after further attacks, with other seeds, on those images whose error was lost in rounding."""
        for more in range(1, _TRIES):
            lost = [row for row, outcome in enumerate(tried.outcomes) if outcome == "broken" and row not in found]
            if not lost:
                break
            choice = replace(self.choice, seed=self.choice.seed + more)
            later = attacked(self.classifier, x, tried, lost, numbers, choice)
            # An attack that succeeded once has an error to show, also if another seed does not find one.
            tried = later._replace(outcomes=tried.outcomes)
            again = [row for row in lost if later.outcomes[row] == "broken"]
            found |= self._written(x, later, again, numbers, names)
        return tried, found

    def _written(
        self, x: Tensor, tried: Attempt, rows: Iterable[int], numbers: Sequence[int], names: Sequence[str]
    ) -> "dict[int, _Kept]":
        """Files of those successes that survive rounding, by row; of each the first rounding that does."""
        choice, clean = self.choice, {row: levels_of(x[row]) for row in rows}
        waiting = {
            row: roundings(clean[row], tried.x_adv[row], choice.norm, choice.eps)
            for row in clean if tried.outcomes[row] == "broken"
        }  # fmt: skip
        kept: dict[int, _Kept] = {}
        while waiting := {row: levels for row, levels in waiting.items() if levels and row not in kept}:
            tested = {row: levels.pop(0) for row, levels in waiting.items()}
            rows, read = list(tested), []
            for row, levels in tested.items():
                read.append(_through_file(levels, self.folder / f"{names[numbers[row]]}.png"))
            said = opinion(self.classifier, torch.stack(read), [numbers[row] for row in rows], choice.seed)
            for place, row in enumerate(rows):
                label = int(said.labels[place])
                if reached(label, int(tried.y[row]), choice.target):
                    kept[row] = _Kept(
                        tested[row],
                        label,
                        said.confidence(place, label),
                        self._distance(tried, row, clean[row], tested[row]),
                    )
                else:
                    (self.folder / f"{names[numbers[row]]}.png").unlink()
        return kept

    def _distance(self, tried: Attempt, row: int, clean: Levels, levels: Levels) -> float:
        """Between the files, or that of the parameters."""
        norm = self.choice.norm
        return tried.distances[row] if is_rendered(norm) else distance(clean, levels, norm)

    def _compare(self, clean: Levels, kept: "_Kept", tried: Attempt, row: int, name: str) -> None:
        label = int(tried.y[row])
        titles = Titles(
            with_confidence(self.classes.text(label), tried.clean.confidence(row, label)),
            with_confidence(self.classes.text(kept.label), kept.confidence),
            f"{self.choice.norm} {kept.distance:.4g}",
        )
        write_comparison(clean, kept.levels, titles, self.folder / f"{name}.comparison.png")

    def _result(
        self, tried: Attempt, row: int, number: int, name: str, kept: "_Kept | None", last: Opinion
    ) -> PictureResult:
        assert self.data.files is not None
        label, outcome = int(tried.y[row]), tried.outcomes[row]
        answer = int(last.labels[row]) if kept is None else kept.label
        return PictureResult(
            source=self.data.files[number],
            file="" if kept is None else f"{name}.png",
            label=self.classes.text(label),
            label_is_prediction=self.labels[number] is None,
            confidence=tried.clean.confidence(row, label),
            prediction=self.classes.text(answer),
            prediction_confidence=last.confidence(row, answer) if kept is None else kept.confidence,
            outcome="lost in rounding" if outcome == "broken" and kept is None else outcome,
            distance=None if kept is None else kept.distance,
            queries=tried.queries[row],
        )


class _Kept(NamedTuple):
    """An adversarial example that was verified as it is in its file."""

    levels: Levels
    label: int
    confidence: float | None
    distance: float


def _through_file(levels: Levels, path: Path) -> Tensor:
    """The picture as a program reads it that opens the file."""
    write_png(levels, path)
    return Decoder((path,), (0,), PictureReader(mode="L" if len(levels) == 1 else "RGB"))[0][0]


def write_results(results: Sequence[PictureResult], choice: AttackChoice, folder: Path) -> None:
    """Write results.csv with one line for each picture."""
    text = io.StringIO()
    columns = [*PictureResult._fields, "norm", "eps", "attack"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for result in results:
        values = [*result, choice.norm_label, choice.eps, choice.method]
        writer.writerow([csv_cell(str(value) if isinstance(value, Path) else value) for value in values])
    (folder / "results.csv").write_bytes(encodable(text.getvalue()).encode())
