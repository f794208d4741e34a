"""Every option of every command with hostile values."""

from collections.abc import Iterator

from tests.hostile.case import Case, refused
from tests.hostile.files import NUMBERS, PATHS

MODEL = ("-m", "net.py:factory")
DATA = ("-d", "digits.npz")
EVALUATE = ("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1", "-n", "8")
DIAGNOSE = ("diagnose", "-q", *MODEL, *DATA, "--eps", "0.1", "-n", "4", "--no-proof")
TRACE = ("trace", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1", "-n", "8")
SPLIT = ("-d", "split.npz")
FINETUNE = (
    "finetune",
    "-q",
    "--plan",
    *MODEL,
    *SPLIT,
    "--val-share",
    "0.2",
    "--preset",
    "fast",
    "--eps",
    "0.1",
    "--set",
    "epochs=1",
)
ABLATE = ("ablate", "-q", "--plan", *MODEL, *SPLIT, "--val-share", "0.2", "--preset", "fast", "--eps", "0.1",
          "-g", "lr=0.1,0.2", "--set", "epochs=1")  # fmt: skip
ATTACK = ("attack", "-q", *MODEL, "digits.npz", "-a", "fgsm", "--eps", "0.1", "-o", "made.safetensors")
COMMANDS = {"evaluate": EVALUATE, "diagnose": DIAGNOSE, "trace": TRACE, "finetune": FINETUNE, "ablate": ABLATE,
            "attack": ATTACK}  # fmt: skip
# Options and the kind of words that they take; what no list covers gets names.
NUMERIC = {
    "evaluate": ("--eps", "-n", "-b", "--seed", "--num-classes", "--mean", "--eot", "--smooth", "--smooth-draws",
                 "--smooth-alpha", "--image-size"),
    "diagnose": ("--eps", "-n", "-b"),
    "trace": ("--eps", "-b"),
    "finetune": ("--val-share", "--eps"),
    "ablate": ("--seeds", "--max-time"),
    "attack": ("--eps", "-b", "--image-size", "--comparisons"),
}  # fmt: skip
FEW_NUMBERS = ("9" * 5000, "1e99999999999", "nan", "inf", "-1", "²", "", "0/0", "2147483648", "1e18")
NAMED = {
    "evaluate": ("-m", "-d", "-a", "--norm", "--device", "--split", "--surrogate", "--bpda", "--weights"),
    "diagnose": ("--loss", "--layer", "--device"),
    "trace": ("-a", "--layer"),
    "finetune": ("--preset", "--set", "--device"),
    "ablate": ("-g", "--design", "--judge", "--set"),
    "attack": ("-a", "--label", "--target", "--device", "--format"),
}  # fmt: skip
FEW_NAMES = ("", "\x1b[31mred\x1b[0m", "a" * 5000, "\udcff", ":", "=1+1")
PATH_OPTIONS = ("-d", "-m", "--weights", "--config", "--data-dir", "-o")
OUTSIDE = ("/", "/dev", "/proc/self", "/proc/self/fd", "..", "~")
VALUES_OF_ATTACKS = ("steps=", "steps=1e9", "steps=-1", "steps=nan", "steps=" + "9" * 5000, "restarts=2147483647",
                     "restarts=0", "loss=\x1b[2J", "step_size=nan", "step_size=inf", "targets=99", "targets=-1",
                     "steps=1,steps=2", "=", ",", "steps=[1]", "step_size=-1", "eps=3", "norm=L2",
                     "restarts=1e308")  # fmt: skip
STATUSES = {"diagnose": frozenset({0, 2, 3, 4})}


DEVICES = ("hpu", "cuda", "cuda:99", "mps", "xla", "meta", "vulkan", "privateuseone", "cpu:1", "cpu:-1", "fpga")
WORDS = {
    "an empty command": ("",),
    "a command with escape codes": ("\x1b[31m",),
    "a long command": ("a" * 100_000,),
    "a surrogate": ("\udcff",),
    "list of nothing": ("list", ""),
    "report of nothing": ("report", ""),
    "report of /": ("report", "/"),
    "report of a device": ("report", "/dev/null"),
    "report of proc": ("report", "/proc/self"),
    "report of a long path": ("report", "a" * 300),
    "report of nobody": ("report", "~nobody"),
    "clear of escape codes": ("cache", "clear", "\x1b[2J"),
}


def short(word: str) -> str:
    """A word as the name of a case."""
    return ascii(word if len(word) < 30 else f"{word[:12]}... {len(word)} letters")


def cases() -> Iterator[tuple[str, Case]]:
    for command in COMMANDS:
        yield from _options(command)
    yield from _paths()
    for values in VALUES_OF_ATTACKS:
        yield f"attack pgd:{short(values)}", Case((*EVALUATE, "-a", f"pgd:{values}"))
    for number in NUMBERS:
        if number not in FEW_NUMBERS:
            yield f"evaluate --eps {short(number)} too", Case((*EVALUATE[:-4], "--eps", number, "-n", "8"))
    for device in DEVICES:
        yield f"device {device}", Case((*EVALUATE, "--device", device))
    for name, words in WORDS.items():
        yield f"words: {name}", refused(*words)


def _options(command: str) -> Iterator[tuple[str, Case]]:
    for options, values in ((NUMERIC, FEW_NUMBERS), (NAMED, FEW_NAMES)):
        for option in options[command]:
            for value in values:
                ends = STATUSES.get(command, frozenset({0, 2}))
                yield f"{command} {option} {short(value)}", Case((*COMMANDS[command], option, value), None, ends)


def _paths() -> Iterator[tuple[str, Case]]:
    for option in PATH_OPTIONS:
        for path in PATHS:
            # A command line holds no zero byte, and no case may write outside its folder.
            if "\0" not in path and not (option == "-o" and path in OUTSIDE):
                yield f"path {option} {short(path)}", Case((*EVALUATE, option, path))
