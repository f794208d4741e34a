"""Evidence of a network that has changed where no weight and no source shows it is neither shown nor continued."""

import copy
import functools
import io
import linecache
import sqlite3
import sys
import types
from contextlib import closing

import pytest
import torch
from torch import Tensor, nn

from robustkit import UserError
from robustkit.classifier.classifier import Classifier
from robustkit.evaluation.answers import Probes
from robustkit.evidence.store import Store
from robustkit.models.fingerprint import fingerprint
from robustkit.nethook import Trace, bpda, edit_grad, scale_grad, soft_kinks
from robustkit.primitives.user_code import instructions
from tests.networks import Noisy, Rounding
from tests.small import cnn, data, evaluated, evidence, linear

COUNT = 8


def run_of(model, folder, attacks="fgsm", **more):
    return evaluated(model, folder, dataset=data(COUNT), attacks=attacks, eps="0.1", checks="none", **more)


def scaled(x: Tensor, by: float) -> Tensor:
    return x * by


def forward_by(self, x):
    return self.model(self.change(x))


class ByList(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.model, self.gains = linear(), [gain]

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self.gains[0])


class ByDict(ByList):
    def __init__(self, gain: float) -> None:
        super().__init__(1)
        self.gains = {0: gain}


class ByTensor(ByList):
    def __init__(self, gain: float) -> None:
        super().__init__(1)
        self.gains = torch.tensor([gain])


class ByPrivateName(ByList):
    def __init__(self, gain: float) -> None:
        super().__init__(1)
        self._gain = gain

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self._gain)


class ByPartial(ByList):
    def __init__(self, gain: float) -> None:
        super().__init__(1)
        self.change = functools.partial(scaled, by=gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.change(x))


class ByConstant(ByList):
    """Reads a number of another module."""

    def __init__(self, gain: float) -> None:
        super().__init__(1)
        sys.modules[__name__].GAIN = gain

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * GAIN)


class Attending(nn.Module):
    """A library's module one of whose settings is not in its repr."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 4 if gain == 1 else 1, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x[:, 0], x[:, 0], x[:, 0])[0].flatten(1))


GAIN = 1.0
KINDS = [ByList, ByDict, ByTensor, ByPrivateName, ByConstant, Attending]


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_answers_otherwise_is_another_network(kind, tmp_path):
    run_of(kind(1.0), tmp_path)
    before = evidence(tmp_path)
    assert fingerprint(kind(1.0)) == fingerprint(kind(0.5))
    for attacks in ("fgsm", ["fgsm", "noise"]):
        changed = kind(0.5)
        with pytest.raises(UserError, match="answers") as error:
            run_of(changed, tmp_path, attacks)

        assert "--out" in str(error.value)
        assert evidence(tmp_path) == before
    assert run_of(kind(1.0), tmp_path).manifest["finished"]


def test_values_of_a_partial_are_part_of_a_network():
    one, other = fingerprint(ByPartial(1.0)), fingerprint(ByPartial(0.5))

    assert one != other
    assert fingerprint(ByPartial(1.0)) == one


SOURCE = """
import torch
from torch import nn
import {module} as own

LEVELS = {levels}

class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, grad): return {slope} * grad

def passed(x): return {passed}

class Base(nn.Module):
    def forward(self, x): return {base}

class Net(Base):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(64, 10)
        nn.init.constant_(self.model.weight, 0.1), nn.init.zeros_(self.model.bias)
