"""Build a network from a folder with the library transformers, and run no code of the folder."""

from collections.abc import Iterator
from typing import Any

import torch

from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.models import checkpoint

from .folders import HubFolder
from .proportion import require_proportionate

_OWN = ("eager", "sdpa")  # implementations that are part of transformers and torch; any other name may be a repository


def require_plain(config: dict[str, Any], where: str) -> None:
    """Refuse a configuration that needs code of its own, or weights that are not plain floats.

    Raises:
        UserError: it does.
    """
    if config.get("quantization_config") is not None:
        raise UserError(
            f"{shortened(where)} is quantised, and attacks need the gradients of plain weights; name the model before "
            "it was quantised."
        )
    for name in _implementations(config):
        if name not in _OWN:
            raise UserError(
                f"{shortened(where)} asks for the implementation {shortened(name)}, which may be code from the hub; "
                "remove that line from its config.json."
            )
    if config.get("model_type") is None:
        raise UserError(
            f"The config.json of {shortened(where)} names no model_type; save the model with a newer transformers."
        )


def built(library: Any, kind: str, folder: HubFolder, where: str, **more: Any) -> Any:
    """What the automatic class `kind` of transformers makes of a folder, without code from it, and complete.

    Raises:
        UserError: transformers cannot build it, or the folder has not all of its weights.
    """
    loader = getattr(library, kind)
    try:
        require_proportionate(loader, library, folder, where)
        network, report = loader.from_pretrained(
            folder.path, trust_remote_code=False, local_files_only=True, use_safetensors=True, dtype=torch.float32,
            output_loading_info=True, ignore_mismatched_sizes=True, **more,
        )  # fmt: skip
    except UserError:
        raise
    except Exception as error:  # settings and weights of any kind reach the library's own code
        if "trust_remote_code" in str(error) or "auto_map" in folder.config:
            raise UserError(
                f"{shortened(where)} needs code of its own (trust_remote_code), which robustkit never runs; if you "
                "trust it, load the model in a function of yours: --model FILE.py:FUNCTION."
            ) from error
        reason = shortened(str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__)
        raise UserError(f"transformers cannot load {shortened(where)} ({reason}); save or copy it again.") from error
    for key, *shapes in sorted(report["mismatched_keys"]):
        stored, wanted = ([*shape] for shape in shapes)
        raise UserError(
            f"The weight {shortened(key)} of {shortened(where)} has the shape {stored}, and its config.json asks for "
            f"{wanted}; correct config.json (id2label must name every class), or save the model again."
        )
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise UserError(
            f"{shortened(where)} has no weights for {shortened(lacking[0])}"
            f"{f' and {len(lacking) - 1} more' if lacking[1:] else ''}, so it is not trained as "
            f"{type(network).__name__}; name a trained model."
        )
    for name, weight in network.state_dict().items():
        checkpoint.require_usable(weight, weight, f"The weight {shortened(name)} of {shortened(where)}")
    for part in network.modules():
        if isinstance(getattr(part, "name_or_path", None), str):
            part.name_or_path = ""  # the place of a folder is no part of the model
    return network.eval()


def _implementations(config: dict[str, Any]) -> Iterator[str]:
    """The implementations of attention and of other layers that a configuration names, at any depth."""
    waiting: list[tuple[object, bool]] = [(config, False)]
    while waiting:
        value, named = waiting.pop()
        if isinstance(value, dict):
            waiting += [(each, named or "_implementation" in key) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(each, named) for each in value]
        elif named and isinstance(value, str):
            yield value
