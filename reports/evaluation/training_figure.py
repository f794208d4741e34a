"""The curves of a fine-tuning: accuracy on validation images, clean and under attack, epoch by epoch."""

from pathlib import Path

import numpy as np
import pandas as pd

from ..shared.figures import INK, MARKERS, SERIES, SIZE, Figure, axes_in, style_axes, svg_of
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


def training_figure(history: pd.DataFrame, prefix: str) -> Figure:
    """The three curves, and a line at the epoch whose weights were saved.

    Args:
        history: one row per epoch, as `robustkit finetune` writes it.
        prefix: what the ids start with.
    """
    from matplotlib.ticker import MaxNLocator

    best = [int(epoch) for epoch in history.loc[history["best"].astype(bool), "epoch"]][-1:]
    with axes_in(SIZE, (0.13, 0.17, 0.84, 0.74), prefix) as axes:
        for number, (column, label) in enumerate(_CURVES):
            axes.plot(history["epoch"], 100 * history[column], color=SERIES[number], marker=MARKERS[number],
                      markersize=4, linewidth=1.6, label=label, clip_on=False)  # fmt: skip
        for epoch in best:
            axes.axvline(epoch, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.set_ylim(0, 100)
        axes.set_xlabel("epoch")
        axes.set_ylabel("correct, %")
        style_axes(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 0.99), ncols=3, frameon=False, labelcolor=INK,
                    fontsize=8, handlelength=1.4, columnspacing=1.0)  # fmt: skip
        svg = svg_of(axes, prefix)
    last = history.iloc[-1]
    title = f"Validation images, {len(history)} epochs" + (
        f"; epoch {best[0]} was kept." if best else "; none was kept."
    )
    values = ", ".join(f"{label} {percent(round(1e6 * float(last[column])), 10**6)}" for column, label in _CURVES)
    return Figure(title, svg, f"{title} At the end: {values}.")
