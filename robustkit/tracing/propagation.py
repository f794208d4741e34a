"""`trace`: measure the propagation of a perturbation through every layer call of a network.

The combination is ours; the measures are known: relative change and cosine of activations, linear CKA (Kornblith et al.
2019), and first-order attribution of the margin's change. Computed per image, then summarised by medians.
The clean and perturbed passes run the model itself under hooks and do not go through the engine, whose query does not
return activations; the attack that makes the perturbation does.
Bad at: operations without a module (`x + y`, `F.relu`), which change the perturbation between two rows of the table.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit import limits
from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.classifier.sanity_checks import checked_images
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments
from robustkit.models.programs import is_from_file
from robustkit.nethook import select, unwrap
from robustkit.primitives.protocol import Attack

from . import measures
from .cka import LEAST, MOST, cka
from .followed import Followed, Layers, followed
from .grams import grams
from .passes import Key, Pass, RecordedCall, Runner, Score, check_same_calls, tiles
from .points import GIVEN, Pairs, PerturbationOrigin, correct_pairs, crafted_points
from .traced import GROUPS, CallTrace, Traced, members


@checked_arguments
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
    """How a perturbation propagates, call by call, over the images that the model classifies correctly.

    Args:
        model: takes images in `bounds`, returns logits; its state is restored afterwards.
        x: `[N, *S]` float images.
        y: `[N]` true classes.
        x_adv: `[N, *S]` perturbed images; None makes them with `attack`.
        attack: a specification such as "apgd:steps=50", or an attack object, which has its own radius.
        eps: the radius of `attack`, in units of pixels scaled to [0, 1]; "8/255" is exact.
        norm: "Linf", "L2", "L1" or "L0".
        bounds: range of valid values; a `Classifier` has its own.
        layers: names or globs; None takes every module inside which no other module runs.
        seed: of the attack's noise and of the model's.
        batch_size: of the attack; the trace itself uses tiles of a fixed size, so its numbers do not depend on it.
        numbers: the images' numbers in reports; None counts from 0.

    Raises:
        UserError: images, labels, model or layers are not valid; the message says how to correct them.
    """
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not isinstance(x_adv, Tensor | None):
        raise UserError("Images and labels must be tensors; use torch.as_tensor on arrays and lists.")
    classifier = as_classifier(model, bounds)
    if is_from_file(classifier.network):
        raise UserError(
            f"{classifier.name} was saved as a program, whose layers cannot be opened; trace the module that it was "
            "saved from: --model FILE.py:NAME --weights FILE."
        )
    seed = limits.whole_seed(seed)
    if layers is not None:
        select(classifier.network, layers)  # report a wrong name before the attack runs
    origin = PerturbationOrigin(GIVEN, "", "", 0)
    if x_adv is None:
        x_adv, origin = crafted_points(classifier, x, y, attack, eps, norm, seed=seed, batch_size=batch_size)
    with classifier.session(classifier.place(checked_images(x.detach(), classifier.bounds)), seed) as session:
        pairs = correct_pairs(classifier, session, x, x_adv, y, range(len(x)) if numbers is None else numbers)
        runner = Runner(classifier, seed)
        chosen = followed(runner, pairs, layers)
        measured = _measure(runner, chosen, pairs)
        similarities = _similarities(runner, chosen, pairs, measured)
    origin = replace(origin, clean_wrong=len(x) - len(pairs))
    calls = tuple(_calls(measured, similarities))
    return Traced(classifier.name, pairs, origin, classifier.bounds, seed, calls, measured.change, chosen.unseen)


class OutputShape(NamedTuple):
    """The class of a layer, and the shape of its output for one image."""

    kind: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of values."""
        return int(torch.Size(self.shape).numel())


class Measurements(NamedTuple):
    """The measurements of all images, by call."""

    values: dict[Key, dict[str, Tensor]]  # measure -> [n]
    shapes: dict[Key, OutputShape]
    moot: set[Key]  # calls that returned their input unchanged for every image
    change: Tensor  # [n] of the margin


