"""The folder of a Hugging Face model: on the disk, or fetched from the hub; weights as safetensors and nothing else."""

import importlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_SETTINGS = ("*.json", "merges.txt", "*.model")  # of configuration, image processor and tokenizer
_WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors")
_ID = re.compile(r"(?P<id>\w[\w.-]*(/\w[\w.-]*)?)(@(?P<revision>[\w./-]+))?")


class HubFolder(NamedTuple):
    """The files of a model."""

    path: Path
    name: str  # what reports call it
    source: str  # one phrase
    config: dict[str, Any]


def open_folder(where: str, *, weights: bool = True) -> HubFolder:
    """The folder of the model `where`: a folder, or ID or ID@REVISION on the hub, which is downloaded or in its cache.

    Args:
        where: what stands after "hf:".
        weights: whether the weights are needed too.

    Raises:
        UserError: there is no such model, it cannot be downloaded, or it has no configuration or no safetensors.
    """
    path = user_path(where)
    local = path.is_dir()
    folder = path if local else _downloaded(where, weights=weights)
    config = _config(folder, where)
    if weights:
        _require_safetensors(folder, where)
    name = name_of(where)
    # The folder's name alone: a run may go on after its model was moved.
    source = f"the folder {name}" if local else f"{where} of the Hugging Face hub, commit {folder.name[:12]}"
    return HubFolder(folder, name, source, config)


def require_address(where: str) -> None:
    """Check that `where` is a folder with a configuration, or may be an ID on the hub, without asking it.

    Raises:
        UserError: it is neither.
    """
    path = user_path(where)
    if path.is_dir():
        _config(path, where)
    elif _ID.fullmatch(where) is None:
        raise no_file(f"There is no folder {shortened(where)}", path, "give a folder, or an ID such as google/vit-base")


def name_of(where: str) -> str:
    """What reports call a model: the last part of its address, with the part before it where that says too little."""
    path = user_path(where)
    parts = path.resolve().parts if path.is_dir() else Path(where.replace("@", "-", 1)).parts
    # Trainer writes "run/checkpoint-500", and every run has one.
    several = parts[-1].startswith("checkpoint") and len(parts) > 1
    return "-".join(parts[-2:]) if several else parts[-1]


def _downloaded(where: str, *, weights: bool) -> Path:
    require_address(where)
    address = _ID.fullmatch(where)
    assert address is not None
    hub: Any = importlib.import_module("huggingface_hub")
    patterns = [*_SETTINGS, *(_WEIGHTS if weights else ())]
    try:
        return Path(hub.snapshot_download(address["id"], revision=address["revision"], allow_patterns=patterns))
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError) as error:
        raise UserError(
            f"There is no folder {where}, and no model {where} on the Hugging Face hub that you may read; check the "
            "name, or log in: hf auth login."
        ) from error
    except Exception as error:  # of the network, of proxies, of the disk: each library on the way has its own
        raise UserError(
            f"There is no folder {where}, and it could not be downloaded from the Hugging Face hub "
            f"({_reason(error)}); on a connected machine run hf download {address['id']} --local-dir DIR, copy DIR "
            "here and name it."
        ) from error


def _reason(error: Exception) -> str:
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return shortened((str(error) or type(error).__name__).split("\n")[0].rstrip(".:"))


def _config(folder: Path, where: str) -> dict[str, Any]:
    for file in sorted(folder.glob("*.json")):
        if not file.is_file():  # a pipe would never answer
            raise UserError(f"{shortened(file)} is not a regular file; copy the model's folder again.")
        if file.stat().st_size > limits.MODEL_SETTINGS_BYTES:
            raise UserError(
                f"{shortened(file)} has more than {limits.MODEL_SETTINGS_BYTES // limits.MIB} MiB, too much for the "
                "settings of a model; copy the folder again."
            )
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"The folder {shortened(where)} has no {CONFIG}, so it is not a Hugging Face model; save one there: "
            "model.save_pretrained(FOLDER)."
        )
    config = _json(folder / CONFIG)
    if not isinstance(config, dict):
        raise UserError(f"{shortened(folder / CONFIG)} is not a configuration of a model; copy the folder again.")
    return config


def _json(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{shortened(file)} cannot be read as JSON; copy the folder again.") from None


def _require_safetensors(folder: Path, where: str) -> None:
    """Check that the weights are safetensors: other formats can hold code."""
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"{shortened(where)} has adapters, which name another model; merge them: model.merge_and_unload(), then "
            "save_pretrained(FOLDER)."
        )
    if (folder / "model.safetensors").is_file():
        return
    index = _json(folder / _INDEX) if (folder / _INDEX).is_file() else None
    if index is None:
        raise UserError(
            f"{shortened(where)} has no model.safetensors{_other_weights(folder)}; write it: "
            "model.save_pretrained(FOLDER, safe_serialization=True)."
        )
    shards = index.get("weight_map") if isinstance(index, dict) else None
    names = set(map(str, shards.values())) if isinstance(shards, dict) else set()
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors") or not (folder / name).is_file():
            raise UserError(
                f"{_INDEX} of {shortened(where)} names {shortened(name)}, which is not a safetensors file of the "
                "folder; copy the whole folder again."
            )


def _other_weights(folder: Path) -> str:
    others = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".h5", ".msgpack", ".pt", ".pth"))
    return f", only {shortened(others[0])}, which is not read because loading such files can run code" if others else ""
