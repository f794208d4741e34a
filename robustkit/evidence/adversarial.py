"""The adversarial examples of a run as tensors: `run.adversarial(attack="pgd", eps="8/255")`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from robustkit.errors import UserError, unknown
from robustkit.evidence.store import Store
from robustkit.evidence.witnesses import pixels_of, witness_places
from robustkit.primitives.threat import canonical, radius_under


@dataclass(frozen=True, repr=False)
class AdversarialExamples:
    """Images that were broken, with their adversarial examples; the exact points that were judged."""

    samples: Tensor  # [n] int64, the images' numbers in the data set, ascending
    attacks: tuple[str, ...]  # [n] which attack each is from
    x: Tensor  # [n, *S] in [0, 1]
    x_adv: Tensor  # [n, *S] in [0, 1]
    y: Tensor  # [n] int64 labels
    predictions: Tensor  # [n] int64 the classes that the model gave `x_adv`

    def __len__(self) -> int:
        return len(self.attacks)

    def __repr__(self) -> str:
        """One line: how many, and of which attacks."""
        return f"<{len(self)} adversarial examples of {', '.join(dict.fromkeys(self.attacks)) or 'no attack'}>"


class Choice(NamedTuple):
    """Which examples of a run are meant."""

    model: str
    norm: str
    radii: list[str]  # as the run writes them, ascending; the last one is meant
    attacks: list[str]  # in the order of the run


def chosen(
    identity: Mapping[str, Any], model: str | None, attack: str | None, norm: str | None, eps: str | float | None
) -> Choice:
    """The choice that `Run.adversarial` describes.

    Raises:
        UserError: the run has no such model, attack or threat, or several and none is named.
    """
    name = _only("model", model, [entry["name"] for entry in identity["models"]])
    own_norm, radii = _threat(identity["threats"], norm, eps)
    names = [entry["name"] for entry in identity["attacks"]]
    known = {*names, *(each.partition("/")[0] for each in names)}
    if attack is not None and attack not in known:
        raise unknown("attack of the run", attack, sorted(known))
    return Choice(name, own_norm, radii, [each for each in names if attack in (None, each, each.partition("/")[0])])


def read_examples(folder: Path, samples: pd.DataFrame, choice: Choice) -> AdversarialExamples:
    """One example for each broken image, of the first of the chosen attacks that broke it.

    Args:
        folder: of the run.
        samples: `Run.samples`.
        choice: which are meant.
    """
    rows = samples[
        (samples["verdict"] == "broken") & (samples["model"] == choice.model) & (samples["norm"] == choice.norm)
        & (samples["eps_text"] == choice.radii[-1])
    ]  # fmt: skip
    store = Store(folder, reading=True)
    try:
        kept = set(witness_places(store, choice.model))
        found: dict[int, _Place] = {}
        for attack in choice.attacks:
            own = rows[rows["attack"].isin([attack, attack.partition("/")[0]])]  # an audit has rows of its own only
            for sample, label, pred in own[["sample", "label", "adv_pred"]].astype(int).itertuples(index=False):
                # The smallest radius at which it was found: there it was stored, and from there carried on.
                stored = [text for text in choice.radii if (choice.norm, text, attack, sample) in kept]
                if stored:
                    found.setdefault(sample, _Place(attack, stored[0], label, pred))
        return _read(store, choice, dict(sorted(found.items())))
    finally:
        store.close()


class _Place(NamedTuple):
    attack: str
    eps_text: str
    label: int
    prediction: int


def _read(store: Store, choice: Choice, found: Mapping[int, _Place]) -> AdversarialExamples:
    pixels = [
        pixels_of(store, choice.model, choice.norm, place.eps_text, place.attack, sample)
        for sample, place in found.items()
    ]
    x, x_adv = (
        torch.from_numpy(np.stack([pair[part] for pair in pixels])) if pixels else torch.zeros(0, device="cpu")
        for part in (0, 1)
    )
    return AdversarialExamples(
        _integers(found), tuple(place.attack for place in found.values()), x, x_adv,
        _integers(place.label for place in found.values()), _integers(place.prediction for place in found.values()),
    )  # fmt: skip


def _integers(values: Iterable[int]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.int64, device="cpu")


def _only(what: str, given: str | None, names: list[str]) -> str:
    if given is None and len(names) > 1:
        raise UserError(f"The run has more than one {what}: {', '.join(names)}; name one with {what}=.")
    if given is not None and given not in names:
        raise unknown(f"{what} of the run", given, names)
    return names[0] if given is None else given


def _threat(threats: list[list[str]], norm: str | None, eps: str | float | None) -> tuple[str, list[str]]:
    """The norm, and its radii up to the one that is asked for, as the run writes them."""
    norms = list(dict.fromkeys(each for each, _ in threats))
    own = _only("norm", None if norm is None else canonical(norm), norms)
    radii = {text: radius_under(own, text) for each, text in threats if each == own}
    if eps is None:
        chosen = _only("eps", None, list(radii))
    else:
        wanted = radius_under(own, eps)
        chosen = _only("eps", next((text for text, value in radii.items() if value == wanted), str(eps)), list(radii))
    ascending = sorted(radii, key=lambda text: radii[text])
    return own, [text for text in ascending if radii[text] <= radii[chosen]]
