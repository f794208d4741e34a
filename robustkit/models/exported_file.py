"""Programs saved by `torch.export.save`, read as data: JSON and raw tensors, nothing unpickled or evaluated."""

import json
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

from .batch_range import BatchRange
from .checkpoint import not_whole
from .exported_graph import DTYPES, ExportedNetwork, steps_of

SUFFIX = ".pt2"
_MODEL = "models/model.json"
# "s31", or as sympy writes it: "Symbol('s31', integer=True)".
_SYMBOL = re.compile(r"(?:Symbol\(')?(\w+)(?:'[^()]*\))?")
_FOLDERS = {"weights": "data/weights/", "constants": "data/constants/"}


class Exported(NamedTuple):
    """The network of an exported program, and the sizes of batches that it takes."""

    network: ExportedNetwork
    batches: BatchRange


class _Archive:
    """The records of a `.pt2` file by their names without the first folder."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.records = {info.filename.partition("/")[2]: info for info in archive.infolist()}

    def json(self, name: str) -> Any:
        return json.loads(self.read(name, limits.CODE_BYTES))

    def read(self, name: str, most: int | None = None) -> bytes:
        """The bytes of a record; torch packs none, so a record has no more than the file.

        Raises:
            ValueError: it has more, or it is not there.
        """
        if name not in self.records:
            raise ValueError(f"{name} is missing")
        info = self.records[name]
        most = info.compress_size if most is None else most
        with self.archive.open(info) as record:
            content = record.read(most + 1)
        if len(content) > most:
            raise ValueError(f"{name} has more than {most:,} bytes")
        return content


def load_exported(path: Path) -> Exported:
    """The network of an exported program, on the CPU.

    Raises:
        UserError: the file is broken or of an old format, or the program does more than compute logits from images.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _loaded(_Archive(archive), shortened(path))
    except UserError:
        raise
    except Exception as error:  # a broken file makes zipfile, json and torch raise almost anything
        raise not_whole(path, "file of torch.export", error) from error


def _loaded(archive: _Archive, place: str) -> Exported:
    if _MODEL not in archive.records:
        raise UserError(
            f"{place} holds no exported program in the format of torch 2.9; export and save it again with torch 2.9 or "
            "newer."
        )
    if archive.read("byteorder", 16) != b"little" if "byteorder" in archive.records else False:
        raise UserError(f"{place} was written on a machine with another byte order; save it on this one.")
    program = archive.json(_MODEL)
    module = program["graph_module"]
    graph, signature = module["graph"], module["signature"]
    image, sources = _inputs(signature["input_specs"], place)
    outputs = _outputs(signature["output_specs"], place)
    keys = _keys(module, len(signature["output_specs"]))
    tensors = {kind: _tensors(archive, kind, place) for kind in _FOLDERS}
    everything = {**tensors["constants"], **tensors["weights"]}
    weights = {name: everything[source] for name, source in sources.items()}
    given = graph["tensor_values"][image]
    sizes, dtype = given["sizes"], DTYPES[given["dtype"]]
    shape = [each.get("as_int") for each in sizes[1:]]
    names = [name for name in outputs if name is not None]
    kept = [key for key, name in zip(keys, outputs, strict=False) if name is not None]
    network = ExportedNetwork(steps_of(graph, names, place), weights, image, shape, dtype, names, kept)
    return Exported(network, _batches(sizes[0], program.get("range_constraints", {}), place))


def _inputs(specs: list[Mapping[str, Any]], place: str) -> tuple[str, dict[str, str]]:
    """The name of the images in the graph; and for the names of the weights there, those of the file."""
    images, weights = [], {}
    for spec in specs:
        ((kind, entry),) = spec.items()
        if kind == "user_input":
            images.append(entry["arg"].get("as_tensor", {}).get("name"))
        elif kind in ("parameter", "buffer", "tensor_constant"):
            weights[entry["arg"]["name"]] = entry[f"{kind}_name"]
        else:
            raise UserError(f"{place} has an input of the kind {shortened(kind)}; export a network of images alone.")
    if len(images) != 1 or images[0] is None:
        raise UserError(f"{place} takes {len(images)} inputs; export a network whose only input are images.")
    return images[0], weights


def _outputs(specs: list[Mapping[str, Any]], place: str) -> list[str | None]:
    """The names of the outputs in the graph, None of those that are no tensors."""
    names: list[str | None] = []
    for spec in specs:
        ((kind, entry),) = spec.items()
        if kind != "user_output":
            raise UserError(f"{place} changes its own state ({shortened(kind)}); call eval() before the export.")
        names.append(entry["arg"].get("as_tensor", {}).get("name"))
    if not any(names):
        raise UserError(f"{place} returns no tensor; export a network that returns logits.")
    return names


def _keys(module: Mapping[str, Any], count: int) -> list[str]:
    """The keys of the dict that the network returns; none if it returns anything else than a dict of so many values."""
    whole = next(call["signature"] for call in module["module_call_graph"] if not call["fqn"])
    _, spec = json.loads(whole["out_spec"])
    if spec["type"] != "builtins.dict":
        return []
    keys = [str(key) for key in json.loads(spec["context"])]
    return keys if len(keys) == count else []


def _tensors(archive: _Archive, kind: str, place: str) -> dict[str, Tensor]:
    """The weights or the constants, by the names of their modules."""
    config = archive.json(f"{_FOLDERS[kind]}model_{kind}_config.json")["config"]
    tensors, buffers = {}, dict[str, bytearray]()
    for name, entry in config.items():
        meta, record = entry["tensor_meta"], entry["path_name"]
        if entry["use_pickle"] or meta is None:
            raise UserError(
                f"{place} contains Python objects ({shortened(name)}), and loading those could run code; export a "
                "network of plain tensors."
            )
        if record not in buffers:
            buffers[record] = bytearray(archive.read(_FOLDERS[kind] + record))
        value = _tensor(buffers[record], meta, name)
        tensors[name] = nn.Parameter(value, meta["requires_grad"]) if entry["is_param"] else value
    return tensors


def _tensor(content: bytearray, meta: Mapping[str, Any], name: str) -> Tensor:
    dtype = DTYPES[meta["dtype"]]
    sizes, strides = ([each["as_int"] for each in meta[key]] for key in ("sizes", "strides"))
    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype, device="cpu")
    if any(size < 0 for size in sizes) or math.prod(sizes) > flat.numel():
        raise ValueError(f"{shortened(name)} claims the shape {shortened(sizes)}")
    return flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])


def _batches(size: Mapping[str, Any], ranges: Mapping[str, Any], place: str) -> BatchRange:
    """The batches that the program was exported for: one size, or the range of a symbol."""
    if "as_int" in size:
        return BatchRange(size["as_int"], size["as_int"])
    text = size["as_expr"]["expr_str"]
    symbol = _SYMBOL.fullmatch(text)
    if symbol is None or symbol[1] not in ranges:
        raise UserError(
            f"{place} takes batches of {shortened(text)} images only; export it with one dynamic dimension, "
            "torch.export.Dim('batch'), for the batch."
        )
    least, most = (ranges[symbol[1]][key] for key in ("min_val", "max_val"))
    return BatchRange(least or 1, most)
