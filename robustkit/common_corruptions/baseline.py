"""Errors of a baseline model, by which corruption errors are divided: AlexNet's, or those in a CSV file."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.host.text import csv_text_of
from robustkit.limits import shortened
from robustkit.paths import user_path
from robustkit.statistics.corruption_error import MeanErrors

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


def chosen_baseline(text: str | Path, models: Sequence[str]) -> Baseline:
    """The baseline that a caller names: a model of the run, "alexnet", or a file `TABLE.csv` or `TABLE.csv:MODEL`.

    Raises:
        UserError: there is no such model or file, or the file is no table of accuracies.
    """
    name = str(text).strip()
    if name in models:
        return Baseline(name, None)
    if name.lower() == _NAME:
        return Baseline("AlexNet on ImageNet-C", ALEXNET)
    place, _, row = name.partition(".csv:") if ".csv:" in name else (name, "", "")
    path = user_path(place if not row else f"{place}.csv")
    if path.suffix.lower() != ".csv" or not path.is_file():
        raise unknown("baseline (a model of the run, alexnet, or a .csv file)", shortened(name), [_NAME, *models])
    table = read_accuracies(path)
    if not row and len(table) > 1:
        raise UserError(f"{shortened(path)} has {len(table)} models; name one: {shortened(path)}:{next(iter(table))}.")
    if row and row not in table:
        raise unknown(f"model in {shortened(path)}", row, table)
    chosen = row or next(iter(table))
    return Baseline(chosen, table[chosen])


def read_accuracies(path: Path) -> dict[str, MeanErrors]:
    """Mean errors by model from a table of accuracies in [0, 1].

    Read are results.csv of a run, and RobustBench's form: a line of corruptions, a line of severities, then a line for
    each model, which begins with its name.

    Raises:
        UserError: the file is too large or no such table.
    """
    if path.stat().st_size > limits.TABLE_BYTES:
        most = limits.TABLE_BYTES // limits.MIB
        raise UserError(f"{shortened(path)} has more than {most} MiB, so it is not a table of accuracies.")
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
        found = _of_run(lines) if lines and "accuracy" in lines[0] else _of_robustbench(lines)
        table = {model: _errors(list(entries)) for model, entries in found.items()}
    except (ValueError, IndexError, csv.Error, OSError):
        table = {}
    if not table or not all(each.corrupted for each in table.values()):
        raise UserError(
            f"{shortened(path)} is not a table of accuracies under corruptions; give the results.csv of a run, or a "
            "table with a line of corruptions, a line of severities, and a line for each model."
        )
    return table


_Entry = tuple[str, float]  # corruption, accuracy


def _of_robustbench(lines: list[list[str]]) -> dict[str, list[_Entry]]:
    corruptions, models = lines[0][1:], [line for line in lines[2:] if line]
    return {
        line[0]: [(name, float(cell)) for name, cell in zip(corruptions, line[1:], strict=True) if name]
        for line in models
    }


def _of_run(lines: list[list[str]]) -> dict[str, list[_Entry]]:
    where = {name: number for number, name in enumerate(lines[0])}
    table: dict[str, list[_Entry]] = {}
    for line in lines[1:]:
        role = line[where["role"]]
        if role in ("clean", "corruption"):
            name = _CLEAN if role == "clean" else line[where["attack"]]
            table.setdefault(csv_text_of(line[where["model"]]), []).append((name, float(line[where["accuracy"]])))
    return table


def _errors(entries: Sequence[_Entry]) -> MeanErrors:
    if not all(0 <= accuracy <= 1 for _, accuracy in entries):
        raise ValueError("no shares")
    clean = [1 - accuracy for name, accuracy in entries if name == _CLEAN]
    names = dict.fromkeys(name for name, _ in entries if name != _CLEAN)
    return MeanErrors(clean[0] if clean else None, {name: _mean(_of(entries, name)) for name in names})


def _of(entries: Sequence[_Entry], name: str) -> Iterator[float]:
    return (1 - accuracy for other, accuracy in entries if other == name)


def _mean(values: Iterator[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
