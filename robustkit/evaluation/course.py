"""One model's way through a plan: clean images first, then every cell, each image's row committed as it is finished."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from robustkit.classifier import smoothing
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_images, checked_model
from robustkit.engine import attack_tensors as crafting
from robustkit.engine import scheduler as engine
from robustkit.errors import UserError
from robustkit.evaluation.plan import PlannedAttack
from robustkit.evaluation.setting import Setting
from robustkit.evidence.store import AttackRecord, CertificateRecord, CleanRecord, PictureRecord, Store
from robustkit.host.progress import ProgressWatch
from robustkit.primitives.threat import NORMS, ball

_COMMIT_SECONDS = 0.5  # a killed run does at most this much work twice
_RANKED = 1000  # wrong classes remembered per image, for attacks that aim at the likeliest
_PICTURED = 24  # images whose witnesses are kept for the report
_PICTURE_VALUES = 3 * 256 * 256  # and only if they are no larger than this


@dataclass
class Course:
    """One model's part of a run."""

    setting: Setting
    classifier: Classifier
    store: Store
    watch: ProgressWatch

    def run(self) -> None:
        """Clean accuracy first, then every cell of the plan."""
        setting, classifier = self.setting, self.classifier
        if self.complete:
            return
        first, _ = setting.data.batch(setting.ids[:64])
        images = self._points(first, setting.ids[:64])
        with classifier.session(images, setting.seed), ExitStack() as stack:
            for surrogate in setting.surrogates:
                stack.enter_context(surrogate.session(images, setting.seed))
            for each in (classifier, *setting.surrogates):
                for warning in checked_model(each, images):
                    self._warn(f"{each.name}: {warning}")
            self._warn_out_of_reach(images[0].numel())
            self._timed("clean", self._clean)
            for cell in setting.plan.cells():
                self._timed(f"{cell.threat.norm} {cell.threat.eps_text} {cell.name}", partial(self._cell, cell))

    def slots(self, asked: Classifier) -> int:
        """Rows in flight."""
        if self.setting.slots is not None:
            return self.setting.slots
        shapes = asked.shapes
        assert shapes is not None
        return shapes.reference if shapes.exact else 8 * shapes.reference

    def _clean(self) -> None:
        name = self.classifier.name
        known = self.store.clean(name)
        todo = [number for number in self.setting.ids if number not in known]
        self.watch.stage(f"{name} clean", len(self.setting.ids), len(known))
        right = sum(row.pred == row.label for row in known.values())
        done = len(known)
        # The many copies of an image that is smoothed are worth a commit of its own.
        for part in _parts(todo, 64 if self.classifier.smoothing is None else 1):
            x, y = self.setting.data.batch(part)
            said, proofs = self._said(self._points(x, part), y, part)
            self.store.write([*said, *proofs])
            right += sum(row.pred == row.label for row in said)
            done += len(said)
            self.watch.advance(len(said), right / done)

    def _said(
        self, images: Tensor, y: Tensor, part: Sequence[int]
    ) -> tuple[list[CleanRecord], list[CertificateRecord]]:
        """What the model says of clean images, and what of it is certain."""
        name, how = self.classifier.name, self.classifier.smoothing
        votes = None if how is None else self.classifier.poll(images, part)
        scores = (self.classifier.judge(images) if votes is None else votes.counted).cpu()
        self._check_logits(self.classifier, scores, y, part)
        said = [
            CleanRecord(name, number, int(label), int(pred), _ranking(row, int(label)))
            for number, label, pred, row in zip(part, y, self.classifier.decided(scores), scores, strict=True)
        ]
        if how is None or votes is None:
            return said, []
        proof = smoothing.certified(votes, how, images[0].numel())
        top = votes.chosen.argmax(1)
        radii = [proof.radius_in(norm) for norm in ("Linf", "L2", "L1")]
        columns = (top, votes.counted.gather(1, top[:, None]).squeeze(1), proof.probability, *radii)
        rows = zip(part, *(column.tolist() for column in columns), strict=True)
        return said, [CertificateRecord(name, *row) for row in rows]

    def _points(self, x: Tensor, part: Sequence[int]) -> Tensor:
        return self.classifier.moved(checked_images(x, (0, 1), part))

    def _check_logits(self, classifier: Classifier, logits: Tensor, y: Tensor, part: Sequence[int]) -> None:
        bad = (~logits.isfinite()).any(1).nonzero().flatten().tolist()
        if bad:
            raise UserError(f"The model {classifier.name} returns NaN or infinite logits for image {part[bad[0]]}.")
        high = (y >= logits.shape[1]).nonzero().flatten().tolist()
        if high:
            raise UserError(
                f"Image {part[high[0]]} has label {int(y[high[0]])}, but the model {classifier.name} knows "
                f"classes 0 to {logits.shape[1] - 1}; use a model for this data set, or --num-classes."
            )

    def _cell(self, cell: PlannedAttack) -> None:
        """Attack what is neither finished nor already broken."""
        name, threat = self.classifier.name, cell.threat
        key = {"norm": threat.norm, "eps_text": threat.eps_text, "attack": cell.name}
        self._carry_over(cell)
        clean = self.store.clean(name)
        chosen = set(self.setting.ids)
        right = {number for number, row in clean.items() if number in chosen and row.pred == row.label}
        finished = {hit.sample for hit in self.store.hits(name, **key)}
        broken = self._broken(threat.norm, threat.eps_text, cell.column)
        mine = {hit.sample for hit in self.store.hits(name, **key) if hit.success}
        todo = [number for number in self.setting.ids if number in right - finished - (broken - mine)]
        robust = len(right - broken)
        label = f"{name} {threat.norm} {threat.eps_text} {cell.name}"
        self.watch.stage(label, len(todo) + len(finished), len(finished))
        surrogate = next((each for each in self.setting.surrogates if each.name == cell.surrogate), None)
        outcomes = engine.run(
            self.classifier, cell.attack, self._jobs(todo, cell, surrogate),
            slots=self.slots(surrogate or self.classifier), seed=self.setting.seed, surrogate=surrogate,
        )  # fmt: skip
        pending: list[AttackRecord | PictureRecord] = []
        since = time.monotonic()
        try:
            for outcome in outcomes:
                pending += self._rows(cell, outcome)
                robust -= outcome.success
                self.watch.advance(1, robust / len(self.setting.ids))
                if time.monotonic() - since > _COMMIT_SECONDS:
                    self.store.write(pending)
                    pending, since = [], time.monotonic()
        finally:
            # Also when interrupted: what is finished is kept.
            self.store.write(pending)

    def _carry_over(self, cell: PlannedAttack) -> None:
        """What was broken at the next smaller radius is broken at this one, by the same point and at no cost."""
        if cell.smaller is None:
            return
        here = {"norm": cell.threat.norm, "eps_text": cell.smaller, "attack": cell.name}
        before = self.store.hits(self.classifier.name, **here)
        broken = {hit.sample: hit for hit in before if hit.success}
        shots = [
            replace(shot, eps_text=cell.threat.eps_text)
            for shot in self.store.shots(self.classifier.name, **here)
            if shot.sample in broken
        ]
        hits = [replace(hit, eps_text=cell.threat.eps_text, forwards=0, backwards=0) for hit in broken.values()]
        self.store.write([*hits, *shots])

    def _broken(self, norm: str, eps_text: str, column: str) -> set[int]:
        """Images that any attack of this column broke, here or (for later stages) at the next smaller radius."""
        here = [
            cell
            for cell in self.setting.plan.cells()
            if (cell.threat.norm, cell.threat.eps_text, cell.column) == (norm, eps_text, column)
        ]
        texts = {eps_text, *(cell.smaller for cell in here if cell.smaller)}
        return {
            hit.sample
            for text in texts
            for name in {cell.name for cell in here}
            for hit in self.store.hits(self.classifier.name, norm=norm, eps_text=text, attack=name)
            if hit.success
        }

    def _jobs(self, todo: Sequence[int], cell: PlannedAttack, surrogate: Classifier | None) -> Iterator[engine.Job]:
        """Images streamed in, as many at a time as a slot or two hold."""
        for part in _parts(todo, 64):
            x, y = self.setting.data.batch(part)
            images = self._points(x, part)
            rankings = self._rankings(images, y, part, surrogate)
            for number, image, label in zip(part, images, y.tolist(), strict=True):
                yield engine.Job(number, image, label, crafting.loss_targets_of(cell.attack, rankings[number]))

    def _rankings(
        self, images: Tensor, y: Tensor, part: Sequence[int], surrogate: Classifier | None
    ) -> dict[int, list[int]]:
        """The wrong classes of each image, likeliest first, in the eyes of the model that the attack may ask."""
        if surrogate is None:
            return self.store.rankings(self.classifier.name, part)
        logits = surrogate.judge(images).cpu()
        self._check_logits(surrogate, logits, y, part)
        return {number: crafting.likeliest(row, int(label)) for number, row, label in zip(part, logits, y, strict=True)}

    def _rows(self, cell: PlannedAttack, outcome: engine.Outcome) -> list[AttackRecord | PictureRecord]:
        threat = cell.threat
        x, x_adv = outcome.x.unsqueeze(0), outcome.x_adv.unsqueeze(0)
        linf, l2, l1, l0 = (ball(norm, 0).distance(x, x_adv).item() for norm in NORMS)
        key = (self.classifier.name, threat.norm, threat.eps_text, cell.name, outcome.sample)
        rows: list[AttackRecord | PictureRecord] = [
            AttackRecord(
                *key,
                int(outcome.success),
                outcome.label,
                outcome.queries,
                outcome.restart,
                outcome.loss_target,
                linf,
                l2,
                l1,
                int(l0),
                outcome.forwards,
                outcome.backwards,
            )
        ]
        if outcome.sample in self.setting.ids[:_PICTURED] and outcome.x.numel() <= _PICTURE_VALUES:
            shape = " ".join(str(side) for side in outcome.x.shape)
            rows.append(PictureRecord(*key, shape, *(part.numpy().tobytes() for part in (outcome.x, outcome.x_adv))))
        return rows

    @property
    def complete(self) -> bool:
        """Whether every image of every cell is in the evidence already, so that the model need not be touched."""
        name = self.classifier.name
        clean = self.store.clean(name)
        if any(number not in clean for number in self.setting.ids):
            return False
        right = {number for number in self.setting.ids if clean[number].pred == clean[number].label}
        for cell in self.setting.plan.cells():
            where = {"norm": cell.threat.norm, "eps_text": cell.threat.eps_text}
            done = {hit.sample for hit in self.store.hits(name, **where, attack=cell.name)}
            if right - done - self._broken(cell.threat.norm, cell.threat.eps_text, cell.column):
                return False
        return True

    def _timed(self, label: str, work: Callable[[], None]) -> None:
        start = time.monotonic()
        try:
            work()
        finally:
            with suppress(UserError):
                seconds = self.store.manifest()["seconds"]
                key = f"{self.classifier.name} {label}"
                seconds[key] = round(seconds.get(key, 0) + time.monotonic() - start, 3)
                self.store.note(seconds=seconds)

    def _warn_out_of_reach(self, values: int) -> None:
        how = self.classifier.smoothing
        if how is None:
            return
        for norm, text, eps in self.setting.plan.threats:
            most = how.reach * smoothing.share_of(norm, values)
            if eps > most:
                self._warn(
                    f"{self.classifier.name}: at {norm} {text} nothing can be certified: with sigma {how.sigma:g} and "
                    f"{how.n:,} copies no radius exceeds {most:.3g}; take a larger sigma or more copies."
                )

    def _warn(self, text: str) -> None:
        warnings = self.store.manifest()["warnings"]
        if text not in warnings:
            self.store.note(warnings=[*warnings, text])
            self.watch.say(text)


def _ranking(logits: Tensor, label: int) -> str:
    return " ".join(str(number) for number in crafting.likeliest(logits, label)[:_RANKED])


def _parts(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
