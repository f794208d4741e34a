"""What determines a run's result, and the refusal to mix two runs that differ in it.

A run may grow: more images, more attacks, more models. Nothing else may change under its evidence.
"""

import hashlib
import inspect
import json
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from robustkit.errors import UserError
from robustkit.evidence.store import SCHEMA

if TYPE_CHECKING:
    from robustkit.classifier.classifier import Classifier
    from robustkit.evaluation.setting import Setting


# A remedy is named only where it is used, so that evidence without any keeps its name.
_USUAL: dict[str, Any] = {"bpda": {}, "eot": None, "draws": 64, "probabilities": False}


def identity_of(setting: "Setting") -> dict[str, Any]:
    """The part of a manifest that the results depend on."""
    crafters = [_model(each, str(getattr(each.model, "source", "given by the caller"))) for each in setting.surrogates]
    return {
        "schema": SCHEMA,
        "n": len(setting.ids),
        "models": [_model(*pair) for pair in zip(setting.classifiers, setting.sources, strict=True)],
        **({"surrogates": crafters} if crafters else {}),
        "dataset": {
            "name": setting.data.name,
            "split": setting.data.split,
            "sha256": setting.data.fingerprint(setting.ids),
        },
        "class_names": list(setting.data.class_names),
        "threats": [[threat.norm, threat.eps_text] for threat in setting.plan.threats],
        "attacks": setting.plan.described(),
        "seed": setting.seed,
    }


def _model(classifier: "Classifier", source: str) -> dict[str, Any]:
    remedies = {
        "bpda": {layer: _function(stand_in) for layer, stand_in in classifier.bpda.items()},
        "eot": classifier.eot,
        "draws": classifier.draws,
        "probabilities": classifier.probabilities,
    }
    return {
        "name": classifier.name,
        "source": source,
        "sha256": fingerprint(classifier.model),
        "bounds": list(classifier.bounds),
        "fold": classifier.fold,
        "channels_last": classifier.channels_last,
        "compile": classifier.compile,
        "bf16": classifier.bf16,
        "device": classifier.device.type,
        **{key: value for key, value in remedies.items() if value != _USUAL[key]},
        **({} if classifier.smoothing is None else {"smoothing": vars(classifier.smoothing)}),
    }


def _function(stand_in: object) -> str:
    """What tells two functions apart: a module's content, or a name and its source."""
    if stand_in is None:
        return "identity"
    if isinstance(stand_in, nn.Module):
        return fingerprint(stand_in)
    name = getattr(stand_in, "__qualname__", type(stand_in).__qualname__)
    return f"{name} {hashlib.sha256(_source(stand_in)).hexdigest()[:16]}"


def digest(identity: dict[str, Any]) -> str:
    """Eight hex digits that name a run."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of what a module computes with: structure, weights, all buffers, plain settings and its own source."""
    state = hashlib.sha256(str(model).encode())
    for name, value in sorted({**model.state_dict(), **dict(model.named_buffers())}.items()):
        if isinstance(value, torch.Tensor):
            state.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            state.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    for name, module in model.named_modules():
        # A library's modules say all of their settings in their repr, and are told apart by its version.
        if not _from_a_library(type(module)):
            plain = {key: value for key, value in sorted(vars(module).items()) if _is_setting(key, value)}
            state.update(f"{name} {plain}".encode())
    for kind in sorted({type(module) for module in model.modules()}, key=lambda kind: kind.__qualname__):
        if not _from_a_library(kind) and not kind.__module__.startswith("robustkit."):
            state.update(_source(kind))
    return state.hexdigest()


def _from_a_library(kind: type) -> bool:
    return kind.__module__.startswith(("torch.", "torchvision.", "timm."))


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute is a plain value that a forward may read: a number, a text, or a tuple of them."""
    if name == "training" or name.startswith("_"):
        return False
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, (int, float, str)) for item in items)


def _source(kind: Any) -> bytes:
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        return b""


def compared(old: dict[str, Any], new: dict[str, Any], setting: "Setting") -> None:
    """Check that a run's evidence may be continued.

    Raises:
        UserError: something that determines the result has changed; the sentence names it.
    """
    changes = [_named(key, old[key], new[key]) for key in ("schema", "threats", "seed")
               if old[key] != new[key]]  # fmt: skip
    # Grown data keep their first images: those must be the ones that were used.
    same = {**new["dataset"], "sha256": setting.data.fingerprint(setting.ids[: old["n"]])}
    if new["n"] < old["n"]:
        changes.append(f"samples was {old['n']}, now {new['n']}")
    elif old["dataset"] != same:
        changes.append(_named("dataset", old["dataset"], same))
    for key in ("models", "attacks", "surrogates"):
        now = {entry["name"]: entry for entry in new.get(key, [])}
        changes += [
            _named(f"{key[:-1]} {entry['name']}", entry, now.get(entry["name"]))
            for entry in old.get(key, [])
            if entry != now.get(entry["name"])
        ]
    if changes:
        raise UserError(
            f"This run folder holds another evaluation: {'; '.join(changes)}. Give another --out, or the old settings."
        )


def _named(key: str, old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        old, new = _flat(old), _flat(new)
        parts = [f"{name} was {_short(old.get(name))}, now {_short(new.get(name))}" for name in {**old, **new}
                 if old.get(name) != new.get(name)]  # fmt: skip
        return f"{key}: {', '.join(parts)}"
    return f"{key} was {_short(old)}, now {_short(new)}"


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with what lies one level down named as `key.inner`."""
    flat = {key: value for key, value in entry.items() if not isinstance(value, dict)}
    nested = {key: value for key, value in entry.items() if isinstance(value, dict)}
    return flat | {f"{key}.{inner}": value for key, values in nested.items() for inner, value in values.items()}


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:12]}..."
