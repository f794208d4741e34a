"""What the evidence already holds about one model, and so what is left to do. The evidence is read once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from robustkit.evaluation.image_marks import ImageMarks, Numbers, Places, neighbours_together, parts_of
from robustkit.evaluation.plan import Plan, PlannedAttack
from robustkit.evidence.audit import draw
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.evidence.rows import (
    CLEAN_CELL,
    AttackRecord,
    CleanRecord,
    DrawRecord,
    FailedRecord,
    NearnessRecord,
    PictureRecord,
    Row,
)
from robustkit.evidence.store import Store
from robustkit.evidence.stored_columns import attack_parts, attacked_cells
from robustkit.primitives.stage import Threshold

_Key = tuple[str, str, str]  # norm, eps_text, name of the attack

_JUDGED, _RIGHT, _FAILED, _FALLEN = 1, 2, 4, 8  # marks on a clean image; fallen where any attack broke it;
_FINISHED, _BROKEN = 1, 2  # and under an attack
_AT_ONCE: Final = 2000  # images whose rows are in memory together


class Ledger:
    """The state of one model's part of a run; every row is written through it.

    Args:
        store: the evidence.
        model: name of the model.
        plan: all attacks of the run.
        ids: numbers of the images, in the order of work.
        seed: of the run.
    """

    def __init__(self, store: Store, model: str, plan: Plan, ids: Sequence[int], seed: int) -> None:
        self.store, self.model, self.plan, self.seed = store, model, plan, seed
        # Images with a clean prediction, with a right one, and those of them that no attack has broken so far.
        self.clean_done = self.clean_correct = self.standing = 0
        clean = CleanColumns.read(store, model)
        numbers = np.fromiter(ids, np.int64, len(ids))
        self._marks: ImageMarks[_Key] = ImageMarks(np.concatenate([numbers, clean.sample]))
        self._ids = self._marks.places(neighbours_together(numbers)).astype(np.int32)  # in the order of work
        failed = np.fromiter(store.failed(model), np.int64)
        self._note_failed(failed[self._marks.known(failed)])
        self._note_clean(clean.sample, clean.is_right)
        for cell in attacked_cells(store, model) if len(clean) else ():
            for rows in attack_parts(store, model, cell):
                # Others are in evidence that somebody changed, which the tables refuse.
                known = self._marks.known(rows.sample)
                self._note(cell, rows.sample[known], rows.success[known])

    def write(self, rows: Iterable[Row]) -> None:
        """Commit rows of evidence."""
        rows = list(rows)
        self.store.write(rows)
        clean: list[tuple[int, bool]] = []
        attacked: dict[_Key, list[tuple[int, int]]] = {}
        for row in rows:
            if isinstance(row, AttackRecord):
                attacked.setdefault((row.norm, row.eps_text, row.attack), []).append((row.sample, row.success))
            elif isinstance(row, CleanRecord):
                clean.append((row.sample, row.pred == row.label))
            elif isinstance(row, FailedRecord):
                self._note_failed(np.array([row.sample]))
        if clean:
            samples, right = np.array(clean, np.int64).T
            self._note_clean(samples, right)
        for key, pairs in attacked.items():
            self._note(key, *np.array(pairs, np.int64).T)

    @property
    def clean_todo(self) -> Numbers:
        """Images whose clean prediction is missing, in the order of work."""
        todo = self._ids[~self._marks.marked(CLEAN_CELL, _JUDGED | _FAILED, self._ids)]
        return self._images(todo)

    @property
    def complete(self) -> bool:
        """Whether every image of every attack is in the evidence, so that the model need not be touched."""
        if not self._marks.marked(CLEAN_CELL, _JUDGED | _FAILED, self._ids).all():
            return False
        return not any(len(self.todo(each)) or self._to_carry(each).any() for each in self.plan.attacks)

    def todo(self, attack: PlannedAttack) -> Numbers:
        """Images meant for this attack that it has not finished and its column has not broken, in the order of work."""
        places = self._ids[self._open(attack, self._ids)]
        images = self._images(places)
        return images if attack.column.audit is None else images[np.isin(images, self.targets(attack))]

    def lacking(self, attack: PlannedAttack, images: Numbers) -> Numbers:
        """Those of some images that are to do for an attack which is no audit; takes no longer for a large run.

        The same array if all of them are.
        """
        to_do = self._open(attack, self._marks.places(images))
        return images if to_do.all() else images[to_do]

    def finished(self, attack: PlannedAttack) -> int:
        """How many images this attack has finished."""
        return int(self._marks.marked(_key(attack), _FINISHED).sum())

    def robust(self, attack: PlannedAttack) -> int:
        """How many images the attack's column has left standing so far."""
        places = self._ids if attack.column.audit is None else self._marks.places(self.survivors(attack))
        return int((self._correct(places) & ~self._broken(attack, places)).sum())

    def targets(self, attack: PlannedAttack) -> Numbers:
        """Images that the attack is meant for, ascending: the correctly classified ones; for an audit some survivors.

        Survivors are drawn at random; they are final once all other attacks at this threat have finished.
        """
        if attack.column.audit is None:
            return np.sort(self._images(self._ids[self._correct(self._ids)]))
        # No number of draws makes AutoAttack fit for randomized models.
        if self.model in self.store.manifest().get("randomized", {}):
            return np.empty(0, np.int64)
        return np.array(sorted(draw(self.seed, self.survivors(attack).tolist(), attack.column.audit)), np.int64)

    def survivors(self, attack: PlannedAttack) -> Numbers:
        """Images that no attack at this threat broke, apart from audits; ascending."""
        here = [each for each in self.plan.attacks if each.threat == attack.threat and not each.column.audit]
        standing = self._correct(self._ids)
        for each in {each.column.name: each for each in here}.values():
            standing &= ~self._broken(each, self._ids)
        return np.sort(self._images(self._ids[standing]))

    def carry_over(self, attack: PlannedAttack, images: Sequence[int] | None = None) -> None:
        """Copy what was broken at the next smaller radius: the same point breaks it here, at no cost.

        Args:
            attack: at the larger radius.
            images: only these; None for all.
        """
        places = None if images is None else self._marks.places(images)
        chosen = self._to_carry(attack, places)
        fresh = np.sort(self._images(np.flatnonzero(chosen) if places is None else places[chosen]))
        text, where = attack.threat.eps_text, (attack.threat.norm, str(attack.smaller), attack.name)
        for part in parts_of(fresh, _AT_ONCE):
            copies: list[Row] = []
            for row in self.store.about(self.model, part, [where]):
                if isinstance(row, AttackRecord):
                    copies.append(replace(row, eps_text=text, forwards=0, backwards=0))
                elif isinstance(row, DrawRecord | PictureRecord):
                    copies.append(replace(row, eps_text=text))
            self.write(copies)

    def passed_over(self, attack: PlannedAttack, todo: Numbers, *, noisy: bool, replaced: bool) -> Numbers:
        """The images that are far from every other class, as all are at radius 0, so that the attack leaves them out.

        Args:
            attack: a member of an ensemble, or any other attack, which leaves out nothing.
            todo: as `todo` returns it for this attack.
            noisy: whether the model is randomized, for which some members are not made.
            replaced: whether attacks follow gradients that replace the model's own.
        """
        if noisy and not attack.stage.for_noise:
            return todo
        if attack.stage.threshold != Threshold() and attack.threat.eps == 0:
            return todo  # nothing is near enough, and nothing can be measured
        if replaced and attack.stage.all_if_replaced:
            return todo[:0]
        near = (self.near(attack, part) for part in parts_of(todo, _AT_ONCE))
        far = [each for part in near for each, row in part.items() if not _is_near(row, attack.stage.threshold)]
        return np.array(far, np.int64)

    def leave_out(self, attack: PlannedAttack, images: Numbers) -> None:
        """Leave images out of a later member of an ensemble: their results stay as they are, at no cost."""
        for part in parts_of(np.sort(images), _AT_ONCE):
            records = {row.sample: row for where in self._before(attack)
                       for row in self.store.of_images(AttackRecord, self.model, part, where)}  # fmt: skip
            self.write(
                replace(records[number], attack=attack.name, queries_to_break=0, forwards=0, backwards=0)
                for number in part
            )

    def near(self, attack: PlannedAttack, images: Sequence[int]) -> Mapping[int, NearnessRecord]:
        """By image, what the members before this one have measured: the latest, with the smallest ratio so far.

        Empty for an attack that does not ask for it.
        """
        found: dict[int, NearnessRecord] = {}
        if attack.stage.threshold == Threshold():
            return found
        for where in self._before(attack):
            for row in self.store.of_images(NearnessRecord, self.model, images, where):
                before = found.get(row.sample, row)
                classes = dict.fromkeys([*row.classes.split(), *before.classes.split()])
                ratio = min(row.ratio, before.ratio)
                at_clean = max(row.at_clean, before.at_clean)
                found[row.sample] = replace(row, ratio=ratio, classes=" ".join(classes), at_clean=at_clean)
        return found

    def _images(self, places: Places) -> Numbers:
        return self._marks.images[places]

    def _correct(self, places: Places) -> NDArray[np.bool_]:
        """Whether images are classified correctly."""
        return self._marks.marked(CLEAN_CELL, _RIGHT, places) & ~self._marks.marked(CLEAN_CELL, _FAILED, places)

    def _open(self, attack: PlannedAttack, places: Places) -> NDArray[np.bool_]:
        """Whether images are correct, not finished, and not broken by the column; an audit is meant for few of them."""
        unfinished = ~self._marks.marked(_key(attack), _FINISHED, places)
        return self._correct(places) & unfinished & ~self._broken(attack, places)

    def _broken(self, attack: PlannedAttack, places: Places) -> NDArray[np.bool_]:
        """Whether any attack of the column broke images, at this radius or at a smaller one.

        A smaller radius does not say how near the nearest error is.
        """
        here = attack.threat
        column = [each for each in self.plan.attacks if each.column is attack.column]
        radii = [each.threat for each in column] if math.isfinite(here.eps) else [here]
        smaller = {each for each in radii if each.norm == here.norm and each.eps <= here.eps}
        keys = (_key(each) for each in column if each.threat in smaller)
        return self._marks.marked_under_any(keys, _BROKEN, places)

    def _to_carry(self, attack: PlannedAttack, places: Places | None = None) -> NDArray[np.bool_]:
        """Whether this attack broke images at the next smaller radius, if any, and they have no result here."""
        broken = self._marks.marked((attack.threat.norm, str(attack.smaller), attack.name), _BROKEN, places)
        return broken & ~self._marks.marked(_key(attack), _FINISHED, places)

    def _before(self, attack: PlannedAttack) -> list[_Key]:
        """The members before this one, in their order."""
        column = [each for each in self.plan.attacks if each.column is attack.column and each.threat == attack.threat]
        return [_key(each) for each in column[: column.index(attack)]]

    def _note_clean(self, samples: Numbers, right: NDArray[Any]) -> None:
        places = self._marks.places(samples)
        fresh = ~self._marks.marked(CLEAN_CELL, _JUDGED, places)
        correct = right[fresh] > 0
        self._marks.mark(CLEAN_CELL, places[fresh], np.where(correct, _JUDGED | _RIGHT, _JUDGED))
        right_ones = int(correct.sum())
        self.clean_done += len(correct)
        self.clean_correct += right_ones
        self.standing += right_ones

    def _note_failed(self, samples: Numbers) -> None:
        self._marks.mark(CLEAN_CELL, self._marks.places(samples), _FAILED)

    def _note(self, key: _Key, samples: Numbers, success: Numbers) -> None:
        places = self._marks.places(samples)
        self._marks.mark(key, places, np.where(success > 0, _FINISHED | _BROKEN, _FINISHED))
        broken = places[success > 0]
        self.standing -= int((~self._marks.marked(CLEAN_CELL, _FALLEN, broken)).sum())
        self._marks.mark(CLEAN_CELL, broken, _FALLEN)


def _key(attack: PlannedAttack) -> _Key:
    return attack.threat.norm, attack.threat.eps_text, attack.name


def _is_near(row: NearnessRecord, threshold: Threshold) -> bool:
    return threshold.reaches(row.ratio, row.at_clean, row.predicted, row.obtained)
