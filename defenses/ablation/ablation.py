"""Ablation: one training per cell of a grid and seed, judged on test images and compared with a baseline.

Outcomes are stored, so the same call resumes where it stopped, and a larger grid or more seeds extend it. Cells that
collapsed stay in the table with that status. Trainings that the time limit left out are listed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from torch import nn

from robustkit import limits
from robustkit.data.given import GivenData
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments_but
from robustkit.host.lock import locked
from robustkit.host.notebook import Summarised
from robustkit.host.processes import several
from robustkit.host.progress import ProgressWatch, Silent
from robustkit.models.fingerprint import fingerprint
from robustkit.paths import user_path
from robustkit.primitives import registry

from ..training.checks import checked_data, checked_network
from ..training.finetuning import as_dataset, checked_recipe
from ..training.first_answers import FirstAnswers
from ..training.recipe import Recipe
from .cells import AblationSetup, discard, file_of, store, stored_outcome, train_cell
from .grid import Axis, Cell, axes_of, cells_of
from .table import TrainingOutcome, runs_table, table

_SILENT = Silent()
_DEFAULT = Recipe()


@dataclass(frozen=True)
class PlannedTraining:
    """One training that an ablation needs."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.cell.name}, seed {self.seed}"


@dataclass(frozen=True, eq=False, repr=False)
class Ablation(Summarised):
    """The result of an ablation."""

    frame: pd.DataFrame  # one row per cell, the baseline first; columns as in `table`
    runs: pd.DataFrame  # one row per training
    axes: tuple[Axis, ...]
    missing: tuple[str, ...]  # trainings that the time limit left out
    base: Recipe
    images: int  # of the test set
    judge: str

    def summary(self) -> dict[str, str]:
        """How much was tried, and on what it was judged."""
        return {
            "cells": str(len(self.frame)), "trainings": f"{len(self.runs)}, {len(self.missing)} left out",
            "axes": ", ".join(axis.name for axis in self.axes), "images": str(self.images), "judge": self.judge,
        }  # fmt: skip


@checked_arguments_but("train", "val", "test")
def ablate(
    make_model: Callable[[], nn.Module],
    train: GivenData,
    val: GivenData,
    test: GivenData,
    *,
    eps: float | str,
    norm: str = "Linf",
    grid: Mapping[str, Sequence[object]],
    seeds: int = 3,
    base: Recipe = _DEFAULT,
    design: str = "main-effects",
    max_time: float | None = None,
    judge: str = "pgd:steps=20",
    out: str | Path | None = None,
    watch: ProgressWatch = _SILENT,
) -> Ablation:
    """Fine-tune once for each cell of a grid and each seed, and compare the cells with the first one.

    Args:
        make_model: returns the model that a training starts from, with the same weights each time.
        train: training images, as for `finetune`.
        val: validation images, which choose the epoch of each training.
        test: images on which all trainings are judged.
        eps: radius, in units of pixels in [0, 1].
        norm: "Linf", "L2" or "L1".
        grid: choices of the recipe with their values, that of the baseline first:
            `{"freeze": ["none", "prefix:layer1"]}`. Choices that change together are joined:
            `{"bn+lr": [("batch", 0.05), ("frozen", 0.01)]}`.
        seeds: trainings per cell, with seeds 0, 1, ...
        base: the other choices.
        design: "main-effects" changes one axis at a time; "full" then runs all combinations.
        max_time: seconds after which this call starts no further training; it always runs at least one.
        judge: gradient attack that judges the test images, once on cross-entropy and once on the margin.
        out: folder for the outcomes.
        watch: receives the progress.

    Raises:
        UserError: an argument or a cell cannot be used; the sentence names the fix.
    """
    if several():
        raise UserError("An ablation runs in one process, because it writes one folder; start it without torchrun.")
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, not {seeds}.")
    if isinstance(make_model, nn.Module):
        raise UserError("make_model is a model; give a function that returns one: lambda: copy.deepcopy(model).")
    if max_time is not None and not max_time >= 0:
        raise UserError(f"max_time must be a number of seconds of at least 0, not {max_time}; None has no limit.")
    axes = axes_of(grid)
    cells = cells_of(axes, design)
    model = make_model()
    setup = AblationSetup(
        as_dataset(train, "train"),
        as_dataset(val, "val"),
        as_dataset(test, "test"),
        norm,
        eps,
        judge,
        fingerprint(model),
    )
    checked_data(setup.train, setup.val, setup.test)
    checked_cells(cells, base, model, setup)
    answers, folder = FirstAnswers(model, setup.train), None if out is None else user_path(out)
    runner = _Runner(make_model, base, setup, answers, folder, watch, max_time)
    with nullcontext() if runner.folder is None else locked(runner.folder):
        outcomes, missing = runner.run(jobs_of(cells, seeds))
    return Ablation(
        table(outcomes, seeds), runs_table(outcomes), axes, tuple(job.name for job in missing), base,
        len(setup.test), judge,
    )  # fmt: skip


