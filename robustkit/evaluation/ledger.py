"""What the evidence already holds about one model, and so what is left to do. The evidence is read once."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from robustkit.evaluation.plan import Plan, PlannedAttack
from robustkit.evidence.audit import draw
from robustkit.evidence.rows import (
    AttackRecord,
    CleanRecord,
    DrawRecord,
    FailedRecord,
    NearnessRecord,
    PictureRecord,
    Row,
)
from robustkit.evidence.store import Store
from robustkit.primitives.ensembles import Threshold
from robustkit.primitives.reach import bent

_Key = tuple[str, str, str]  # norm, eps_text, name of the attack


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
        self._finished: dict[_Key, set[int]] = {}
        self._broken: dict[_Key, set[int]] = {}
        if clean:
            for row in store.rows(AttackRecord, model):
                self._note(row)

    def write(self, rows: Iterable[Row]) -> None:
        """Commit rows of evidence."""
        rows = list(rows)
        self.store.write(rows)
        for row in rows:
            if isinstance(row, CleanRecord):
                self._right.setdefault(row.sample, row.pred == row.label)
            elif isinstance(row, AttackRecord):
                self._note(row)
            elif isinstance(row, FailedRecord):
                self._failed.add(row.sample)

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
    def complete(self) -> bool:
        """Whether every image of every attack is in the evidence, so that the model need not be touched."""
        return not self.clean_todo and not any(self.todo(each) or self._to_carry(each) for each in self.plan.attacks)

    def todo(self, attack: PlannedAttack) -> list[int]:
        """Images meant for this attack that it has not finished and its column has not broken."""
        left = self.targets(attack) - self.finished(attack) - self.broken(attack)
        return [number for number in self.ids if number in left]

    def lacking(self, attack: PlannedAttack, images: Iterable[int]) -> list[int]:
        """Those of some images that are to do for an attack which is no audit; takes no longer for a large run."""
        settled = [self._failed, self.finished(attack), *self._breaking(attack)]
        return [each for each in images if self._right.get(each, False) and not any(each in done for done in settled)]

    def finished(self, attack: PlannedAttack) -> set[int]:
        """Images that this attack has finished."""
        return self._finished.get(_key(attack), set())

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
        return set().union(*self._breaking(attack))

    def _breaking(self, attack: PlannedAttack) -> list[set[int]]:
        here = attack.threat
        column = [each for each in self.plan.attacks if each.column is attack.column]
        radii = [each.threat for each in column] if math.isfinite(here.eps) else [here]
        smaller = {each for each in radii if each.norm == here.norm and each.eps <= here.eps}
        keys = [_key(each) for each in column if each.threat in smaller]
        return [self._broken[key] for key in keys if key in self._broken]

    def _to_carry(self, attack: PlannedAttack, images: Collection[int] | None = None) -> set[int]:
        """Images that this attack broke at the next smaller radius, and that have no result here."""
        if attack.smaller is None:
            return set()
        broken = self._broken.get((attack.threat.norm, attack.smaller, attack.name), set())
        return (broken if images is None else broken.intersection(images)) - self.finished(attack)

    def carry_over(self, attack: PlannedAttack, images: Collection[int] | None = None) -> None:
        """Copy what was broken at the next smaller radius: the same point breaks it here, at no cost.

        Args:
            attack: at the larger radius.
            images: only these; None for all.
        """
        text, fresh = attack.threat.eps_text, self._to_carry(attack, images)
        if not fresh:
            return
        where = (attack.threat.norm, str(attack.smaller), attack.name)
        copies: list[Row] = []
        for row in self.store.about(self.model, sorted(fresh), [where]):
            if isinstance(row, AttackRecord):
                copies.append(replace(row, eps_text=text, forwards=0, backwards=0))
            elif isinstance(row, DrawRecord | PictureRecord):
                copies.append(replace(row, eps_text=text))
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

    def _note(self, row: AttackRecord) -> None:
        key = (row.norm, row.eps_text, row.attack)
        self._finished.setdefault(key, set()).add(row.sample)
        if row.success:
            self._broken.setdefault(key, set()).add(row.sample)


def _key(attack: PlannedAttack) -> _Key:
    return attack.threat.norm, attack.threat.eps_text, attack.name


def _threat(attack: PlannedAttack) -> dict[str, str]:
    return {"norm": attack.threat.norm, "eps_text": attack.threat.eps_text}


def _is_near(row: NearnessRecord, threshold: Threshold) -> bool:
    return row.ratio < (threshold.if_bent if bent(row.predicted, row.obtained) else threshold.below)
