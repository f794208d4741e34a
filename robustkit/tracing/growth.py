"""`trace`: follow a perturbation through every call of a network.

Ours, put together from measures that are known one by one: drift and cosine of activations, linear CKA (Kornblith et
al. 2019), and the first-order promise of each layer for the margin. Per image first, then medians.
Bad at: operations without a module (`x + y`, `F.relu`), which change the perturbation between two rows of the table.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_images
from robustkit.errors import UserError
from robustkit.nethook import select, unwrap
from robustkit.primitives.protocol import Attack

from . import measures
from .cka import LEAST, MOST, cka
from .grams import grams
from .leaves import Followed, Layers, followed
from .passes import Key, Pass, Runner, Score, Taken, same_calls, tiles
from .points import GIVEN, Pairs, PerturbationOrigin, made, paired
from .traced import GROUPS, CallTrace, Traced, members


def trace(
    model: nn.Module | Classifier,
    x: Tensor,
    y: Tensor,
    *,
    x_adv: Tensor | None = None,
    attack: str | Attack = "pgd:steps=20",
    eps: float | str | None = None,
    norm: str = "Linf",
    bounds: tuple[float, float] = (0.0, 1.0),
    layers: Layers | None = None,
    seed: int = 0,
    batch_size: int = 64,
    numbers: Sequence[int] | None = None,
) -> Traced:
    """Where the perturbation grows, call by call, over the images that the model classifies rightly.

    Args:
        model: takes images in `bounds`, returns logits; it comes back exactly as it was.
        x: `[N, *S]` float images.
        y: `[N]` true classes.
        x_adv: `[N, *S]` perturbed images; None makes them with `attack`.
        attack: a specification such as "apgd:steps=50", or an attack object with a radius of its own.
        eps: the radius of `attack`, in units of pixels scaled to [0, 1]; a text such as "8/255" is exact.
        norm: "Linf", "L2", "L1" or "L0".
        bounds: range of valid values; a `Classifier` has its own.
        layers: names or globs; None takes every module that has no other one running inside it.
        seed: of the attack's noise and of the model's.
        batch_size: images in flight during the attack. The trace itself goes in tiles of one size, and no number of it
            depends on this.
        numbers: what reports call the images; None counts them.

    Raises:
        UserError: something about images, labels, model or layers is wrong; the sentence names the fix.
    """
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not isinstance(x_adv, Tensor | None):
        raise UserError("Images and labels must be tensors; use torch.as_tensor on arrays and lists.")
    classifier = model if isinstance(model, Classifier) else Classifier(model, bounds=bounds)
    if layers is not None:
        select(classifier.network, layers)  # a wrong name is met before the attack's work
    origin = PerturbationOrigin(GIVEN, "", "", 0)
    if x_adv is None:
        x_adv, origin = made(classifier, x, y, attack, eps, norm, seed=seed, batch_size=batch_size)
    with classifier.session(classifier.place(checked_images(x.detach(), classifier.bounds)), seed) as session:
        pairs = paired(classifier, session, x, x_adv, y, range(len(x)) if numbers is None else numbers)
        runner = Runner(classifier, seed)
        found = followed(runner, pairs, layers)
        measured = _measured(runner, found, pairs)
        similar = _similarities(runner, found, pairs, measured)
    origin = replace(origin, clean_wrong=len(x) - len(pairs))
    calls = tuple(_calls(measured, similar))
    return Traced(classifier.name, pairs, origin, classifier.bounds, seed, calls, measured.change, found.unseen)


class Size(NamedTuple):
    """What the output of a call is like for one image."""

    kind: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many values it has."""
        return int(torch.Size(self.shape).numel())


class Measured(NamedTuple):
    """Everything about all images, by call."""

    values: dict[Key, dict[str, Tensor]]  # measure -> [n]
    sizes: dict[Key, Size]
    moot: set[Key]  # calls that returned their input as it was, for every image
    change: Tensor  # [n] of the margin