def jobs_of(cells: Sequence[Cell], seeds: int) -> list[PlannedTraining]:
    """All trainings in their order: main effects of every seed come before any interaction.

    Raises:
        UserError: there are too many.
    """
    limits.require_at_most("seeds", seeds, limits.SEEDS)
    limits.require_at_most("The number of trainings, cells times seeds,", len(cells) * seeds, limits.TRAININGS)
    order = [(len(cell.changed) > 1, seed, number) for seed in range(seeds) for number, cell in enumerate(cells)]
    return [PlannedTraining(cells[number], seed) for _, seed, number in sorted(order)]


def checked_cells(cells: Sequence[Cell], base: Recipe, model: nn.Module, setup: AblationSetup) -> None:
    """Refuse a grid before its first training.

    Raises:
        UserError: a cell cannot be trained, or the judge is not a gradient attack; the sentence names it.
    """
    if "loss" not in registry.parameters(type(registry.build(setup.judge, setup.norm, setup.eps))):
        raise UserError(f"The judge must be an attack with a loss, such as pgd:steps=20, not {setup.judge}.")
    for cell in cells:
        recipe = cell.recipe(base)
        try:
            checked_recipe(model, setup.train, setup.val, recipe, eps=setup.eps, norm=setup.norm)
        except UserError as error:
            raise UserError(f"In the cell {cell.name}: {error}") from None
    try:
        checked_network(model, setup.train, setup.test, base)
    except UserError as error:
        raise UserError(f"On the test images: {error}") from None


class _Runner:
    """Runs the trainings and stores each outcome."""

    def __init__(
        self, make_model: Callable[[], nn.Module], base: Recipe, setup: AblationSetup, answers: FirstAnswers,
        folder: Path | None, watch: ProgressWatch, max_time: float | None,
    ) -> None:  # fmt: skip
        self.make_model, self.base, self.setup, self.answers = make_model, base, setup, answers
        self.folder, self.watch, self.max_time = folder, watch, max_time

    def run(self, jobs: Sequence[PlannedTraining]) -> tuple[dict[Cell, list[TrainingOutcome]], list[PlannedTraining]]:
        """Outcomes by cell in the order of the design, and the trainings that the time limit left out."""
        outcomes: dict[Cell, list[TrainingOutcome]] = {job.cell: [] for job in jobs}
        missing = []
        stored = {job: self._stored(job) for job in jobs}
        has_trained = False
        start, longest = time.monotonic(), max((one.seconds for one in stored.values() if one), default=0.0)
        for number, job in enumerate(jobs):
            outcome = stored[job]
            if outcome is None:
                late = self.max_time is not None and time.monotonic() - start + longest > self.max_time
                # At least one is run, so that repeated calls finish the design, however short the time.
                if late and has_trained:
                    missing.append(job)
                    continue
                outcome, has_trained = self._train(job, number, len(jobs)), True
                longest = max(longest, outcome.seconds)
            outcomes[job.cell].append(outcome)
        return outcomes, missing

    def _file(self, job: PlannedTraining) -> Path | None:
        return None if self.folder is None else file_of(self.folder / "cells", job.cell, job.seed)

    def _recipe(self, job: PlannedTraining) -> Recipe:
        return job.cell.recipe(self.base).but(seed=job.seed)

    def _stored(self, job: PlannedTraining) -> TrainingOutcome | None:
        file = self._file(job)
        if file is None:
            return None
        identity = self.setup.identity(self._recipe(job))
        outcome = stored_outcome(file, identity, self.answers, len(self.setup.test))
        if outcome is not None:
            discard(self._unfinished(file))  # of a process that was killed after it had stored the outcome
        return outcome

    def _unfinished(self, file: Path) -> Path:
        return file.parent.parent / "unfinished" / file.stem

    def _train(self, job: PlannedTraining, number: int, total: int) -> TrainingOutcome:
        file, recipe = self._file(job), self._recipe(job)
        # A training that was interrupted resumes from its own checkpoint.
        unfinished = None if file is None else self._unfinished(file)
        model = self.make_model()
        if fingerprint(model) != self.setup.start:
            raise UserError(
                "make_model returned a model with other weights, settings or code than before; make it return the same "
                "one each time."
            )
        outcome = train_cell(
            model, recipe, self.setup, unfinished, _OverallProgress(self.watch, job.name, number, total)
        )
        if file is not None and unfinished is not None:
            store(file, outcome, self.setup.identity(recipe), self.answers)
            discard(unfinished)
        self.watch.say(f"{number + 1} of {total}: {job.name}: {_summary(outcome)}")
        return outcome


class _OverallProgress(Silent):
    """Reports the progress of one training as a part of the whole ablation."""

    def __init__(self, watch: ProgressWatch, name: str, number: int, total: int) -> None:
        self._watch, self._name, self._number, self._total = watch, name, number, total

    def training(self, text: str, share: float) -> None:
        overall = (self._number + share) / self._total
        self._watch.training(f"{self._number + 1} of {self._total}: {self._name}, {text}", overall)


def _summary(outcome: TrainingOutcome) -> str:
    if not outcome.judged:
        return f"diverged. {outcome.note}"
    clean, worst = (100 * float(kind.mean()) for kind in (outcome.clean, outcome.worst))
    numbers = f"clean {clean:.1f} %, worst {worst:.1f} %, epoch {outcome.best_epoch}, {outcome.seconds:.1f} s"
    return f"{outcome.status}, {numbers}"
