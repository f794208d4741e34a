"""Commands about models that raise at any time or answer anything."""

from collections.abc import Iterator

from tests.hostile.case import Case, refused
from tests.hostile.models import ERRORS, FACTORIES, FILES, OUTPUTS, file, model

HOSTILE = ("-m", "hostile.py:factory", "-d", "digits.npz")
EVALUATE = ("evaluate", "-q", *HOSTILE, "-a", "fgsm", "--eps", "0.1")
DIAGNOSE = ("diagnose", "-q", *HOSTILE, "--eps", "0.1", "-n", "4", "--no-proof")
TRACE = ("trace", "-q", *HOSTILE, "-a", "fgsm", "--eps", "0.1", "-n", "8")
FINETUNE = (
    "finetune",
    "-q",
    *HOSTILE[:2],
    "-d",
    "split.npz",
    "--val-share",
    "0.2",
    "--set",
    "epochs=1",
    "--preset",
    "fast",
    "--eps",
    "0.1",
)
ENDS = frozenset({0, 2})
VERDICTS = frozenset({0, 2, 3, 4})


def cases() -> Iterator[tuple[str, Case]]:
    for name, error in ERRORS.items():
        yield f"forward raises {name}", refused(*EVALUATE, prepare=model(f"raising({error})"))
        yield (
            f"forward raises {name}, late",
            refused(*EVALUATE, prepare=model(f"logits + late({error})"), says=("hostile.py",)),
        )
    for name in ("SystemExit 0", "StopIteration", "MemoryError", "an error without text"):
        raising = f"raise {ERRORS[name]}"
        through = model("self.inner(Backward.apply(x))", backward=raising)
        yield f"backward raises {name}", refused(*EVALUATE, prepare=through, says=("hostile.py",))
        yield f"backward raises {name}, in diagnose", refused(*DIAGNOSE, prepare=through, says=("hostile.py",))
        yield f"backward raises {name}, in trace", refused(*TRACE, prepare=through, says=("hostile.py",))
        late = model(f"logits + late({ERRORS[name]}, 1)")
        yield f"forward raises {name} late, in finetune", refused(*FINETUNE, prepare=late)
        yield f"forward raises {name} late, in diagnose", refused(*DIAGNOSE, prepare=late, says=("hostile.py",))
        yield f"forward raises {name} late, in trace", refused(*TRACE, prepare=late, says=("hostile.py",))
    for name, output in OUTPUTS.items():
        yield f"forward returns {name}", Case(EVALUATE, model(output), ENDS)
        yield f"forward returns {name}, in diagnose", Case(DIAGNOSE, model(output), VERDICTS)
    for name in ("nothing", "one row fewer", "meta", "sparse", "twenty thousand classes", "other rows at each call"):
        yield f"forward returns {name}, in trace", Case(TRACE, model(OUTPUTS[name]), ENDS)
    for name, body in FACTORIES.items():
        yield f"the factory: {name}", Case(EVALUATE, model(factory=body), ENDS, may_change=("sub",))
    for name, text in FILES.items():
        yield f"the model file: {name}", Case(EVALUATE, file(text), ENDS)
        yield f"the attack file: {name}", refused("evaluate", "-q", "-m", "net.py:factory", "-d", "digits.npz", "-a",
                                                  "hostile.py:factory", "--eps", "0.1", prepare=file(text))  # fmt: skip
        yield (
            f"the surrogate gradient's file: {name}",
            Case((*EVALUATE[:3], "net.py:factory", *EVALUATE[4:], "--bpda", "1=hostile.py:factory"), file(text), ENDS),
        )
    for name in ("exits", "a builtin", "raises on attribute"):
        yield f"the model file in diagnose: {name}", refused(*DIAGNOSE, prepare=file(FILES[name]))