def _measured(runner: Runner, found: Followed, pairs: Pairs) -> Measured:
    kinds = {name: type(module).__name__ for name, module in unwrap(runner.classifier.network).named_modules()}
    columns: dict[Key, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[Key, Size] = {}
    busy: set[Key] = set()
    first: Pass | None = None
    change = []
    for tile, real in tiles(pairs, found.tile):
        score = towards_the_rival(tile)
        clean, moved = runner.run(found.layers, tile.x, score), runner.run(found.layers, tile.x_adv)
        same_calls(clean, moved)
        first = first or clean
        same_calls(first, clean)
        change.append((score(moved.logits).double() - score(clean.logits).double())[:real].cpu())
        for key in clean.calls:
            one, other = clean.calls[key], moved.calls[key]
            size = Size(kinds.get(key.layer, "pixels"), tuple(one.output.shape[1:]))
            if other.output.shape != one.output.shape or sizes.setdefault(key, size) != size:
                raise UserError(f"The output of layer {key.layer!r} has another shape for other images; leave it out.")
            if not (_returned(one) and _returned(other)):
                busy.add(key)
            for name, values in _of_one_call(one, other).items():
                columns[key][name].append(values[:real].cpu())
    whole = {key: {name: torch.cat(parts) for name, parts in each.items()} for key, each in columns.items()}
    return Measured(whole, sizes, set(sizes) - busy, torch.cat(change))


def _returned(taken: Taken) -> bool:
    """Whether the output is the input, at most in another shape: Dropout, Identity, Flatten."""
    fed = taken.input
    return (
        fed is not None and fed.numel() == taken.output.numel() and torch.equal(fed.flatten(), taken.output.flatten())
    )


def _of_one_call(clean: Taken, moved: Taken) -> dict[str, Tensor]:
    # Made wide once: each measure would do it again, and that costs more than the measure.
    a, b = clean.output.double(), moved.output.double()
    relative = measures.relative_change(a, b)
    unknown = torch.full_like(relative, torch.nan)
    fed = None
    if clean.input is not None and moved.input is not None and clean.input.shape == moved.input.shape:
        fed = measures.relative_change(clean.input.double(), moved.input.double())
    return {
        "relative": relative,
        "gain": unknown if fed is None else measures.quotient(relative, fed),
        "cosine": measures.cosine(a, b),
        "flips": unknown if clean.input is None else measures.sign_flips(a, b),
        "margin": unknown if clean.grad is None else measures.attribution(clean.grad, a, b),
    }


def towards_the_rival(pairs: Pairs) -> Score:
    """`z_rival - z_y`, the margin against the class that the perturbed image prefers among the wrong ones.

    The class is fixed, so that the score is linear in the logits and a layer's promise can be held against it; where
    the attack succeeded, its change is what turned the prediction.
    """

    def score(logits: Tensor) -> Tensor:
        rival, y = (classes.to(logits.device)[:, None] for classes in (pairs.rival, pairs.y))
        return (logits.gather(1, rival) - logits.gather(1, y)).squeeze(1)

    return score


def _similarities(runner: Runner, found: Followed, pairs: Pairs, measured: Measured) -> dict[Key, dict[str, float]]:
    """CKA of each call over each group of images."""
    if not LEAST <= len(pairs) <= MOST:
        return {}
    widths = {key: size.width for key, size in measured.sizes.items()}
    rows = {group: members(pairs, group).nonzero().flatten() for group in GROUPS}
    return {
        key: {group: cka(both.clean[some][:, some], both.moved[some][:, some]) for group, some in rows.items()}
        for key, both in grams(runner, pairs, widths, found.tile)
    }


def _calls(measured: Measured, similar: Mapping[Key, Mapping[str, float]]) -> Iterator[CallTrace]:
    before: Tensor | None = None
    for order, (key, values) in enumerate(measured.values.items()):
        relative = values["relative"]
        more = {
            "amplification": torch.full_like(relative, torch.nan) if before is None
            else measures.quotient(relative, before),
            "margin_share": measures.quotient(values["margin"], measured.change),
        }  # fmt: skip
        size, moot = measured.sizes[key], key in measured.moot
        yield CallTrace(order, key, size.kind, size.shape, {**values, **more}, moot, similar.get(key, {}))
        before = relative
