"""Outputs that cannot be written or must not be replaced, streams that end, and names that would steer a terminal."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.hostile.case import Case, accepted, refused
from tests.hostile.models import HEAD, model
from tests.hostile.word_cases import ABLATE, COMMANDS, DIAGNOSE, EVALUATE, FINETUNE, TRACE

OUT = "robustkit-runs/given"
REPORTS = {
    "evaluate": (EVALUATE, ("report.html", "results.csv", "samples.csv")),
    "diagnose": (DIAGNOSE, ("diagnosis.html", "diagnosis.json")),
    "trace": (TRACE, ("trace.html", "trace.csv", "trace.json")),
    "finetune": (tuple(word for word in FINETUNE if word != "--plan"),
                 ("report.html", "history.csv", "model.safetensors")),
    "ablate": (tuple(word for word in ABLATE if word != "--plan"), ("ablation.html", "ablation.csv")),
}  # fmt: skip
VERDICTS = frozenset({0, 3, 4})
BIDI = "\u202e\u2066\x1b]0;title\x07\x1b[31m"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    (path.parent / "target.txt").write_text("mine")
    path.symlink_to("target.txt")


def dangling(path: Path) -> None:
    path.symlink_to("/nosuch/target")


def to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def evidence(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(100))


def weights(path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, path)


def others_weights(path: Path) -> None:
    save_file({"w": torch.zeros(1)}, path)


THINGS: dict[str, Callable[[Path], object]] = {
    "a pipe": fifo, "a link": link, "a dangling link": dangling, "a link to a device": to_device,
    "a folder": Path.mkdir, "evidence": evidence, "weights": weights,
}  # fmt: skip


def lying(thing: Callable[[Path], object], path: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        thing(folder / path)

    return prepare


def finished(folder: Path) -> None:
    """A finished run in the folder `run`."""
    import contextlib
    import io

    from robustkit.cli import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main([*EVALUATE, "-o", "run"])


def with_run(then: Callable[[Path], object]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        finished(folder)
        then(folder)

    return prepare


def class_names(folder: Path) -> None:
    """A folder of pictures whose classes have hostile names, and a model for them."""
    model(factory="return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))")(folder)
    from PIL import Image

    for name in ("=1+1", "@SUM(A1)", BIDI, "a\nb", b"caf\xe9".decode(errors="surrogateescape"), "+1", "-2+3"):
        place = folder / "photos" / name
        place.mkdir(parents=True)
        for number in range(3):
            Image.new("L", (8, 8), 30 * number).save(os.fsencode(place) + b"/%d.png" % number)


def layers(folder: Path) -> None:
    """A model whose classes and layers have hostile names."""
    text = HEAD.replace("{expression}", "logits").replace("{backward}", "return grad").replace("{late}", "3")
    body = (
        "net = nn.Sequential(); net.add_module('=1+1', nn.Flatten()); "
        f"net.add_module({BIDI!r}, nn.Linear(64, 10)); "
        "type(net).__name__ = '@SUM'; return net"
    )
    (folder / "hostile.py").write_text(text.replace("{factory}", body))


def cases() -> Iterator[tuple[str, Case]]:
    for command, (words, names) in REPORTS.items():
        for kind, thing in THINGS.items():
            name = names[len(kind) % len(names)]
            yield (
                f"output: {kind} named {name} before {command}",
                refused(*words, "-o", OUT, prepare=lying(thing, f"{OUT}/{name}"), says=(name,)),
            )
        yield f"output: a file as the folder of {command}", refused(*words, "-o", "net.py")
        yield f"output: a pipe as the folder of {command}", refused(*words, "-o", "p", prepare=lying(fifo, "p"))
        yield f"output: /dev/null as the folder of {command}", refused(*words, "-o", "/dev/null")
        yield (
            f"output: a user's .writable before {command}",
            Case((*words, "-o", OUT), lying(lambda path: path.write_text("mine"), f"{OUT}/.writable"), VERDICTS),
        )
    yield (
        "output: another's model.safetensors before finetune",
        refused(*REPORTS["finetune"][0], "-o", OUT, prepare=lying(others_weights, f"{OUT}/model.safetensors")),
    )
    for kind, thing in THINGS.items():
        yield (
            f"output: report -o {kind}",
            refused("report", "run", "-o", "x.html", prepare=with_run(lying(thing, "x.html"))),
        )
    for target in ("run/run.sqlite", "net.py", "digits.npz", "run", "", "a" * 300):
        yield f"output: report -o {target[:20]!r}", refused("report", "run", "-o", target, prepare=finished)
    yield from _streams()
    yield from _names()
    yield from _cache()


def _streams() -> Iterator[tuple[str, Case]]:
    plain = {**COMMANDS, "list": ("list", "attacks"), "help": ("evaluate", "--help"), "version": ("--version",)}
    for name, words in plain.items():
        ends = VERDICTS if name == "diagnose" else frozenset({0})
        yield f"stream: {name} into a closed pipe", Case(words, None, ends, stdout="closed pipe")
        yield f"stream: {name} without standard output", Case(words, None, ends, stdout="none")
        if name not in ("evaluate", "diagnose", "trace"):
            yield f"stream: {name} on a full disk", refused(*words, stdout="full", says=("space",))
        yield f"stream: {name} in ASCII", Case(words, None, ends, env={"PYTHONIOENCODING": "ascii"})
        yield f"stream: {name} in Latin-1", Case(words, None, ends, env={"PYTHONIOENCODING": "latin-1"})
    yield "stream: report into a closed pipe", accepted("report", "run", prepare=finished, stdout="closed pipe",
                                                        may_change=("run/report.html",))  # fmt: skip


def _names() -> Iterator[tuple[str, Case]]:
    photos = ("-m", "hostile.py:factory", "-d", "photos", "--image-size", "8", "--eps", "0.1")
    yield "names: classes, in evaluate", accepted("evaluate", *photos, "-a", "fgsm", prepare=class_names)
    yield "names: classes, in trace", accepted("trace", *photos, "-a", "fgsm", prepare=class_names)
    layered = ("-m", "hostile.py:factory", "-d", "digits.npz", "--eps", "0.1")
    yield "names: layers, in trace", accepted("trace", *layered, "-a", "fgsm", prepare=layers)
    yield "names: layers, in diagnose", Case(("diagnose", *layered), layers, VERDICTS)
    yield "names: layers, in evaluate", accepted("evaluate", *layered, "-a", "fgsm", prepare=layers)
    for title, name in (("escape codes", "\x1b[31mnet.py"), ("bytes", "caf\udce9.py"), ("a formula", "=1+1.py"),
                        ("two lines", "a\nb.py"), ("a bidi mark", "\u202e.py"), ("markup", "[red]<b>.py")):  # fmt: skip
        words = ("evaluate", "-m", f"{name}:factory", "-d", "digits.npz", "-a", "fgsm", "--eps", "0.1")

        def copied(folder: Path, name: str = name) -> None:
            (folder / name).write_text((folder / "net.py").read_text())

        yield f"names: a model file with {title}", accepted(*words, prepare=copied)
        yield f"names: an output folder with {title}", accepted(*EVALUATE, "-o", name)
        yield f"names: a missing file with {title}", refused(*words)
    yield (
        "names: an error with escape codes",
        refused(*EVALUATE, "-m", "hostile.py:factory", prepare=model(f"raising(ValueError({BIDI!r}))")),
    )


def _cache() -> Iterator[tuple[str, Case]]:
    mine = ("cache/models/mine.safetensors", "cache/models/resnet18-digits.safetensors", "cache/models/notes.txt",
            "cache/models/.mine.part")  # fmt: skip

    def filled(folder: Path) -> None:
        for name in mine:
            lying(others_weights, name)(folder)
        others_weights(folder / "cache/models/resnet18-digits-0123456789ab.safetensors")
        (folder / "cache/models/link-digits-0123456789ab.safetensors").symlink_to("mine.safetensors")
        (folder / "cache/models/folder-digits-0123456789ab.safetensors").mkdir()
        os.mkfifo(folder / "cache/models/pipe-digits-0123456789ab.safetensors")

    def hostile(folder: Path) -> None:
        (folder / "cache/models").mkdir(parents=True)
        metadata = {"model": BIDI, "dataset": "a\nb", "val_accuracy": "x", "recipe": "{", "robustkit": "9" * 5000}
        save_file({"w": torch.zeros(1)}, folder / "cache/models/a-b-0123456789ab.safetensors", metadata)

    yield "cache: list with other files", accepted("cache", "list", prepare=filled)
    yield "cache: clear with other files", accepted("cache", "clear", prepare=filled)
    yield "cache: list of hostile headers", accepted("cache", "list", prepare=hostile)
    yield (
        "cache: clear a hostile header",
        accepted("cache", "clear", BIDI, prepare=hostile, may_change=("cache/models/a-b-0123456789ab.safetensors",)),
    )
    for title, place in (("a file", "net.py"), ("nobody's home", "~nobody"), ("a device", "/dev/null"),
                         ("too long", "a" * 300), ("bytes", "caf\udce9")):  # fmt: skip
        yield f"cache: list, the cache is {title}", Case(("cache", "list"), env={"ROBUSTKIT_CACHE": place})
        yield f"cache: clear, the cache is {title}", Case(("cache", "clear"), env={"ROBUSTKIT_CACHE": place})
