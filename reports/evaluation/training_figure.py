"""The curves of a fine-tuning: accuracy on validation images, clean and under attack, epoch by epoch."""

import io

import pandas as pd

from ..shared.words import percent
from .figures import INK, MARKERS, RULE, SERIES, SIZE, Figure, themed

_CURVES = (("val_clean", "clean"), ("val_ce", "cross-entropy attack"), ("val_worst", "worst of two attacks"))


def training_figure(history: pd.DataFrame, prefix: str) -> Figure:
    """The three curves, the radius of each epoch, and the epoch that was kept.

    Args:
        history: one row per epoch, as `robustkit finetune` writes it.
        prefix: what the ids start with.
    """
    # Not pyplot: it keeps figures alive and picks a window system.
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

    own = {"svg.fonttype": "none", "svg.hashsalt": prefix, "font.size": 9, "font.family": "DejaVu Sans"}
    kept = [int(epoch) for epoch in history.loc[history["best"].astype(bool), "epoch"]][-1:]
    with matplotlib.style.context(["default", own]):
        canvas = Canvas(figsize=SIZE)
        axes = canvas.add_axes((0.13, 0.17, 0.84, 0.74))
        for number, (column, label) in enumerate(_CURVES):
            axes.plot(history["epoch"], 100 * history[column], color=SERIES[number], marker=MARKERS[number],
                      markersize=4, linewidth=1.6, label=label, clip_on=False)  # fmt: skip
        for epoch in kept:
            axes.axvline(epoch, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.set_ylim(0, 100)
        axes.set_xlabel("epoch")
        axes.set_ylabel("correct, %")
        axes.grid(axis="y", color=RULE, linewidth=0.7)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(INK)
        axes.tick_params(which="both", color=INK, labelcolor=INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 0.99), ncols=3, frameon=False, labelcolor=INK,
                    fontsize=8, handlelength=1.4, columnspacing=1.0)  # fmt: skip
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    last = history.iloc[-1]
    title = f"Validation images, {len(history)} epochs" + (
        f"; epoch {kept[0]} was kept." if kept else "; none was kept."
    )
    told = ", ".join(f"{label} {percent(round(1e6 * float(last[column])), 10**6)}" for column, label in _CURVES)
    return Figure(title, themed(buffer.getvalue(), prefix), f"{title} At the end: {told}.")
