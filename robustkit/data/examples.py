"""Adversarial examples from files and from Python, which something else than robustkit may have made."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments_but
from robustkit.host.text import as_name
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path
from robustkit.primitives import ensembles, registry
from robustkit.primitives.example_index import digests
from robustkit.primitives.given_examples import GivenExamples

from .arrays import SUFFIXES, from_tensors, read_arrays
from .dataset import Dataset
from .tensors import Array, tensor_of

A = TypeVar("A")
_UNIT = (0.0, 1.0)
_ROWS = ("clean", "worst-case", "union", "certified", "audit")  # of tables
_LETTERS = 100  # of a name
_AT_ONCE = 64


@runtime_checkable
class HasExamples(Protocol):
    """What `Run.adversarial` returns."""

    x: Tensor
    x_adv: Tensor


@checked_arguments_but("given")
def load_examples(
    given: str | Path | HasExamples | tuple[Array, Array],
    *,
    bounds: tuple[float, float] = _UNIT,
    name: str | None = None,
) -> GivenExamples:
    """Adversarial examples that `evaluate` and `attack` judge like those of their own attacks.

    Args:
        given: a `.npz` or `.safetensors` file with arrays `x` and `x_adv`; two arrays `(x, x_adv)`; or what
            `Run.adversarial` returns. Both are images `[N, C, H, W]` in `bounds`, or uint8: the clean ones and their
            adversarial examples, in the same order. An image may be there several times.
        bounds: range of valid values of arrays of floats.
        name: what results call them; by default the file's name, or "examples".

    Raises:
        UserError: the file is broken or lacks an array, the arrays are not as many images of one shape, or the name is
            that of an attack or a row of tables.
    """
    if isinstance(given, (str, Path)):
        path = _existing(given)
        return _examples(name or path.name, *_arrays(path, "x", "x_adv"), bounds=bounds)
    pair = (given.x, given.x_adv) if isinstance(given, HasExamples) else given
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise UserError("Examples are a file with arrays x and x_adv, or two arrays (x, x_adv).")
    x, x_adv = (tensor_of(each, "The examples") for each in pair)
    return _examples(name or "examples", x, x_adv, bounds=bounds)


def with_examples(attacks: Iterable[A], data: Dataset, ids: Sequence[int]) -> list[A | GivenExamples]:
    """The attacks, with the examples in the place of each file that holds some.

    A file without `x` has one example for each image of the data, in its order.

    Args:
        attacks: also texts and examples.
        data: the images.
        ids: which of them are attacked.

    Raises:
        UserError: as in `load_examples`; or a file has none for any of these images.
    """
    found: list[A | GivenExamples] = []
    for attack in attacks:
        if isinstance(attack, GivenExamples):
            found.append(_among(attack, _images(data, ids)))
        else:
            found.append(_of_file(attack, data, ids) if isinstance(attack, str) and _is_file(attack) else attack)
    return found


def _is_file(specification: str) -> bool:
    """Whether a text is the name of a file; hyper-parameters are KEY=VALUE, and the values of some are files."""
    text = specification.strip()
    return Path(text).suffix.lower() in SUFFIXES and ("=" not in text or user_path(text).is_file())


def _among(examples: GivenExamples, parts: Iterable[Tensor]) -> GivenExamples:
    counts = [count for part in parts for count in examples.counts(part)]
    if not any(counts):
        raise UserError(
            f"None of the {len(counts)} images is among the clean images x of {examples.name}. Store there the images "
            "as they are evaluated: in [0, 1] and in the same size."
        )
    # No numbers: a run may be extended, or stop early.
    return examples.among(
        counts, f"Not every image has an example in {examples.name}; those without one count as not broken by it."
    )


def _of_file(given: str, data: Dataset, ids: Sequence[int]) -> GivenExamples:
    path = _existing(given.strip())
    names, _ = read_arrays(path)
    if "x" in names or "x_adv" not in names:
        return _among(load_examples(path), _images(data, ids))
    (x_adv,) = _arrays(path, "x_adv")
    if len(x_adv) != len(data):
        raise UserError(
            f"{shortened(path.name)} has {len(x_adv)} examples and no clean images, and {data.name} has {len(data)} "
            "images; store the clean images of the examples as x."
        )
    images = torch.cat(list(_images(data, ids)))
    all_of_them = _checked(x_adv, f"x_adv of {path.name}", _UNIT)
    if all_of_them.shape[1:] != images.shape[1:]:
        raise UserError(
            f"{shortened(path.name)} has examples of the shape {list(all_of_them.shape[1:])}, and the images of "
            f"{data.name} have {list(images.shape[1:])}; store them in the size in which they are evaluated."
        )
    # The whole file's, so that a run may be extended by further images.
    sha256 = hashlib.sha256(b"".join(digests(all_of_them))).hexdigest()
    return _among(GivenExamples(_name(path.name), images, all_of_them[list(ids)], sha256), [images])


def _existing(given: str | Path) -> Path:
    path = user_path(given)
    if not path.is_file():
        raise no_file(f"There is no file {shortened(given)}", path, "check the path of the examples")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{shortened(path.name)} is no file of arrays; store x and x_adv as {' or '.join(SUFFIXES)}.")
    return path


def _arrays(path: Path, *names: str) -> list[Tensor]:
    there, read = read_arrays(path)
    missing = [name for name in names if name not in there]
    if missing:
        listed = shortened(", ".join(sorted(there))) or "nothing"
        raise UserError(
            f"{shortened(path.name)} has no array {' and no '.join(missing)} (it has: {listed}); store the clean "
            "images as x and their adversarial examples as x_adv."
        )
    return [read(name) for name in names]


def _examples(name: str, x: Tensor, x_adv: Tensor, *, bounds: tuple[float, float] = _UNIT) -> GivenExamples:
    name = _name(name)
    clean, adversarial = _checked(x, name, bounds), _checked(x_adv, f"x_adv of {name}", bounds)
    if clean.shape != adversarial.shape:
        raise UserError(
            f"{name} has clean images of the shape {list(clean.shape)} and examples of {list(adversarial.shape)}; give "
            "one of each, in the same order."
        )
    pairs = sorted(map(b"".join, zip(digests(clean), digests(adversarial), strict=True)))  # in any order
    sha256 = hashlib.sha256(b"".join(pairs)).hexdigest()
    return GivenExamples(name, clean, adversarial, sha256, rounded=x.dtype not in (torch.float32, torch.float64))


def _name(name: str) -> str:
    name = as_name(name)
    if len(name) > _LETTERS:
        raise UserError(
            f"The name {shortened(name)!r} of examples has more than {_LETTERS} letters; give a shorter one."
        )
    if not name or "/" in name or name in _ROWS or name in registry.names() or ensembles.is_ensemble(name):
        raise UserError(f"{name!r} cannot be the name of examples: it stands for something else; give another name.")
    return name


def _checked(values: Tensor, name: str, bounds: tuple[float, float]) -> Tensor:
    low, high = bounds
    if not -math.inf < low < high < math.inf:
        raise UserError(f"bounds are the lowest and the highest value of a pixel, such as (0, 255), not {bounds}.")
    if bounds != _UNIT and values.is_floating_point():
        values = (values.detach() - low) / (high - low)
    labels = torch.zeros(len(values) if values.ndim else 0, dtype=torch.int64, device="cpu")
    return from_tensors(values, labels, name=name).images


def _images(data: Dataset, ids: Sequence[int]) -> Iterator[Tensor]:
    for start in range(0, len(ids), _AT_ONCE):
        yield data.batch(list(ids[start : start + _AT_ONCE]))[0]