"""
PLAIN = {"module": "math", "levels": "4", "slope": "1", "passed": "Step.apply(x) * LEVELS / LEVELS",
         "base": "self.model(passed(x.flatten(1)))"}  # fmt: skip


def in_a_notebook(name: str = "__main__", **change: str) -> nn.Module:
    """A network of a class whose source nothing keeps."""
    names: dict[str, object] = {"__name__": name}
    exec(SOURCE.format(**{**PLAIN, **change}), names)
    return names["Net"]()


@pytest.mark.parametrize("name", ["__main__", "builtins", "no.such.file"])
def test_an_edited_class_of_exec_is_another_network(name):
    one, other = (in_a_notebook(name, passed=passed) for passed in ("x", "x.detach() + 0 * x"))

    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(in_a_notebook(name, passed="x")) == fingerprint(one)


@pytest.mark.parametrize("change", [
    {"slope": "0"}, {"passed": "x.detach() + 0 * x"}, {"base": "self.model(x.flatten(1).detach())"},
])  # fmt: skip
def test_an_edited_cell_of_a_notebook_is_another_network(change, tmp_path):
    # Its answers are the same: a defense that only hides its gradients was shown with the results of before the edit.
    run_of(in_a_notebook(), tmp_path)

    assert run_of(in_a_notebook(), tmp_path).manifest["finished"]
    assert torch.equal(in_a_notebook(**change)(data(2)[0]), in_a_notebook()(data(2)[0]))
    with pytest.raises(UserError, match="another evaluation"):
        run_of(in_a_notebook(**change), tmp_path)


GRADIENTS = """
import functools, types
import torch
from torch import nn

class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.round()
    @staticmethod
    def backward(ctx, grad): return {slope} * grad

def decorated(function):
    @functools.wraps(function)
    def inner(x): return function({inner})
    return inner

@decorated
def same(x): return x

@functools.lru_cache
def cached(): return {slope}

apply, nested = Step.apply, types.ModuleType("nested")
table = {{"a": [Step.apply], "b": lambda x: x, "c": lambda x: {table}}}
nested.inner = types.ModuleType("inner")
nested.inner.apply = Step.apply

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Step.apply
    def forward(self, x): return {call}
