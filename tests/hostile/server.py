"""Runs hostile cases, each in a process of its own that is forked from this one, which has everything imported.

One process that imports torch once and forks in 20 ms makes hundreds of cases affordable, and yet each has its own
memory, its own streams and its own end: a hang, a crash or an `exit` in a model is seen and harms no other case.
"""

import hashlib
import io
import json
import os
import resource
import shutil
import signal
import stat
import sys
import tempfile
import threading
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from tests.hostile.case import Case

SECONDS, BYTES = 60, 2 << 30
_LARGE = 1 << 26  # bytes
REPORTS = (".csv", ".html", ".json")


def main() -> None:
    """Answer one line of JSON, the verdict, for each line on standard input, the name of a case."""
    from tests.hostile.cases import CASES

    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        _import_everything()
        _common_files(root / "common")
        shutil.copytree(root / "common", root / "warm")
        os.environ["ROBUSTKIT_CACHE"] = str(root / "cache")
        _warm_up(root / "warm")
        for number, line in enumerate(sys.stdin):
            faults = _tried(CASES[json.loads(line)], root, root / str(number))
            print(json.dumps(faults), flush=True)  # noqa: T201
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _import_everything() -> None:
    import torch

    torch.set_num_threads(1)
    import matplotlib.figure  # noqa: F401
    import PIL.Image  # noqa: F401
    import sklearn.datasets  # noqa: F401

    from robustkit.host.torchvision_import import torchvision
    from robustkit.primitives import registry

    torchvision()
    registry.names()


def _warm_up(folder: Path) -> None:
    """Run what most cases run once here, so that fonts, templates and late imports are there for all of them."""
    from robustkit.cli import main as robustkit

    os.chdir(folder)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for command in ("evaluate", "diagnose", "trace"):
            words = [
                command,
                "-q",
                "-m",
                "net.py:factory",
                "-d",
                "digits.npz",
                "--eps",
                "0.1",
                "-n",
                "4",
                "-o",
                command,
            ]
            with suppress(SystemExit):
                robustkit(words + (["-a", "fgsm"] if command == "evaluate" else []))


def _common_files(folder: Path) -> None:
    import numpy as np

    from tests.cli.conftest import NET
    from tests.small import data, save

    folder.mkdir()
    (folder / "net.py").write_text(NET)
    x, y = data(40)
    save(folder / "digits.npz", x[:30], y[:30])
    np.savez(folder / "split.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])


def _tried(case: Case, root: Path, folder: Path) -> list[str]:
    """What is wrong with the way in which a case ended."""
    shutil.copytree(root / "common", folder / "work")
    child = os.fork()
    if child == 0:
        _child(case, folder)
    late = threading.Timer(SECONDS, os.kill, (child, signal.SIGKILL))
    late.start()
    _, end, usage = os.wait4(child, 0)
    late.cancel()
    faults = _faults(case, folder, os.waitstatus_to_exitcode(end))
    if usage.ru_maxrss * 1024 > BYTES:
        faults.append(f"took {usage.ru_maxrss >> 10} MB")
    if usage.ru_utime + usage.ru_stime > SECONDS:
        faults.append("took too long")
    shutil.rmtree(folder, ignore_errors=True)
    return faults


def _child(case: Case, folder: Path) -> None:
    """Prepare the folder, run the command in it, and end; never returns."""
    work, status = folder / "work", 99
    try:
        os.chdir(work)
        if case.prepare is not None:
            case.prepare(work)
        (folder / "before.json").write_text(json.dumps(_snapshot(work)))
        os.environ.update({"ROBUSTKIT_CACHE": str(work / "cache"), "COLUMNS": "100", **case.env})
        _redirect(case, folder)
        # Virtual memory: torch maps far more than it uses, so the limit is above what there is now.
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 2 * BYTES, now + 2 * BYTES))
        sys.argv = ["robustkit", *case.words]
        status = _ended()
    except BaseException:
        Path(folder / "broken.txt").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _ended() -> int:
    from robustkit.cli import main as robustkit

    try:
        robustkit(prog_name="robustkit")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # what Python reports at its end
            return 120
    return status


def _redirect(case: Case, folder: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if case.stdout == "full":
        out = os.open("/dev/full", os.O_WRONLY)
    elif case.stdout == "closed pipe":
        reader, out = os.pipe()
        os.close(reader)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    else:
        out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(os.open(folder / "err", os.O_WRONLY | os.O_CREAT), 2)
    encoding = case.env.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    if case.stdout == "none":
        sys.stdout = None  # type: ignore[assignment]


def _snapshot(folder: Path) -> dict[str, str]:
    """Kind and content of everything in a folder; links are not followed."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                content = os.readlink(path)
            elif stat.S_ISREG(mode):
                size = os.path.getsize(path)  # a few files claim hundreds of gigabytes
                content = hashlib.sha256(Path(path).read_bytes()).hexdigest() if size < _LARGE else str(size)
            else:
                content = ""
            found[os.fsencode(os.path.relpath(path, folder)).decode(errors="backslashreplace")] = (
                f"{stat.S_IFMT(mode):o} {content}"
            )
    return found


def _faults(case: Case, folder: Path, status: int) -> list[str]:
    if (folder / "broken.txt").exists():
        return [f"the case itself is broken: {(folder / 'broken.txt').read_text()}"]
    out, err = (_text(folder / name) for name in ("out", "err"))
    faults = _wrong_text(out, err, status)
    if status not in case.statuses:
        faults.append(f"ended with {status}, not {sorted(case.statuses)}: {err[-600:]}")
    faults += [f"does not say {word!r}: {err[-600:]}" for word in case.says if word not in out + err]
    before, after = json.loads((folder / "before.json").read_text()), _snapshot(folder / "work")
    return faults + _wrong_files(case, before, after, status)


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="backslashreplace") if file.exists() else ""


def _wrong_text(out: str, err: str, status: int) -> list[str]:
    lines = [line for line in err.split("\n") if line and not line.startswith("Warning: ")]
    faults = []
    if "Traceback" in err + out or "Exception ignored" in err:
        faults.append(f"shows a traceback: {err[-1500:]}")
    if status == 2 and (len(lines) != 1 or not lines[0].startswith("Error: ")):
        faults.append(f"has {len(lines)} lines of error: {err[-600:]}")
    if any(len(line) > 2000 for line in lines):
        faults.append("has a line of error of more than 2000 letters")
    if not all(letter.isprintable() or letter == "\n" for letter in out + err):
        faults.append(f"prints a control character: {out[-300:] + err[-300:]!a}")
    return faults


def _wrong_files(case: Case, before: dict[str, str], after: dict[str, str], status: int) -> list[str]:
    kept = {name: content for name, content in before.items() if name not in case.may_change}
    faults = [f"changed or deleted {name}" for name, content in kept.items() if after.get(name) != content]
    fresh = [name for name in after if name not in before and name not in case.may_change]
    faults += [f"left {name}" for name in fresh if name.endswith((".part", "-journal", ".writable"))]
    if status == 2:
        faults += [f"wrote {name} in spite of an error" for name in fresh if name.endswith(REPORTS)]
    return faults


if __name__ == "__main__":
    main()
