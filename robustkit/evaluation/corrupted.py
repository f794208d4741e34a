"""One model on corrupted images: one verdict for each image under each corruption at each severity."""

import zlib
from collections.abc import Sequence

from torch import Tensor

from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.sanity_checks import checked_scores
from robustkit.classifier.session import Session
from robustkit.common_corruptions.suite import CorruptionLevel, hash_of, images_of
from robustkit.evaluation.attacking import READ_AT_ONCE
from robustkit.evaluation.resolved import Evaluation
from robustkit.evidence.rows import CorruptedRecord
from robustkit.evidence.store import Store
from robustkit.evidence.stored_corruptions import corrupted_verdicts
from robustkit.host.progress import ProgressWatch

_NUMBERS = 40  # bits that the numbers of images take; the name of a cell lies above them


class CorruptedImages:
    """The part of one model's evaluation that is about corrupted images; empty if the run has none.

    Args:
        evaluation: the whole.
        model: name of the model.
        store: the evidence.
        watch: is told of the progress.
    """

    def __init__(self, evaluation: Evaluation, model: str, store: Store, watch: ProgressWatch) -> None:
        self.evaluation, self.model, self.store, self.watch = evaluation, model, store, watch
        self.cells = () if evaluation.suite is None else evaluation.suite.cells
        self._done: dict[CorruptionLevel, set[int]] = {}
        self._failed = set(store.failed(model))
        for level, verdicts in corrupted_verdicts(store, model).items() if self.cells else ():
            self._done[CorruptionLevel(*level)] = set(verdicts)

    @property
    def complete(self) -> bool:
        """Whether the evidence is complete."""
        return all(not self._todo(cell, self.evaluation.share) for cell in self.cells)

    @property
    def unfinished(self) -> set[int]:
        """Images that are not judged under every corruption yet."""
        return set[int]().union(*(self._todo(cell, self.evaluation.share) for cell in self.cells))

    def judge(self, session: Session, given: InputFormat) -> None:
        """Judge what is missing. An image is read once, and then judged under every corruption.

        Args:
            session: of the model.
            given: the range, device and type of its input.
        """
        ids, chosen = self.evaluation.share, set(self.evaluation.share)
        done = sum(len(chosen & self._done.get(cell, set())) for cell in self.cells)
        self.watch.stage(f"{self.model} corruptions", len(ids) * len(self.cells), done)
        right = fresh = 0
        for start in range(0, len(ids), READ_AT_ONCE):
            part = ids[start : start + READ_AT_ONCE]
            clean, y = self.evaluation.data.batch(part)
            label = dict(zip(part, y.tolist(), strict=True))
            row_of = {number: row for row, number in enumerate(part)}
            for cell in self.cells:
                todo = self._todo(cell, part)
                if todo:
                    places = [row_of[number] for number in todo]
                    rows = self._judged(session, given, cell, todo, clean[places], y[places])
                    self.store.write(rows)
                    self._done.setdefault(cell, set()).update(todo)
                    right += sum(row.pred == label[row.sample] for row in rows)
                    fresh += len(rows)
                    self.watch.advance(len(rows), right / fresh)

    def _judged(
        self, session: Session, given: InputFormat, cell: CorruptionLevel, part: Sequence[int], clean: Tensor, y: Tensor
    ) -> list[CorruptedRecord]:
        assert self.evaluation.suite is not None
        pictures = self.evaluation.suite.pictures(cell, part, clean)
        # Another stream of a randomized model's noise for each cell.
        stream = (zlib.crc32(f"{cell.corruption} {cell.severity}".encode()) & 0x3FFFFF) << _NUMBERS
        verdicts = session.clean_verdicts(given.moved(images_of(pictures)), [stream + number for number in part])
        checked_scores(verdicts.class_scores, y, self.model, part)
        return [
            CorruptedRecord(self.model, *cell, number, int(label), hash_of(picture))
            for number, label, picture in zip(part, verdicts.labels, pictures, strict=True)
        ]

    def _todo(self, cell: CorruptionLevel, part: Sequence[int]) -> list[int]:
        done = self._done.get(cell, set())
        return [number for number in part if number not in done and number not in self._failed]
