"""The result of a trace: for every call, the measures of each image and their medians over groups of images."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import torch
from torch import Tensor

from robustkit.host.notebook import Summarised

from .passes import Key
from .points import Pairs, PerturbationOrigin

# Measures of each image at each call, in the order of reports.
MEASURES: Final = ("relative", "gain", "amplification", "cosine", "flips", "margin", "margin_share")
GROUPS: Final = ("all", "broken", "robust")
MOST = 3  # calls marked as steepest


@dataclass(frozen=True)
class Spread:
    """Median and quartiles over the images of a group for which the value is defined; NaN if there are none."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class CallTrace:
    """One call of one layer, in execution order."""

    order: int  # 0 is the input
    key: Key
    kind: str
    shape: tuple[int, ...]  # of the output for one image
    values: Mapping[str, Tensor]  # measure -> [n] float64
    moot: bool  # it returned its input unchanged for every image
    cka: Mapping[str, float]  # group -> linear CKA between clean and perturbed outputs, where it was computed

    @property
    def name(self) -> str:
        """The layer, and which of its calls if it is not the first."""
        return self.key.name


@dataclass(frozen=True, eq=False, repr=False)
class Traced(Summarised):
    """The propagation of perturbations of correctly classified images through every call of a network.

    Measures of one image at one call, with `a` the output for the clean image and `b` for the perturbed one:

    - relative: ||b - a|| / ||a||
    - gain: `relative`, divided by the relative change of this call's input
    - amplification: `relative`, divided by that of the previous call, which may be in another branch
    - cosine: of the angle between a and b
    - flips: share of values that are above zero in one of a and b only
    - margin: <gradient at a of z_rival - z_y, b - a>, the first-order attribution of the margin's change to this call
    - margin_share: `margin`, divided by the real change; 1 in a linear network at calls that all paths go through

    For each group there are median and quartiles of each measure, and `cka` between clean and perturbed outputs.
    """

    model: str
    pairs: Pairs
    origin: PerturbationOrigin
    bounds: tuple[float, float]  # of the caller's images
    seed: int
    calls: tuple[CallTrace, ...]
    margin_change: Tensor  # [n] float64, of z_rival - z_y
    unseen: Mapping[str, str]  # layer -> why it was not measured

    def summary(self) -> dict[str, str]:
        """The images, the attack, and where the perturbation grows most."""
        return {
            "model": self.model, "images": str(len(self.pairs)),
            "broken": f"{int(self.pairs.broken.sum())} by {self.origin.attack}", "calls": str(len(self.calls)),
            "grows most at": ", ".join(call.name for call in self.steepest) or "nowhere",
        }  # fmt: skip

    def members(self, group: str) -> Tensor:
        """`[n]` bool: the images of "all", "broken" or "robust"."""
        return members(self.pairs, group)

    @property
    def groups(self) -> list[str]:
        """The groups that reports compare: broken and robust images, or all images if there is only one kind."""
        several = bool(self.pairs.broken.any()) and not bool(self.pairs.broken.all())
        return ["broken", "robust"] if several else ["all"]

    def spread(self, call: CallTrace, measure: str, group: str = "all") -> Spread:
        """Median and quartiles of a measure."""
        return spread_of(call.values[measure][self.members(group)])

    def cka(self, call: CallTrace, group: str = "all") -> float:
        """Linear CKA between clean and perturbed outputs, unbiased; NaN for fewer than 4 and more than 2048 images."""
        return call.cka.get(group, math.nan)

    @property
    def shown_calls(self) -> list[CallTrace]:
        """The calls that tables show: those that change their input, unlike Dropout."""
        return [call for call in self.calls if not call.moot]

    @property
    def steepest(self) -> list[CallTrace]:
        """Up to three calls with the highest median gain above 1, over the broken images."""
        group = "broken" if bool(self.pairs.broken.any()) else "all"
        gains = [(self.spread(call, "gain", group).median, call) for call in self.calls if call.order]
        growing = [(gain, call) for gain, call in gains if math.isfinite(gain) and gain > 1]
        return [call for _, call in sorted(growing, key=lambda pair: (-pair[0], pair[1].order))[:MOST]]

    def to_frame(self) -> pd.DataFrame:
        """One row per call and group, in execution order."""
        steepest = {call.order for call in self.steepest}
        rows = []
        for call in self.calls:
            for group in GROUPS:
                row: dict[str, Any] = {
                    "order": call.order, "layer": call.key.layer, "call": call.key.call, "kind": call.kind,
                    "shape": "x".join(map(str, call.shape)), "group": group,
                    "n": int(self.members(group).sum()),
                }  # fmt: skip
                for measure in MEASURES:
                    spread = self.spread(call, measure, group)
                    row |= {measure: spread.median, f"{measure}_q1": spread.low, f"{measure}_q3": spread.high}
                rows.append(row | {"cka": self.cka(call, group), "steepest": call.order in steepest, "moot": call.moot})
        return pd.DataFrame(rows)

    def to_json(self) -> str:
        """Everything except the images, as one JSON object; null stands for NaN and infinity."""
        document = {
            "model": self.model, "attack": self.origin.attack, "norm": self.origin.norm, "eps": self.origin.eps_text,
            "seed": self.seed, "images": len(self.pairs), "clean_wrong": self.origin.clean_wrong,
            "broken": int(self.pairs.broken.sum()),
            "calls": _records(self.to_frame()),
            "samples": [
                {"sample": sample, "label": label, "prediction": prediction, "margin_change": change}
                for sample, label, prediction, change in zip(
                    self.pairs.number.tolist(), self.pairs.y.tolist(), self.pairs.prediction.tolist(),
                    self.margin_change.tolist(), strict=True,
                )
            ],
            "unseen": dict(self.unseen),
        }  # fmt: skip
        return json.dumps(document, indent=1, allow_nan=False)


def members(pairs: Pairs, group: str) -> Tensor:
    """`[n]` bool: the images of "all", "broken" or "robust"."""
    return {"all": torch.ones_like(pairs.broken), "broken": pairs.broken, "robust": ~pairs.broken}[group]


def spread_of(values: Tensor) -> Spread:
    """Median and quartiles of the values that are not NaN."""
    defined = values[~values.isnan()]
    if not len(defined):
        return Spread(math.nan, math.nan, math.nan)
    # Linear interpolation between two infinite values would be NaN.
    method = "linear" if bool(defined.isfinite().all()) else "nearest"
    low, median, high = defined.quantile(defined.new_tensor((0.25, 0.5, 0.75)), interpolation=method).tolist()
    return Spread(median, low, high)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            str(key): None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        for row in frame.to_dict("records")
    ]
