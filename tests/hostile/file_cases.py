"""Hostile data sets, weights, model files and configurations."""

from collections.abc import Iterator
from pathlib import Path

from tests.hostile.case import Case, Prepare
from tests.hostile.files import (
    ARRAY_FILES,
    DESCRIBED_MODELS,
    PICTURE_FOLDERS,
    SAFETENSORS_FILES,
    TORCH_FILES,
    HostileFile,
    names_code,
)

ATTACK = ("-a", "fgsm", "--eps", "0.1", "-n", "8")
ENDS = frozenset({0, 2})
CONFIGS = {
    "empty": "", "no TOML": "a = ", "a table": "[model]\na = 1\n", "unknown": "nosuch = 1\n",
    "a date": "seed = 1979-05-27\n",
    "a zero byte in a path": 'dataset = "nul\\u0000.npz"\n', "a zero byte in a model": 'model = "nul\\u0000.py:f"\n',
    "a zero byte in the output": 'out = "nul\\u0000"\n', "a huge number": f"seed = {'9' * 5000}\n",
    "a number for a flag": "quiet = 3\n", "a flag for a number": "seed = true\n", "nan": "eps = nan\n",
    "a list of lists": "eps = [[1]]\n", "a million keys": "\n".join(f"a{i} = 1" for i in range(20_000)),
    "deep": "a = " + "[" * 5000 + "]" * 5000, "escape codes": 'model = "\\u001b[2J"\n', "not UTF-8": "\udcff = 1",
    "the configuration itself": 'config = "plan.toml"\n', "help": "help = true\n", "version": "version = true\n",
    "an empty list": "model = []\n", "an empty text": 'model = ""\n', "a negative zero": "eps = -0.0\n",
}  # fmt: skip


def made(file: HostileFile, place: str = "") -> Prepare:
    def prepare(folder: Path) -> None:
        (folder / "given").mkdir()
        file.make(folder / "given")

    return prepare


def cases() -> Iterator[tuple[str, Case]]:
    small = ("evaluate", "-q", "-m", "net.py:factory")
    for name, file in ARRAY_FILES.items():
        yield f"data {file.name}: {name}", Case((*small, "-d", f"given/{file.name}", *ATTACK), made(file), ENDS)
    for name, file in PICTURE_FOLDERS.items():
        yield f"pictures: {name}", Case((*small, "-d", f"given/{file.name}", *ATTACK), made(file), ENDS)
    for kind, files in (("torch", TORCH_FILES), ("safetensors", SAFETENSORS_FILES)):
        for name, file in files.items():
            words = (*small, "-d", "digits.npz", "--weights", f"given/{file.name}", *ATTACK)
            yield f"weights {kind}: {name}", Case(words, made(file), ENDS)
    for name, file in DESCRIBED_MODELS.items():
        words = ("evaluate", "-q", "-m", f"given/{file.name}", "-d", "digits.npz", *ATTACK)
        yield f"model file: {name}", Case(words, made(file), ENDS)
    yield "model file: names code", Case(("evaluate", "-q", "-m", "m.safetensors", "-d", "digits.npz", *ATTACK),
                                         names_code, frozenset({2}))  # fmt: skip
    for name, text in CONFIGS.items():
        content = text.encode(errors="surrogateescape")
        words = (*small, "-d", "digits.npz", *ATTACK, "--config", "plan.toml")
        yield (
            f"configuration: {name}",
            Case(words, lambda folder, content=content: (folder / "plan.toml").write_bytes(content), ENDS),
        )
