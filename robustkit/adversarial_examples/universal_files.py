"""A fitted perturbation as files: exact floats to judge again, a picture to look at, a table of what it breaks."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robustkit import limits
from robustkit.engine.fitted import FittedPerturbation, JudgedPerturbation
from robustkit.errors import UserError
from robustkit.host.text import csv_cell, encodable
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path
from robustkit.primitives import registry
from robustkit.version import __version__

from .eight_bits import WHITE, Levels
from .files import write_png

FILE, PICTURE, TABLE = "perturbation.safetensors", "perturbation.png", "results.csv"


class UniversalChoice(NamedTuple):
    """A universal attack as the user named it."""

    method: str  # such as "universal:steps=500"
    norm: str | None  # None for an attack without a radius
    eps: str | None


class StoredPerturbation(NamedTuple):
    """What a file holds."""

    fitted: FittedPerturbation
    choice: UniversalChoice
    images: frozenset[bytes]  # hashes of the images of the fit, by `image_hashes`


class JudgedOn(NamedTuple):
    """One judgement: of a perturbation, by a model, on a split."""

    model: str
    data: str
    split: str
    fitted: bool  # whether the perturbation was fitted to this very model on this split
    judged: JudgedPerturbation


def write_universal(stored: StoredPerturbation, judgements: Sequence[JudgedOn], folder: Path) -> None:
    """Write the perturbation, its picture and results.csv into a new folder."""
    from safetensors.torch import save

    folder.mkdir()
    fitted, choice, images = stored
    settings = {
        "attack": choice.method, "norm": choice.norm, "eps": choice.eps, "target": fitted.target,
        "bounds": list(fitted.bounds), "seed": fitted.seed, "fitted_to": judgements[0].model,
        "dataset": judgements[0].data, "version": __version__,
    }  # fmt: skip
    hashes = torch.tensor([list(digest) for digest in sorted(images)], dtype=torch.uint8, device="cpu")
    tensors = {"perturbation": fitted.perturbation.contiguous(), "fitted": fitted.fitted, "images": hashes}
    # Not save_file: its error for a full disk is no OSError.
    (folder / FILE).write_bytes(save(tensors, {"robustkit.universal": json.dumps(settings)}))
    if fitted.perturbation.dim() == 3 and len(fitted.perturbation) in (1, 3):
        write_png(_levels(fitted), folder / PICTURE)
    write_judgements(judgements, choice, folder)


def write_judgements(judgements: Sequence[JudgedOn], choice: UniversalChoice, folder: Path) -> None:
    """Write results.csv: one line for each judgement."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measures = judgements[0].judged.intervals._fields
    columns = [column for name in measures for column in (name, f"{name}_low", f"{name}_high")]
    settings = ["places", "attack", "norm", "eps"]
    writer.writerow(["model", "dataset", "split", "fitted", "n", "attacked", "broken", *columns, *settings])
    for model, data, split, fitted, judged in judgements:
        numbers = [number for share in judged.intervals for number in (share.value, share.low, share.high)]
        counts = [len(judged.success), int(judged.attacked.sum()), int(judged.success.sum())]
        cells = [model, data, split, fitted, *counts, *("" if math.isnan(number) else number for number in numbers)]
        writer.writerow([csv_cell(cell) for cell in [*cells, judged.places, *choice]])
    (folder / TABLE).write_bytes(encodable(text.getvalue()).encode())


def read_universal(path: Path) -> StoredPerturbation:
    """The perturbation in a file that `write_universal` wrote, or in the folder of such a file.

    Raises:
        UserError: there is none, or it is broken.
    """
    from safetensors import SafetensorError, safe_open

    path = user_path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise no_file(f"There is no file {shortened(path)}", path, "check the path of the perturbation")
    try:
        with safe_open(path, "pt") as opened:
            settings = json.loads((opened.metadata() or {})["robustkit.universal"])
            tensors = {name: opened.get_tensor(name) for name in ("perturbation", "fitted", "images")}
        choice = UniversalChoice(*(settings[name] for name in ("attack", "norm", "eps")))
        low, high = map(float, settings["bounds"])
        target, seed = settings["target"], int(settings["seed"])
        whole = isinstance(choice.method, str) and all(isinstance(value, str | None) for value in choice)
        whole = whole and (target is None or (type(target) is int and target >= 0)) and 0 <= seed <= limits.SEED
        whole = whole and tensors["images"].dtype == torch.uint8 and tensors["images"].dim() == 2
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise UserError(f"{shortened(path)} is not a perturbation that `robustkit universal` wrote.") from error
    if not whole or not low < high or not _plain(tensors["perturbation"]):
        raise UserError(f"{shortened(path)} is damaged; fit the perturbation again.")
    if ".py" in choice.method:  # a file of data never chooses code
        raise UserError(f"{shortened(path)} was fitted with an attack of your own; judge it in Python.")
    attack = registry.build_universal(choice.method, choice.norm or "Linf", choice.eps)
    fitted = FittedPerturbation(
        attack, tensors["perturbation"], target, (low, high), seed, tensors["fitted"], forwards=0, backwards=0
    )
    return StoredPerturbation(fitted, choice, frozenset(row.tobytes() for row in tensors["images"].numpy()))


def _plain(values: Tensor) -> bool:
    return values.dtype in (torch.float32, torch.float64) and bool(values.isfinite().all())


def _levels(fitted: FittedPerturbation) -> Levels:
    """A patch as it is; a change scaled so that the largest is black or white, and none is gray."""
    values = fitted.perturbation.double()
    if fitted.attack.norms:
        values = 0.5 + values / (2 * values.abs().max().clamp(min=1e-12))
    levels: Levels = np.rint(values.numpy() * WHITE).astype(np.int64)
    return levels
