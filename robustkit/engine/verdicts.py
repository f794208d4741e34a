"""Verdicts on points that may be adversarial, and on the last point of each trial.

Success is decided here and nowhere else: by a forward of the unmodified model at the point, projected exactly. Its
class must lead by more than rounding, so that the caller's own forward says the same in any batch size.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.oracle import Look, Plain, PointVerdicts
from robustkit.classifier.session import Session
from robustkit.engine.candidates import Candidates
from robustkit.engine.early import EarlyTrials
from robustkit.engine.jobs import Outcome, Trial, by_attack, likeliest, most_verdicts
from robustkit.engine.margins import Margins
from robustkit.engine.own_attacks import check_queries
from robustkit.engine.patience import Patience
from robustkit.engine.trial_queue import TrialQueue
from robustkit.engine.unmeasured import Unmeasured
from robustkit.errors import UserError
from robustkit.primitives.ball import Ball
from robustkit.primitives.levels import on_levels
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, BestState
from robustkit.primitives.rounding import Bounds, scaled
from robustkit.primitives.rows import finite, rows_not_finite

_STRETCHES = (1 + 1e-5, 1 + 1e-4, 1 + 1e-3, 1 + 1e-2)  # times the distance of an error that is not confirmed
_JUDGED_TOGETHER = 64  # points per judging forward: they wait outside the slots, so waiting costs nothing


class _Verdict(NamedTuple):
    point: Tensor  # [*S] projected exactly, on the CPU
    label: int
    confidence: float | None  # the probability of the class
    look: Look


class VerdictQueue:
    """Judges points by the unmodified model, and queues what is left of an image that is not broken.

    Args:
        session: of the model that judges; if jobs have originals, it takes points in their units.
        attack: which made the points.
        queue: of trials.
        early: trials of images whose earlier trials may still succeed.
        patience: seconds that a point waits for others, or longer where judging takes longer.
        margins: for images that are not broken, how near the best points of their last trials are to the wrong
            classes; None not to measure it.
    """

    def __init__(
        self, session: Session, attack: Attack, queue: TrialQueue, early: EarlyTrials, patience: float = math.inf,
        margins: Margins | None = None,
    ) -> None:  # fmt: skip
        self.session, self.attack, self.queue, self.early = session, attack, queue, early
        self.patience = Patience(patience)
        self.unmeasured = None if margins is None else Unmeasured(session, margins, patience)
        self.repeats = isinstance(session.oracle, Plain)  # every answer alike, so that none is drawn anew
        self._waiting: list[Candidates] = []

    def __len__(self) -> int:
        return self._points + (0 if self.unmeasured is None else len(self.unmeasured))

    def add(self, candidates: Candidates) -> None:
        """Queue points for a verdict."""
        self.patience.wait()
        self._waiting.append(candidates)

    def judge(self, live: int) -> Iterator[Outcome]:
        """Outcomes of images that are decided, once enough points wait, or `live` trials are too few to wait for."""
        enough = max(1, min(_JUDGED_TOGETHER, live)) if self.queue.exhausted else _JUDGED_TOGETHER
        while self._points >= enough or self.patience.over:
            groups, self._waiting = self._waiting, []
            with self.patience.computing():
                judged = list(self._judged(groups))
            for group, verdicts in judged:
                yield from self._decided(group, verdicts)
        if self.unmeasured is not None:
            nothing_left = self.queue.exhausted and not live and not len(self.queue) and not self._waiting
            yield from self.unmeasured.measured(last=nothing_left)

    @property
    def _points(self) -> int:
        """How many wait for a verdict."""
        return sum(len(group.trials) for group in self._waiting)

    def _judged(self, groups: list[Candidates]) -> Iterator[tuple[Candidates, list[_Verdict]]]:
        points = torch.cat([group.points for group in groups])
        trials = [trial for group in groups for trial in group.trials]
        samples = [trial.job.sample for trial in trials]
        if not finite(points):
            self._blame(groups)
        points = self._exact(groups, points)
        for trial in trials:
            trial.looks += 1
            trial.forwards += self.attack.ball.forwards
        looks = [look for group in groups for look in self._looks(group)]
        verdicts = self.session.oracle.verdicts(points, looks)
        check_finite(verdicts.scores, samples, "output")
        for trial, forwards in zip(trials, verdicts.forwards, strict=True):
            trial.forwards += forwards
        labels = [
            self._settled(trial, points[row], verdicts, row) if trial.job.lost(label) else label
            for row, (trial, label) in enumerate(zip(trials, verdicts.labels.tolist(), strict=True))
        ]
        confidences = self.session.oracle.confidences(verdicts.scores, labels) or repeat(None)
        each = list(map(_Verdict, points.cpu(), labels, confidences, looks))
        for group in groups:
            count = len(group.trials)
            yield group, each[:count]
            each = each[count:]

    def _blame(self, groups: list[Candidates]) -> None:
        """Name the attack that made points that are not finite: the gradients that led to them were."""
        for group in groups:
            samples = [trial.job.sample for trial in group.trials]
            # A point that is not the last one was queried, so the step after it does not count.
            answers = group.states.queries.tolist()
            steps = [count - (not final) for count, final in zip(answers, group.final, strict=True)]
            check_queries(self.attack, group.points, steps, samples)

    def _settled(self, trial: Trial, point: Tensor, verdicts: PointVerdicts, row: int) -> int:
        """The class at a point that breaks the image; if it leads by no more than rounding, the other."""
        job, before, label = trial.job, self.session.passes.forwards, int(verdicts.labels[row])
        other = job.y if job.target is None else likeliest(verdicts.class_scores[row], job.target)[0]
        sure = self.session.oracle.sure(point, verdicts.scores[row], label, other)
        trial.forwards += self.session.passes.forwards - before
        return label if sure else other

    def _exact(self, groups: list[Candidates], points: Tensor) -> Tensor:
        jobs, mask = [trial.job for group in groups for trial in group.trials], self.attack.mask
        # Not the images of the state, which an attack of the user's own could have moved.
        whole = torch.stack([job.x for job in jobs])
        originals = [job.original for job in jobs if job.original is not None]
        images = torch.stack([each.image for each in originals]) if originals else whole
        x, centres = (whole, images) if mask is None else (mask.inside(whole), mask.inside(images))
        parts, places = [], []
        for attack, numbers in by_attack([trial for group in groups for trial in group.trials]):
            rows = torch.tensor(numbers, device=x.device)
            here = (each.index_select(0, rows) for each in (centres, x, points))
            bounds = originals[0].bounds if originals else None
            parts.append(_projected(attack.ball, bounds, *here, in_levels=self.session.metered))
            places += numbers
        exact = torch.cat(parts).index_select(0, torch.tensor(places, device=x.device).argsort())
        return exact if mask is None else mask.placed(images, exact)

    def _looks(self, group: Candidates) -> list[Look]:
        most = most_verdicts(self.attack)
        rows = zip(group.states.trial.key.tolist(), group.trials, group.final, strict=True)
        return [Look(key, trial.looks, most, final) for key, trial, final in rows]

    def _decided(self, group: Candidates, verdicts: list[_Verdict]) -> Iterator[Outcome]:
        queries: list[int] = group.states.queries.tolist()
        for row, (trial, verdict) in enumerate(zip(group.trials, verdicts, strict=True)):
            success = trial.job.lost(verdict.label)
            if not success and not group.final[row]:
                self._go_on(group, row)
            elif not success and self._stretch(group, row):
                continue
            elif self.attack.unlimited:
                outcome = self._outcome(group, row, verdict, queries[row], success)
                trial.shortest = nearest = self._nearer(trial.shortest, trial, outcome)
                if not self._queued(trial, outcome):
                    yield replace(
                        nearest, forwards=trial.forwards, backwards=trial.backwards, all_queries=trial.queries,
                        approach=tuple(trial.approach),
                    )  # fmt: skip
            elif not success and not trial.last:
                self._try_next(trial)
            else:
                self.early.forget(trial)
                outcome = self._outcome(group, row, verdict, queries[row], success)
                if success or self.unmeasured is None:
                    yield outcome
                else:
                    state = group.states.take(torch.tensor([row], device=group.points.device))
                    assert isinstance(state, BestState)
                    self.unmeasured.add(outcome, state)

    def _try_next(self, failed: Trial) -> None:
        """The next trial of an image, which may have begun."""
        begun = self.early.in_turn(failed)
        if begun is None:
            self.queue.retry(failed)
        elif begun.found is not None:
            self.add(begun.found)

    def _stretch(self, group: Candidates, row: int) -> bool:
        """Without a radius: queue a point a little farther away than an error that the model does not confirm.

        The nearest errors lie so close to the boundary that the network that is queried, rounding otherwise, may see
        one where the model that judges does not.
        """
        trial, state = group.trials[row], group.states
        if not isinstance(state, NearestState) or not self.attack.unlimited or trial.stretched == len(_STRETCHES):
            return False
        one = state.take(torch.tensor([row], device=group.points.device))
        if not bool(one.distance.isfinite()):
            return False
        point = one.trial.x + _STRETCHES[trial.stretched] * (one.nearest - one.trial.x)
        trial.stretched += 1
        self.add(Candidates([trial], one, point.clamp(0, 1), [True]))
        return True

    def _queued(self, trial: Trial, outcome: Outcome) -> bool:
        """Without a radius: queue what is left to do after a trial; False if nothing is."""
        trial.stretched, bisection = 0, trial.bisection
        if not trial.last and not (bisection and outcome.success):
            self.queue.retry(trial)
            return True
        if bisection is None:
            return False
        after = bisection.failed()
        if outcome.success:
            distance = self._distance(trial, outcome)
            trial.note(distance)
            after = bisection.found(distance)
        if not after.over:
            self.queue.bisect(trial, after)
        return not after.over

    def _nearer(self, before: Outcome | None, trial: Trial, now: Outcome) -> Outcome:
        """The success with the smaller distance; the earlier one of two without success."""
        if before is None or not (before.success and now.success):
            return now if before is None or now.success else before
        return now if self._distance(trial, now) < self._distance(trial, before) else before

    def _distance(self, trial: Trial, outcome: Outcome) -> float:
        """Of the point that was judged, in units of pixels that lie in [0, 1]."""
        original, ball = trial.job.original, self.attack.ball
        if original is None:
            return float(ball.distance(outcome.x.unsqueeze(0), outcome.x_adv.unsqueeze(0)))
        distance = float(ball.distance(original.image.cpu().unsqueeze(0), outcome.x_adv.unsqueeze(0)))
        return distance / scaled(1.0, original.bounds) if ball.norm != "L0" else distance

    def _outcome(self, group: Candidates, row: int, verdict: _Verdict, queries: int, success: bool) -> Outcome:
        trial, (point, label, confidence, look) = group.trials[row], verdict
        job = trial.job
        draws = None
        if not self.repeats:
            draws = self.session.oracle.fresh_draws(point.to(group.points.device).unsqueeze(0), [job.y], [look])
            trial.forwards += sum(2 * each.draws for each in draws or [])
        return Outcome(
            job.sample, success, job.x.cpu(), point, label, queries, trial.restart, trial.loss_target,
            trial.forwards, trial.backwards, draws[0] if draws else None, trial.zero_backwards,
            parameters=self._parameters(group, row), all_queries=trial.queries,
            confidence=confidence,
        )  # fmt: skip

    def _parameters(self, group: Candidates, row: int) -> Tensor | None:
        ball = self.attack.ball
        if not ball.renders:
            return None
        return ball.project_exact(group.trials[row].job.x.unsqueeze(0), group.points[row].unsqueeze(0))[0].cpu()

    def _go_on(self, group: Candidates, row: int) -> None:
        """The search network was wrong about a point: its trial goes on, or its own last point is judged."""
        trial, state = group.trials[row], group.states.take(torch.tensor([row], device=group.points.device))
        if bool(state.done):
            self.add(Candidates([trial], state, state.query, [True]))
        else:
            self.queue.pause(trial, state)


def _projected(
    ball: Ball, bounds: Bounds | None, images: Tensor, x: Tensor, points: Tensor, *, in_levels: bool
) -> Tensor:
    """Points in the ball around `images`, which are originals of `x` where they have bounds of their own.

    With `in_levels` they are pictures of 8 bits up to rounding, which the exact projection moves inside.
    """
    if bounds is None:
        exact = ball.project_exact(x, points)
        exact = ball.render(x, exact) if ball.renders else exact
        if not in_levels:
            return exact
        pictures = on_levels(ball, x, exact)
        return pictures if ball.renders else ball.project_exact(x, pictures)
    return ball.project_exact_around(images, bounds, x, points)


def check_gradients(attack: Attack, grads: Tensor, samples: list[int]) -> None:
    """Check that each sample's gradient is finite.

    Raises:
        UserError: one is not; the sentence names the image.
    """
    bad = rows_not_finite(grads)
    if bad:
        raise _gradient_not_finite(attack, samples[bad[0]])


def _gradient_not_finite(attack: Attack, sample: int) -> UserError:
    """The error where an input gradient is NaN or infinite: of the model, or of a loss of the user's own."""
    if attack.with_built_in_loss() is attack:
        return not_finite(sample, "input gradient")
    return UserError(
        f"The input gradient is not finite (NaN or infinite) for image {sample}, so no attack can be trusted on it; "
        "correct your loss where it overflows, or the model if loss=log-odds fails too."
    )


def check_finite(values: Tensor, samples: list[int], what: str) -> None:
    """Check that each sample's row is finite.

    Raises:
        UserError: a row is not; the sentence names the image.
    """
    bad = rows_not_finite(values)
    if bad:
        raise not_finite(samples[bad[0]], what)


def not_finite(sample: int, what: str) -> UserError:
    """The error where a gradient or an output of the model is NaN or infinite."""
    return UserError(
        f"The model's {what} is not finite (NaN or infinite) for image {sample}, "
        "so no attack can be trusted on it; correct the model first."
    )
