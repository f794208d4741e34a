"""Errors of a baseline model, by which corruption errors are divided: AlexNet's, or those in a CSV file."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.host.text import csv_text_of
from robustkit.limits import shortened
from robustkit.paths import user_path
from robustkit.statistics.corruption_error import MeanErrors

from .parameters import SEVERITIES
from .suite import CorruptionLevel

# On ImageNet-C, means over the severities: github.com/hendrycks/robustness; clean: table 1 of arXiv:1903.12261.
ALEXNET: Final = MeanErrors(0.435, {
    "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640, "defocus_blur": 0.819880,
    "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360, "snow": 0.866816, "frost": 0.826572,
    "fog": 0.819324, "brightness": 0.564592, "contrast": 0.853204, "elastic_transform": 0.646056,
    "pixelate": 0.717840, "jpeg_compression": 0.606500,
})  # fmt: skip
_NAME = "alexnet"
_CLEAN = "clean"


class Baseline(NamedTuple):
    """A baseline and what reports call it; its errors are None where it is a model of the run."""

    name: str
    errors: MeanErrors | None


def chosen_baseline(text: str | Path, models: Sequence[str], cells: Sequence[CorruptionLevel]) -> Baseline:
    """The baseline that a caller names: a model of the run, "alexnet", or a file `TABLE.csv` or `TABLE.csv:MODEL`.

    Args:
        text: its name.
        models: names of the models of the run.
        cells: the corruptions and severities of the run; errors of a file are those at the same severities.

    Raises:
        UserError: there is no such model or file, the file is no table of accuracies, or the baseline's errors are not
            those of the run's corruptions and severities.
    """
    severities = sorted({severity for _, severity in cells})
    listed = ", ".join(map(str, severities))
    name = str(text).strip()
    if name in models:
        return Baseline(name, None)
    if name.lower() == _NAME:
        if severities != list(SEVERITIES):
            raise UserError(
                f"AlexNet's errors are means over severities 1 to 5, and this run has {listed}; run all five, or name "
                "another baseline."
            )
        return Baseline("AlexNet on ImageNet-C", ALEXNET)
    place, _, row = name.partition(".csv:") if ".csv:" in name else (name, "", "")
    path = user_path(place if not row else f"{place}.csv")
    if path.suffix.lower() != ".csv" or not path.is_file():
        raise unknown("baseline (a model of the run, alexnet, or a .csv file)", shortened(name), [_NAME, *models])
    table = read_accuracies(path, severities)
    if not row and len(table) > 1:
        raise UserError(f"{shortened(path)} has {len(table)} models; name one: {shortened(path)}:{next(iter(table))}.")
    if row and row not in table:
        raise unknown(f"model in {shortened(path)}", row, table)
    chosen = row or next(iter(table))
    if not any(corruption in table[chosen].corrupted for corruption, _ in cells):
        raise UserError(
            f"{shortened(path)} has no accuracy of {shortened(chosen)} under a corruption of this run at severity "
            f"{listed}; name a baseline that was measured on the same ones."
        )
    return Baseline(chosen, table[chosen])


def read_accuracies(path: Path, severities: Sequence[int] = SEVERITIES) -> dict[str, MeanErrors]:
    """Mean errors by model from a table of accuracies in [0, 1].

    Read are results.csv of a run, and RobustBench's form: a line of corruptions, a line of severities, then a line for
    each model, which begins with its name.

    Args:
        path: of the table.
        severities: over which the means are taken; a corruption that lacks one of them is left out.

    Raises:
        UserError: the file is too large or no such table.
    """
    if path.stat().st_size > limits.TABLE_BYTES:
        most = limits.TABLE_BYTES // limits.MIB
        raise UserError(f"{shortened(path)} has more than {most} MiB, so it is not a table of accuracies.")
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
        table = _of_run(lines) if lines and "accuracy" in lines[0] else _of_robustbench(lines)
    except (ValueError, OverflowError, LookupError, csv.Error, OSError):
        table = {}
    accuracies = [share for own in table.values() for share in own.values()]
    complete = all(any(name != _CLEAN for name, _ in own) for own in table.values())
    if not table or not complete or not all(0 <= share <= 1 for share in accuracies):
        raise UserError(
            f"{shortened(path)} is not a table of accuracies under corruptions; give the results.csv of a run, or a "
            "table with a line of corruptions, a line of severities, and a line for each model."
        )
    return {model: _errors(own, severities) for model, own in table.items()}


_Accuracies = dict[CorruptionLevel, float]  # at severity 0 of the clean images


def _of_robustbench(lines: list[list[str]]) -> dict[str, _Accuracies]:
    levels = [_level(*level) for level in zip(lines[0][1:], lines[1][1:], strict=True)]
    return {
        line[0]: {level: float(cell) for level, cell in zip(levels, line[1:], strict=True) if level.corruption}
        for line in lines[2:]
        if line
    }


def _of_run(lines: list[list[str]]) -> dict[str, _Accuracies]:
    where = {name: number for number, name in enumerate(lines[0])}
    table: dict[str, _Accuracies] = {}
    for line in lines[1:]:
        role = line[where["role"]]
        if role in ("clean", "corruption"):
            level = _level(_CLEAN if role == "clean" else line[where["attack"]], line[where["eps"]])
            table.setdefault(csv_text_of(line[where["model"]]), {})[level] = float(line[where["accuracy"]])
    return table


def _level(name: str, severity: str) -> CorruptionLevel:
    return CorruptionLevel(name, 0 if name in ("", _CLEAN) else int(float(severity)))


def _errors(accuracies: _Accuracies, severities: Sequence[int]) -> MeanErrors:
    clean = accuracies.get(CorruptionLevel(_CLEAN, 0))
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for name, _ in accuracies if name != _CLEAN):
        levels = [CorruptionLevel(name, severity) for severity in severities]
        if all(level in accuracies for level in levels):
            means[name] = sum(1 - accuracies[level] for level in levels) / len(levels)
    return MeanErrors(None if clean is None else 1 - clean, means)
