"""Hostile model files: safetensors files that describe their network."""

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import save

from tests.hostile.hostile_file import HostileFile, raw, small_state


def described(entry: object, name: str = "robustkit") -> Callable[[Path], object]:
    """Small weights with this metadata; what is no text is written as JSON."""
    text = entry if isinstance(entry, str) else json.dumps(entry)
    return lambda path: path.write_bytes(save(small_state(), {name: text}))


def description(**changed: object) -> dict[str, object]:
    """A correct description, but for what is `changed`."""
    return {"architecture": "resnet18", "name": "small", "num_classes": 10, "mean": None, "std": None, **changed}


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in description().items() if name != key}


MODEL = "m.safetensors"
DESCRIBED_MODELS = {
    "no metadata": HostileFile(MODEL, lambda path: path.write_bytes(save(small_state()))),
    "metadata under another name": HostileFile(MODEL, described(description(), "other")),
    "metadata that is no JSON": HostileFile(MODEL, described("{")),
    "metadata that is empty": HostileFile(MODEL, described("")),
    "metadata that is a list": HostileFile(MODEL, described([1, 2])),
    "metadata that is a number": HostileFile(MODEL, described(5)),
    "metadata that is null": HostileFile(MODEL, described("null")),
    "metadata that is a text": HostileFile(MODEL, described('"resnet18"')),
    "metadata of 100000 brackets": HostileFile(MODEL, described("[" * 100_000)),
    "metadata with a number of 5000 digits": HostileFile(MODEL, described('{"num_classes": ' + "9" * 5000 + "}")),
    **{f"metadata without {key}": HostileFile(MODEL, described(without(key))) for key in description()},
    **{
        f"{key} is {str(value)[:20]}": HostileFile(MODEL, described(description(**{key: value})))
        for key, values in {
            "architecture": [None, 5, [], {}, "", "nosuch", "a.safetensors", "resnet18\x00", "x" * 10**6, "timm:",
                             "timm:nosuch", "timm:../../evil", "timm:local-dir:/tmp", "hf-hub:a/b", "hf:a/b",
                             "clip:/tmp", "robustbench:cifar10/Linf/x"],
            "name": [None, 5, [], {}],
            "num_classes": [None, "10", 0, -1, 1.5, True, 10**12, [], float("nan"), 2**31],
            "mean": ["0.5", 5, [], ["a"], [[0.5]], [None], [float("nan")], [float("inf")], [0.5] * 100_000, [True]],
            "std": [[0], [-1], [float("nan")], [float("inf")], [0.1, 0.2], {}],
        }.items()
        for value in values
    },
    "its own path as architecture": HostileFile(
        MODEL, lambda path: described(description(architecture=str(path)))(path)
    ),
    "weights of another network": HostileFile(MODEL, described(description())),
    "broken": HostileFile(MODEL, raw(b"{}")),
    "empty": HostileFile(MODEL, raw(b"")),
}  # fmt: skip


def names_code(folder: Path, address: str = "evil.py:make") -> Path:
    """A model file whose metadata names a function of a file beside it, which leaves CODE_RAN when it is imported."""
    (folder / "evil.py").write_text(
        "open('CODE_RAN', 'w').close()\nfrom torch import nn\n\n"
        "def make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    return HostileFile(MODEL, described(description(architecture=address))).make(folder)
