"""Ablation: one training per cell of a grid and seed, judged on test images, compared pair by pair with a baseline.

What was run is kept, so the same call goes on where it stopped, and a larger grid or more seeds extend it. Cells that
collapsed stay in the table and are called so. What a time budget left out is named.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from torch import nn

from robustkit.errors import UserError
from robustkit.host.progress import ProgressWatch, Silent
from robustkit.primitives import registry

from ..training.checks import checked_data
from ..training.finetuning import Data, as_dataset, checked_recipe
from ..training.parallel import several
from ..training.recipe import Recipe
from .cells import Ground, discard, file_of, fingerprint, found, store, trained
from .grid import Axis, Cell, axes_of, cells_of
from .table import TrainingOutcome, runs_table, table

_NOBODY = Silent()
_USUAL = Recipe()


@dataclass(frozen=True)
class PlannedTraining:
    """One training."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """For a reader."""
        return f"{self.cell.name}, seed {self.seed}"


@dataclass(frozen=True)
class Ablation:
    """What the trainings led to."""

    frame: pd.DataFrame  # one row per cell, the baseline first; columns in `ablation_table.table`
    runs: pd.DataFrame  # one row per training
    axes: tuple[Axis, ...]
    missing: tuple[str, ...]  # trainings that the budget left out
    base: Recipe
    images: int  # of the test set
    judge: str


def ablate(
    make_model: Callable[[], nn.Module],
    train: Data,
    val: Data,
    test: Data,
    *,
    eps: float | str,
    norm: str = "Linf",
    grid: Mapping[str, Sequence[object]],
    seeds: int = 3,
    base: Recipe = _USUAL,
    plan: str = "main-effects",
    budget: float | None = None,
    judge: str = "pgd:steps=20",
    out: str | Path | None = None,
    watch: ProgressWatch = _NOBODY,
) -> Ablation:
    """Fine-tune once for each cell of a grid and each seed, and compare the cells with the first.

    Args:
        make_model: returns the start, the same weights each time.
        train: images that are learnt from, as for `finetune`.
        val: images that choose the epoch of each training.
        test: images that all verdicts are about.
        eps: radius, in units of pixels in [0, 1].
        norm: "Linf", "L2" or "L1".
        grid: choices of the recipe with their values, the baseline's first: `{"freeze": ["none", "prefix:layer1"]}`.
            Choices that belong together are joined: `{"bn+lr": [("batch", 0.05), ("frozen", 0.01)]}`.
        seeds: trainings per cell, with seeds 0, 1, ...
        base: the other choices.
        plan: "main-effects" changes one axis at a time; "full" goes on to all combinations.
        budget: seconds after which this call begins no further training; one it always runs.
        judge: gradient attack that passes the verdicts, once on cross-entropy and once on the margin.
        out: folder in which outcomes are kept.
        watch: is told of the progress.

    Raises:
        UserError: something cannot be done as asked; the sentence names the fix.
    """
    if several():
        raise UserError("An ablation is one process, for it keeps one folder; start it without torchrun.")
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, not {seeds}.")
    axes = axes_of(grid)
    cells = cells_of(axes, plan)
    model = make_model()
    ground = Ground(
        as_dataset(train, "train"),
        as_dataset(val, "val"),
        as_dataset(test, "test"),
        norm,
        eps,
        judge,
        fingerprint(model),
    )
    checked_data(ground.train, ground.val, ground.test)
    checked_cells(cells, base, model, ground)
    work = _Work(make_model, base, ground, None if out is None else Path(out), watch, budget)
    outcomes, missing = work.run(jobs_of(cells, seeds))
    return Ablation(
        table(outcomes, seeds), runs_table(outcomes), axes, tuple(job.name for job in missing), base,
        len(ground.test), judge,
    )  # fmt: skip


def jobs_of(cells: Sequence[Cell], seeds: int) -> list[PlannedTraining]:
    """All trainings in their order: main effects of every seed come before any interaction."""
    order = [(len(cell.changed) > 1, seed, number) for seed in range(seeds) for number, cell in enumerate(cells)]
    return [PlannedTraining(cells[number], seed) for _, seed, number in sorted(order)]


def checked_cells(cells: Sequence[Cell], base: Recipe, model: nn.Module, ground: Ground) -> None:
    """Refuse a grid before its first training rather than in the middle of it.

    Raises:
        UserError: a cell cannot be trained, or the judge is no attack; the sentence names it.
    """
    if "loss" not in registry.parameters(type(registry.build(ground.judge, ground.norm, ground.eps))):
        raise UserError(f"Verdicts are passed by an attack with a loss, such as pgd:steps=20, not {ground.judge}.")
    for cell in cells:
        recipe = cell.recipe(base)
        try:
            checked_recipe(model, ground.train, ground.val, recipe, eps=ground.eps, norm=ground.norm)
        except UserError as error:
            raise UserError(f"In the cell {cell.name}: {error}") from None


class _Work:
    """Goes through the trainings, keeping each."""

    def __init__(
        self, make_model: Callable[[], nn.Module], base: Recipe, ground: Ground, folder: Path | None,
        watch: ProgressWatch, budget: float | None,
    ) -> None:  # fmt: skip
        self.make_model, self.base, self.ground = make_model, base, ground
        self.folder, self.watch, self.budget = folder, watch, budget

    def run(self, jobs: Sequence[PlannedTraining]) -> tuple[dict[Cell, list[TrainingOutcome]], list[PlannedTraining]]:
        """Outcomes by cell in the order of the plan, and the trainings that were left out."""
        outcomes: dict[Cell, list[TrainingOutcome]] = {job.cell: [] for job in jobs}
        missing = []
        kept = {job: self._kept(job) for job in jobs}
        trained_now = False
        begun, longest = time.monotonic(), max((one.seconds for one in kept.values() if one), default=0.0)
        for number, job in enumerate(jobs):
            outcome = kept[job]
            if outcome is None:
                late = self.budget is not None and time.monotonic() - begun + longest > self.budget
                # One is always run, so that the same call again gets further, however small its budget.
                if late and trained_now:
                    missing.append(job)
                    continue
                outcome, trained_now = self._trained(job, number, len(jobs)), True
                longest = max(longest, outcome.seconds)
            outcomes[job.cell].append(outcome)
        return outcomes, missing

    def _file(self, job: PlannedTraining) -> Path | None:
        return None if self.folder is None else file_of(self.folder / "cells", job.cell, job.seed)

    def _recipe(self, job: PlannedTraining) -> Recipe:
        return job.cell.recipe(self.base).but(seed=job.seed)

    def _kept(self, job: PlannedTraining) -> TrainingOutcome | None:
        file = self._file(job)
        return None if file is None else found(file, self.ground.identity(self._recipe(job)))

    def _trained(self, job: PlannedTraining, number: int, total: int) -> TrainingOutcome:
        file, recipe = self._file(job), self._recipe(job)
        # A long training that is broken off goes on from its own last epoch.
        unfinished = None if file is None or self.folder is None else self.folder / "unfinished" / file.stem
        model = self.make_model()
        if fingerprint(model) != self.ground.start:
            raise UserError("make_model returned other weights than before; make it return the same start each time.")
        outcome = trained(model, recipe, self.ground, unfinished, _Overall(self.watch, job.name, number, total))
        if file is not None and unfinished is not None:
            store(file, outcome, self.ground.identity(recipe))
            discard(unfinished)
        self.watch.say(f"{number + 1} of {total}: {job.name}: {_told(outcome)}")
        return outcome


class _Overall(Silent):
    """Turns the progress of one training into that of all."""

    def __init__(self, watch: ProgressWatch, name: str, number: int, total: int) -> None:
        self._watch, self._name, self._number, self._total = watch, name, number, total

    def training(self, text: str, share: float) -> None:
        overall = (self._number + share) / self._total
        self._watch.training(f"{self._number + 1} of {self._total}: {self._name}, {text}", overall)


def _told(outcome: TrainingOutcome) -> str:
    if not outcome.judged:
        return f"diverged. {outcome.note}"
    clean, worst = (100 * float(kind.mean()) for kind in (outcome.clean, outcome.worst))
    numbers = f"clean {clean:.1f} %, worst {worst:.1f} %, epoch {outcome.best_epoch}, {outcome.seconds:.1f} s"
    return f"{outcome.status}, {numbers}"
