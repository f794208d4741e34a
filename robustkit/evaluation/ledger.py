"""What the evidence already holds about one model, and so what is left to do. The evidence is read once."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.attack_columns import Integers
from robustkit.evaluation.plan import Plan, PlannedAttack
from robustkit.evidence.audit import draw
from robustkit.evidence.rows import AttackRecord, CleanRecord, DrawRecord, NearnessRecord, PictureRecord, Row
from robustkit.evidence.store import Store
from robustkit.evidence.stored_columns import attack_columns
from robustkit.primitives.ensembles import Threshold
from robustkit.primitives.reach import bent

_Key = tuple[str, str, str]  # norm, eps_text, name of the attack
_FINISHED, _BROKEN = 1, 2  # marks: a set of images would take a hundred bytes for each


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
        self.store, self.model, self.plan, self.ids, self.seed = store, model, plan, ids, seed
        clean = store.clean(model)
        self._failed = set(store.failed(model))
        self._right = {number: row.pred == row.label for number, row in clean.items()}
        self._numbers = np.unique([*ids, *clean]).astype(np.int64)
        self._marks: dict[_Key, NDArray[np.uint8]] = {}  # for each of the numbers
        for (norm, eps_text, name), rows in attack_columns(store, model).items() if clean else ():
            self._note((norm, eps_text, name), rows.sample, rows.success)

    def write(self, rows: Iterable[Row]) -> None:
        """Commit rows of evidence."""
        rows = list(rows)
        self.store.write(rows)
        attacked: dict[_Key, list[tuple[int, int]]] = {}
        for row in rows:
            if isinstance(row, CleanRecord):
                self._right.setdefault(row.sample, row.pred == row.label)
            elif isinstance(row, AttackRecord):
                attacked.setdefault((row.norm, row.eps_text, row.attack), []).append((row.sample, row.success))
        for key, pairs in attacked.items():
            self._note(key, *np.array(pairs, np.int64).T)

    @property
    def clean_todo(self) -> list[int]:
        """Images whose clean prediction is missing."""
        return [number for number in self.ids if number not in self._right and number not in self._failed]

    @property
    def clean_correct(self) -> int:
        """How many images are known to be classified correctly."""
        return sum(self._right.values())

    @property
    def clean_done(self) -> int:
        """How many images have a clean prediction."""
        return len(self._right)

    @property
    def unfinished(self) -> set[int]:
        """Images whose clean prediction is missing, or that an attack has to attack yet."""
        return set(self.clean_todo).union(*(self.todo(attack) for attack in self.plan.attacks))

    @property
    def complete(self) -> bool:
        """Whether every image of every attack is in the evidence, so that the model need not be touched."""
        return not self.clean_todo and not any(self.todo(attack) for attack in self.plan.attacks)

    def todo(self, attack: PlannedAttack) -> list[int]:
        """Images meant for this attack that it has not finished and its column has not broken."""
        left = self.targets(attack) - self.finished(attack) - self.broken(attack)
        return [number for number in self.ids if number in left]

    def finished(self, attack: PlannedAttack) -> set[int]:
        """Images that this attack has finished."""
        return self._marked(_key(attack), _FINISHED)

    def robust(self, attack: PlannedAttack) -> int:
        """How many images the attack's column has left standing so far."""
        images = self.correct() if attack.column.audit is None else self.survivors(attack)
        return len(images - self.broken(attack))

    def targets(self, attack: PlannedAttack) -> set[int]:
        """Images that the attack is meant for: all that are classified correctly; for an audit some random survivors.

        Those of an audit are final once all other attacks at this threat have finished.
        """
        if attack.column.audit is None:
            return self.correct()
        # No number of draws makes AutoAttack fit for answers at random.
        if self.model in self.store.manifest().get("randomized", {}):
            return set()
        return draw(self.seed, self.survivors(attack), attack.column.audit)

    def survivors(self, attack: PlannedAttack) -> set[int]:
        """Images that no attack at this threat broke, apart from audits."""
        here = [each for each in self.plan.attacks if each.threat == attack.threat and not each.column.audit]
        columns = {each.column.name: each for each in here}
        return self.correct().difference(*(self.broken(each) for each in columns.values()))

    def correct(self) -> set[int]:
        """The images of the run that are classified correctly."""
        return {number for number in self.ids if self._right.get(number, False) and number not in self._failed}

    def broken(self, attack: PlannedAttack) -> set[int]:
        """Images that any attack of the column broke, at this radius or at a smaller one.

        A smaller radius does not say how near the nearest error is.
        """
        here = attack.threat
        column = [each for each in self.plan.attacks if each.column is attack.column]
        radii = [each.threat for each in column] if math.isfinite(here.eps) else [here]
        smaller = {each for each in radii if each.norm == here.norm and each.eps <= here.eps}
        keys = [_key(each) for each in column if each.threat in smaller]
        return set[int]().union(*(self._marked(key, _BROKEN) for key in keys))

    def carry_over(self, attack: PlannedAttack) -> None:
        """Copy what was broken at the next smaller radius: the same point breaks it here, at no cost."""
        if attack.smaller is None:
            return
        key, text = _key(attack), attack.threat.eps_text
        fresh = self._marked((key[0], attack.smaller, key[2]), _BROKEN) - self._marked(key, _FINISHED)
        if not fresh:
            return
        where = {"norm": attack.threat.norm, "eps_text": attack.smaller, "attack": attack.name}
        records = [row for row in self.store.rows(AttackRecord, self.model, **where) if row.sample in fresh]
        pictures = [row for row in self.store.rows(PictureRecord, self.model, **where) if row.sample in fresh]
        draws = [row for row in self.store.rows(DrawRecord, self.model, **where) if row.sample in fresh]
        copies: list[AttackRecord | DrawRecord | PictureRecord] = [
            *(replace(row, eps_text=text, forwards=0, backwards=0) for row in records),
            *(replace(row, eps_text=text) for row in draws),
            *(replace(row, eps_text=text) for row in pictures),
        ]
        self.write(copies)

    def passed_over(
        self, attack: PlannedAttack, todo: Sequence[int], near: Mapping[int, NearnessRecord], *, noisy: bool
    ) -> set[int]:
        """The images that are far from every other class, so that the attack leaves them out.

        Args:
            attack: a member of an ensemble, or any other attack, which leaves out nothing.
            todo: as `todo` returns it for this attack.
            near: as `near` returns it for this attack.
            noisy: whether the model answers at random, for which some members are not made.
        """
        if noisy and not attack.member.for_noise:
            return set(todo)
        return {each for each in todo if each in near and not _is_near(near[each], attack.threshold)}

    def leave_out(self, attack: PlannedAttack, images: Collection[int]) -> None:
        """Leave images out of a later member of an ensemble: their results stay as they are, at no cost."""
        if images:
            where = _threat(attack)
            records = {
                row.sample: row
                for name in self._before(attack)
                for row in self.store.rows(AttackRecord, self.model, attack=name, **where)
            }
            self.write(
                replace(records[number], attack=attack.name, question=0, forwards=0, backwards=0)
                for number in sorted(images)
            )

    def near(self, attack: PlannedAttack) -> dict[int, NearnessRecord]:
        """By image, what the members before this one have measured: the latest, with the smallest ratio.

        Empty for an attack that does not ask for it.
        """
        found: dict[int, NearnessRecord] = {}
        if attack.threshold == Threshold():
            return found
        for name in self._before(attack):
            for row in self.store.rows(NearnessRecord, self.model, attack=name, **_threat(attack)):
                before = found.get(row.sample, row)
                classes = dict.fromkeys([*row.classes.split(), *before.classes.split()])
                ratio = min(row.ratio, before.ratio)
                found[row.sample] = replace(row, ratio=ratio, classes=" ".join(classes))
        return found

    def _before(self, attack: PlannedAttack) -> list[str]:
        """The members before this one, in their order."""
        column = [each for each in self.plan.attacks if each.column is attack.column and each.threat == attack.threat]
        return [each.name for each in column[: column.index(attack)]]

    def _note(self, key: _Key, samples: Integers, success: Integers) -> None:
        marks = self._marks.setdefault(key, np.zeros(len(self._numbers), np.uint8))
        known = np.isin(samples, self._numbers)  # not so in evidence that somebody changed, which the tables refuse
        both = np.where(success[known], _FINISHED | _BROKEN, _FINISHED).astype(np.uint8)
        marks[np.searchsorted(self._numbers, samples[known])] |= both

    def _marked(self, key: _Key, mark: int) -> set[int]:
        marks = self._marks.get(key)
        return set() if marks is None else set(self._numbers[marks & mark > 0].tolist())


def _key(attack: PlannedAttack) -> _Key:
    return attack.threat.norm, attack.threat.eps_text, attack.name


def _threat(attack: PlannedAttack) -> dict[str, str]:
    return {"norm": attack.threat.norm, "eps_text": attack.threat.eps_text}


def _is_near(row: NearnessRecord, threshold: Threshold) -> bool:
    return row.ratio < (threshold.if_bent if bent(row.predicted, row.obtained) else threshold.below)