"""


@pytest.mark.parametrize(
    ("call", "change"),
    [
        ("apply(x)", {"slope": "0"}), ('table["a"][0](x)', {"slope": "0"}), ("nested.inner.apply(x)", {"slope": "0"}),
        ("self.own(x)", {"slope": "0"}), ("same(x)", {"inner": "x.detach() + 0 * x"}),
        ('table["c"](x)', {"table": "x.detach()"}), ("x * cached()", {"slope": "0"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_changed_gradient_is_found_wherever_its_function_is(call, change):
    def made(**changed: str) -> nn.Module:
        names: dict[str, object] = {"__name__": "__main__"}
        exec(GRADIENTS.format(**{"slope": "1", "inner": "x", "table": "x", "call": call, **changed}), names)
        return names["Net"]()

    assert fingerprint(made()) == fingerprint(made())
    assert fingerprint(made(**change)) != fingerprint(made())


def test_a_global_name_that_only_an_attribute_has_is_no_part_of_a_network():
    # A script's own `eps` was taken for the `self.eps` of a network: a worker, which has none, was refused.
    names: dict[str, object] = {"__name__": "__main__", "nn": nn}
    exec("class Net(nn.Module):\n    eps = 0.1\n    def forward(self, x): return x * self.eps", names)
    before = fingerprint(names["Net"]())
    names["eps"] = lambda: 3

    assert fingerprint(names["Net"]()) == before


def test_streams_that_a_forward_reads_are_no_part_of_a_network(monkeypatch):
    # Under pytest they are objects of other classes.
    names: dict[str, object] = {"__name__": "__main__", "nn": nn, "sys": sys}
    exec("class Net(nn.Module):\n    def forward(self, x): return sys.stdin.readline() and x", names)
    before = fingerprint(names["Net"]())
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert fingerprint(names["Net"]()) == before


def test_a_class_of_an_installed_package_counts_by_its_source(monkeypatch):
    package = types.ModuleType("package")
    package.__file__ = "/lib/site-packages/package.py"
    monkeypatch.setitem(sys.modules, "package", package)
    prints = []
    for text in ("return x", "return 2 * x"):
        source = f"class Net(nn.Module):\n    def forward(self, x):\n        {text}\n"
        monkeypatch.setitem(
            linecache.cache, package.__file__, (len(source), None, source.splitlines(True), package.__file__)
        )
        exec(compile(source, package.__file__, "exec"), names := {"__name__": "package", "nn": nn})
        prints.append(fingerprint(names["Net"]()))

    assert prints[0] != prints[1]


def test_classes_of_one_name_have_one_order():
    # Sorted by name alone, two classes called Block came in the order of their addresses.
    kinds = [type("Block", (nn.Module,), {"size": size, "__module__": "__main__"}) for size in range(20)]
    kinds = sorted(kinds, key=id)

    assert fingerprint(nn.Sequential(*(kind() for kind in kinds))) != fingerprint(
        nn.Sequential(*(kind() for kind in kinds[::-1]))
    )


def test_hooks_and_replaced_forwards_are_part_of_a_network():
    plain, hooked, patched = linear(), linear(), linear()
    handle = hooked.register_forward_hook(lambda module, inputs, output: output.detach() + 0 * output)
    patched.forward = types.MethodType(lambda self, x: type(self).forward(self, x.detach()), patched)

    assert len({fingerprint(each) for each in (plain, hooked, patched)}) == 3
    handle.remove()
    assert fingerprint(hooked) == fingerprint(plain)


class Slope:
    """A replacement for a layer under BPDA."""

    def __init__(self, value) -> None:
        self.value = value

    def __call__(self, x: Tensor) -> Tensor:
        return self.value * x

    def method(self, x: Tensor) -> Tensor:
        return self.value * x


class SlopeModule(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def forward(self, x: Tensor) -> Tensor:
        return self._value * x


@pytest.mark.parametrize(
    "replacement",
    [Slope, SlopeModule, lambda value: Slope(value).method, lambda value: lambda x: torch.tensor(value) * x,
     lambda value: functools.partial(torch.mul, torch.tensor(value)), lambda value: Slope(torch.tensor(value))],
    ids=["object", "module", "method", "closure", "partial", "tensor"],
)  # fmt: skip
def test_results_with_another_replacement_of_a_layer_were_continued(replacement, tmp_path):
    model = nn.Sequential(nn.Identity(), cnn())
    run_of(model, tmp_path, bpda={"0": replacement(1.0)})
    run_of(model, tmp_path, bpda={"0": replacement(1.0)})

    with pytest.raises(UserError, match=r"bpda\.0 was"):
        run_of(model, tmp_path, bpda={"0": replacement(-1.0)})


@pytest.mark.parametrize(
    "edit",
    [lambda model: scale_grad(model, "0", -1.0), lambda model: scale_grad(model, "1", 0.5),
     lambda model: edit_grad(model, "1", lambda grad, **_: -grad), lambda model: bpda(model, "1", lambda x: x[:, :10]),
     lambda model: soft_kinks(0.5)],
    ids=["scale", "other scale", "edit", "bpda", "soft_kinks"],
)  # fmt: skip
def test_results_without_an_active_edit_of_gradients_were_continued(edit, tmp_path):
    model = cnn()
    run_of(model, tmp_path / "plain")
    with edit(model):
        run_of(model, tmp_path / "edited")
        run_of(model, tmp_path / "edited")
        with pytest.raises(UserError, match="another evaluation"):
            run_of(model, tmp_path / "plain")

    with pytest.raises(UserError, match="another evaluation"):
        run_of(model, tmp_path / "edited")


def test_edits_of_gradients_differ_by_layer_place_and_number():
    def edited(layer: str, gamma: float, **at: str) -> str:
        model = linear()
        with scale_grad(model, layer, gamma, every=False, **at):
            found = fingerprint(model)
            model(torch.rand(1, 1, 8, 8, requires_grad=True))
        return found

    found = [fingerprint(linear()), edited("0", 2.0), edited("1", 2.0), edited("1", 3.0), edited("1", 3.0, at="input")]
    assert len(set(found)) == len(found)


def test_a_trace_is_no_part_of_a_network():
    model = cnn()
    with Trace(model, "*", strict=False):
        assert fingerprint(model) == fingerprint(cnn())


def test_a_counter_in_a_hook_is_no_part_of_a_network():
    model, calls = linear(), 0

    def count(module, inputs, output):
        nonlocal calls
        calls += 1

    model.register_forward_hook(count)
    before = fingerprint(model)
    model(data(2)[0])

    assert calls == 1
    assert fingerprint(model) == before


def test_sets_in_compiled_code_are_written_in_one_order():
    # Their own order differs from process to process.
    code = (lambda x: x in {"a", "b", "c", "d", "e", "f", "g", "h"}).__code__

    assert [each for each in instructions(code).partition("frozenset")[2] if each.isalpha()] == list("abcdefgh")


def test_a_surrogate_that_answers_otherwise_is_another_one(tmp_path):
    run_of(linear(), tmp_path, surrogates=ByList(1.0))

    with pytest.raises(UserError, match="surrogate bylist"):
        run_of(linear(), tmp_path, surrogates=ByList(0.5))


def test_a_randomized_network_is_recognised_by_its_seeded_answers(tmp_path):
    def noisy(gain: float) -> nn.Module:
        return Noisy(ByList(gain), spread=0.05)

    first = run_of(noisy(1.0), tmp_path)

    assert run_of(noisy(1.0), tmp_path).results.equals(first.results)
    with pytest.raises(UserError, match="answers"):
        run_of(noisy(0.5), tmp_path)


class Quantised(nn.Module):
    """Rounds its own values, so that one last bit may move an answer far."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), Rounding(2), nn.Conv2d(16, 16, 3), Rounding(2))
        self.head = nn.Linear(16 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


class OnAnotherMachine(nn.Module):
    """The same network with other last bits: what follows a convolution is computed in another precision."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.double()).float()


@pytest.mark.parametrize("network", [linear, cnn, Quantised])
def test_other_last_bits_are_not_another_network(network):
    probes, here = Probes(from_data(), range(COUNT)), network().eval()
    with closing(Store(None)) as store:
        store.set_answers([probes.record("model", Classifier(here, name="m"))])

        probes.check(store, "model", Classifier(OnAnotherMachine(here), name="m"))


def from_data():
    from robustkit.data import from_tensors

    return from_tensors(*data(COUNT))


def test_a_run_without_answers_is_continued_and_gets_them(tmp_path):
    run_of(linear(), tmp_path)
    opened = sqlite3.connect(tmp_path / "run.sqlite")
    opened.execute("DROP TABLE answers")
    opened.close()
    run_of(linear(), tmp_path, ["fgsm", "noise"])

    assert len(evidence(tmp_path)["answers"]) == 1


def test_a_grown_run_compares_the_images_that_it_began_with(tmp_path):
    for samples in (2, 8):
        run_of(ByList(1.0), tmp_path, samples=samples)

    with pytest.raises(UserError, match="answers"):
        run_of(ByList(0.5), tmp_path)


def test_answers_of_a_model_that_failed_are_forgotten(tmp_path):
    with pytest.raises(UserError, match="NaN"):
        run_of(ByList(float("nan")), tmp_path)

    run_of(ByList(1.0), tmp_path)
    assert run_of(ByList(1.0), tmp_path).manifest["finished"]


@pytest.mark.parametrize("change", ["images = -1", "logits = x''", "logits = x'0011'", "images = 'x'"])
def test_tampered_answers_are_refused(change, tmp_path):
    run_of(linear(), tmp_path)
    opened = sqlite3.connect(tmp_path / "run.sqlite")
    opened.execute(f"UPDATE answers SET {change}")
    opened.commit()
    opened.close()
    with pytest.raises(UserError) as error:
        run_of(linear(), tmp_path)

    assert "\n" not in str(error.value)