def _measure(runner: Runner, chosen: Followed, pairs: Pairs) -> Measurements:
    kinds = {name: type(module).__name__ for name, module in unwrap(runner.classifier.network).named_modules()}
    columns: dict[Key, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    shapes: dict[Key, OutputShape] = {}
    changing: set[Key] = set()
    first: Pass | None = None
    change = []
    for tile, real in tiles(pairs, chosen.tile):
        score = rival_margin(tile)
        clean, perturbed = runner.run(chosen.layers, tile.x, score), runner.run(chosen.layers, tile.x_adv)
        check_same_calls(clean, perturbed)
        first = first or clean
        check_same_calls(first, clean)
        change.append((score(perturbed.logits).double() - score(clean.logits).double())[:real].cpu())
        for key in clean.calls:
            one, other = clean.calls[key], perturbed.calls[key]
            shape = OutputShape(kinds.get(key.layer, "pixels"), tuple(one.output.shape[1:]))
            if other.output.shape != one.output.shape or shapes.setdefault(key, shape) != shape:
                raise UserError(f"The output of layer {key.layer!r} has another shape for other images; leave it out.")
            if not (_returns_input(one) and _returns_input(other)):
                changing.add(key)
            for name, values in _measures(one, other).items():
                columns[key][name].append(values[:real].cpu())
    whole = {key: {name: torch.cat(parts) for name, parts in each.items()} for key, each in columns.items()}
    return Measurements(whole, shapes, set(shapes) - changing, torch.cat(change))


def _returns_input(call: RecordedCall) -> bool:
    """Whether the output has the values of the input, in any shape: Dropout, Identity, Flatten."""
    before, after = call.input, call.output
    return before is not None and before.numel() == after.numel() and torch.equal(before.flatten(), after.flatten())


def _measures(clean: RecordedCall, perturbed: RecordedCall) -> dict[str, Tensor]:
    # Converted once: a conversion in each measure would cost more than the measure.
    a, b = clean.output.double(), perturbed.output.double()
    relative = measures.relative_change(a, b)
    unknown = torch.full_like(relative, torch.nan)
    input_change = None
    if clean.input is not None and perturbed.input is not None and clean.input.shape == perturbed.input.shape:
        input_change = measures.relative_change(clean.input.double(), perturbed.input.double())
    return {
        "relative": relative,
        "gain": unknown if input_change is None else measures.quotient(relative, input_change),
        "cosine": measures.cosine(a, b),
        "flips": unknown if clean.input is None else measures.sign_flips(a, b),
        "margin": unknown if clean.grad is None else measures.attribution(clean.grad, a, b),
    }


def rival_margin(pairs: Pairs) -> Score:
    """`z_rival - z_y`, the margin against the wrong class with the highest logit for the perturbed image.

    The class is fixed, so the score is linear in the logits and its change can be attributed to layers. Where the
    attack succeeded, the rival is the predicted class.
    """

    def score(logits: Tensor) -> Tensor:
        rival, y = (classes.to(logits.device)[:, None] for classes in (pairs.rival, pairs.y))
        return (logits.gather(1, rival) - logits.gather(1, y)).squeeze(1)

    return score


def _similarities(
    runner: Runner, chosen: Followed, pairs: Pairs, measured: Measurements
) -> dict[Key, dict[str, float]]:
    """CKA of each call over each group of images."""
    if not LEAST <= len(pairs) <= MOST:
        return {}
    widths = {key: shape.width for key, shape in measured.shapes.items()}
    rows = {group: members(pairs, group).nonzero().flatten() for group in GROUPS}
    return {
        key: {group: cka(both.clean[some][:, some], both.perturbed[some][:, some]) for group, some in rows.items()}
        for key, both in grams(runner, pairs, widths, chosen.tile)
    }


def _calls(measured: Measurements, similarities: Mapping[Key, Mapping[str, float]]) -> Iterator[CallTrace]:
    before: Tensor | None = None
    for order, (key, values) in enumerate(measured.values.items()):
        relative = values["relative"]
        more = {
            "amplification": torch.full_like(relative, torch.nan) if before is None
            else measures.quotient(relative, before),
            "margin_share": measures.quotient(values["margin"], measured.change),
        }  # fmt: skip
        shape, moot = measured.shapes[key], key in measured.moot
        yield CallTrace(order, key, shape.kind, shape.shape, {**values, **more}, moot, similarities.get(key, {}))
        before = relative
