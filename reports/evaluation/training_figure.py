"""The curves of a fine-tuning: accuracy on validation images, clean and under attack, epoch by epoch."""

from pathlib import Path

import numpy as np
import pandas as pd

from ..shared.line_chart import ChartLine, ChartPoint, ChartTick, LineChart
from ..shared.words import percent

_CURVES = (("val_clean", "clean"), ("val_ce", "cross-entropy attack"), ("val_worst", "worst of two attacks"))


_LARGEST = 10 * 2**20  # bytes; a thousand epochs take a hundred kilobytes


def read_history(file: Path) -> pd.DataFrame | None:
    """The history that `robustkit finetune` wrote; None if somebody else wrote the file."""
    try:
        if file.stat().st_size > _LARGEST:
            return None
        history = pd.read_csv(file)
        best = history["best"]
        values = history[["epoch", *(column for column, _ in _CURVES)]].astype(float)
    except (OSError, ValueError, KeyError, MemoryError):  # also what pandas raises of broken text and encodings
        return None
    is_ours = len(history) and best.dtype == bool and np.isfinite(values.to_numpy()).all()
    return history if is_ours else None


def training_chart(history: pd.DataFrame) -> LineChart:
    """The three curves against the epoch, with the epoch whose weights were saved.

    Args:
        history: one row per epoch, as `robustkit finetune` writes it.
    """
    best = [int(epoch) for epoch in history.loc[history["best"].astype(bool), "epoch"]][-1:]
    kept = f"epoch {best[0]} was kept" if best else "none was kept"
    title = f"Accuracy on validation images during the training of {len(history)} epochs; {kept}"
    lines = [_line(history, column, label, number) for number, (column, label) in enumerate(_CURVES)]
    values = ", ".join(f"{line.name} {line.end}" for line in lines)
    epochs = history["epoch"].astype(int)
    ticks = [ChartTick(0.0, "0"), *(ChartTick(each, f"{each}, kept" if each in best else str(each)) for each in epochs)]
    return LineChart(title, f"{title}. At the end: {values}.", "epoch", float(epochs.max()), ticks, lines)


def _line(history: pd.DataFrame, column: str, label: str, number: int) -> ChartLine:
    shares = [(int(epoch), _percent(share)) for epoch, share in zip(history["epoch"], history[column], strict=True)]
    values = [100 * float(share) for share in history[column]]
    points = [
        ChartPoint(epoch, value, value, value, f"{label}, epoch {epoch}: {text}")
        for (epoch, text), value in zip(shares, values, strict=True)
    ]
    return ChartLine(label, shares[-1][1], number, points)


def _percent(share: float) -> str:
    return percent(round(1e6 * float(share)), 10**6)
