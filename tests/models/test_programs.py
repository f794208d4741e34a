"""Networks saved by `torch.jit.save` and `torch.export.save`."""

import json
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from robustkit import Classifier, attack, diagnose, fit_universal
from robustkit.data import load_dataset
from robustkit.errors import UserError
from robustkit.models import load_model
from robustkit.tracing import trace
from tests.small import cnn, data, evaluated

_exports = pytest.mark.skipif(torch.__version__ < (2, 9), reason="older versions of torch write another format")
FIXED, FREE, FEW = (pytest.param(f"{name}.pt2", marks=_exports) for name in ("fixed", "free", "few"))
RANGE = {"fixed": None, "free": {0: torch.export.Dim("batch")}, "few": {0: torch.export.Dim("batch", min=3, max=5)}}


class Written(nn.Module):
    """Writes a file where it is run."""

    def forward(self, x):
        torch.save(x, "CODE_RAN")
        return x.flatten(1)


class Mapped(nn.Module):
    def forward(self, x):
        return x.flatten(1) + torch.from_file("CODE_RAN", True, 64)


class OneByOne(nn.Module):
    """As a trace is that has the size of its batch in it."""

    def forward(self, x):
        return x.reshape(1, 64)[:, :10]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    network, x = cnn().eval(), torch.zeros(4, 1, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that TorchScript will go
        torch.jit.save(torch.jit.script(network), folder / "script.pt")
        torch.jit.save(torch.jit.trace(network, x), folder / "trace.pt")
        torch.jit.save(torch.jit.trace(OneByOne(), x[:1]), folder / "one.pt")
        torch.jit.save(torch.jit.script(Written()), folder / "save.pt")
        torch.jit.save(torch.jit.script(Mapped()), folder / "map.pt")
        for name, sizes in RANGE.items():
            torch.export.save(torch.export.export(network, (x,), dynamic_shapes=(sizes,)), folder / f"{name}.pt2")
    return folder


@pytest.mark.parametrize("name", ["script.pt", "trace.pt", FIXED, FREE, FEW])
def test_a_saved_network_has_the_logits_gradients_and_verdicts_of_the_module(files, name):
    model, network = load_model(str(files / name), dataset="digits"), cnn().eval()
    x, y = data(7)
    x.requires_grad_()
    logits, expected = model(x), network(x)

    assert torch.equal(logits, expected)
    assert torch.equal(*(torch.autograd.grad(each.sum(), x)[0] for each in (logits, expected)))
    assert [model.num_classes, model.name, model.training] == [10, Path(name).stem, False]
    one, other = (attack(Classifier(each), x.detach(), y, "pgd:steps=3", eps="0.1") for each in (model, network))
    assert torch.equal(one.x_adv, other.x_adv)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        pytest.param("fixed.pt2", "4", marks=_exports),
        pytest.param("few.pt2", "3 to 5", marks=_exports),
        ("one.pt", "1"),
    ],
)
def test_batches_that_a_network_does_not_take_are_cut_and_filled_up(files, name, sizes):
    said = []
    model = load_model(str(files / name), dataset="digits", report=lambda text, _: said.append(text))
    x, _ = data(7)
    whole = model(x)

    assert f"{name} takes batches of {sizes} images" in said[0]
    assert all(torch.equal(model(x[:count]), whole[:count]) for count in (1, 2, 4, 7))


@_exports
def test_the_file_is_part_of_what_a_run_is_about(files):
    first, second = (load_model(str(files / name)) for name in ("fixed.pt2", "free.pt2"))

    assert len(first.code) == 64
    assert first.code != second.code


@pytest.mark.parametrize("name", ["script.pt", FIXED])
def test_a_saved_network_is_diagnosed_as_a_whole(files, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about TorchScript
        diagnosis = diagnose(load_model(str(files / name), dataset="digits"), *data(8), eps="0.1", prove=False)

    assert not diagnosis.masked


@pytest.mark.parametrize("name", ["script.pt", FREE, FIXED, "one.pt"])
def test_a_trace_of_a_saved_network_says_that_it_needs_the_module(files, name):
    """One layer, or a word about hooks of Python, was no answer."""
    with pytest.raises(UserError, match=r"the module .*--model FILE\.py:NAME"):
        trace(load_model(str(files / name), dataset="digits"), *data(4), eps="0.1")


@pytest.mark.parametrize("name", ["script.pt", FREE, FIXED])
@pytest.mark.parametrize(
    "use",
    [
        lambda model: evaluated([model], None, dataset=data(4), attacks="pgd:steps=1", eps="0.1"),
        lambda model: attack(model, *data(4), "pgd:steps=1", eps="0.1"),
        lambda model: fit_universal(model, *data(4), "universal:steps=1", eps="0.1"),
    ],
    ids=["evaluate", "attack", "universal"],
)
def test_bpda_on_a_saved_network_says_that_it_needs_the_module(files, name, use):
    """That the model has no layers, or the names of layers that cannot be replaced either, was no answer."""
    model = Classifier(load_model(str(files / name), dataset="digits"), bpda={"0": None})
    with pytest.raises(UserError, match=r"the module .*--model FILE\.py:NAME"):
        use(model)


def changed(source: Path, path: Path, edit) -> str:
    """A copy of an archive whose JSON and code were edited."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            content = edit(info.filename, old.read(info))
            if content is not None:
                new.writestr(info.filename, content)
    return str(path)


def program(edit):
    """Change the program in an archive."""

    def on_json(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        entries = json.loads(content)
        edit(entries)
        return json.dumps(entries).encode()

    return on_json


def target(name: str):
    return program(lambda entries: entries["graph_module"]["graph"]["nodes"][0].update(target=name))


def weights(**entry: object):
    def on_json(name: str, content: bytes) -> bytes:
        if not name.endswith("model_weights_config.json"):
            return content
        config = json.loads(content)
        first = next(iter(config["config"].values()))
        first.update({key: value for key, value in entry.items() if key in first})
        first["tensor_meta"].update({key: value for key, value in entry.items() if key not in first})
        return json.dumps(config).encode()

    return on_json


def guarded(entries: dict) -> None:
    """Texts that torch's own loader evaluates."""
    entries["guards_code"] = ["open('CODE_RAN', 'w')"]
    entries["graph_module"]["graph"]["sym_int_values"] = {
        "s0": {"as_expr": {"expr_str": "open('CODE_RAN', 'w')", "hint": None}}
    }


EDITS = {
    "a pickled weight": (weights(use_pickle=True), "contains Python objects"),
    "a weight outside of its file": (weights(sizes=[{"as_int": 10**9}]), "not a whole file of torch.export"),
    "a file outside of the archive": (weights(path_name="../../../etc/passwd"), "not a whole file of torch.export"),
    "an operator on files": (target("torch.ops.aten.from_file.default"), "uses torch.ops.aten.from_file.default"),
    "a function of Python": (target("torch.hub.load"), "uses torch.hub.load"),
    "an attribute of an operator": (target("torch.ops.aten.relu.__class__"), "uses torch.ops.aten.relu.__class__"),
    "an operator of no name": (target("torch.ops.aten.nosuch.default"), "uses torch.ops.aten.nosuch.default"),
    "an operator that prints": (target("torch.ops.aten._print.default"), "uses torch.ops.aten._print"),
    "an operator on torch's generator": (target("torch.ops.aten.manual_seed.default"), "uses torch.ops.aten.manual"),
    "a library of no name": (target("torch.ops.image.write_file.default"), "uses torch.ops.image.write_file"),
    "no graph": (program(lambda entries: entries.clear()), "not a whole file of torch.export"),
    "no program": (lambda name, content: None if "models/" in name else content, "no exported program"),
    "brackets": (lambda name, content: b"[" * 10**5 if "models/" in name else content, "not a whole file"),
}


@_exports
@pytest.mark.parametrize("case", EDITS)
def test_a_program_that_is_more_than_a_network_is_refused_in_one_line(files, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    edit, words = EDITS[case]
    with pytest.raises(UserError, match=words) as error:
        load_model(changed(files / "fixed.pt2", tmp_path / "a.pt2", edit), dataset="digits")

    assert "\n" not in str(error.value)
    assert not (tmp_path / "CODE_RAN").exists()


@_exports
def test_texts_in_a_program_are_never_evaluated(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = changed(files / "fixed.pt2", tmp_path / "a.pt2", program(guarded))
    load_model(path, dataset="digits")

    assert not (tmp_path / "CODE_RAN").exists()


def code(text: str):
    # "container.py", or with another class of that name in this process "container/___torch_mangle_0.py".
    return lambda name, content: content + text.encode() if "/container" in name and name.endswith(".py") else content


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("save.pt", None, "names save"),
        ("map.pt", None, "names from_file"),
        ("script.pt", code("\n    ops.image.decode_image(x)"), "names ops.image"),
        ("script.pt", code("\n    a = ops"), "names ops,"),
        ("script.pt", code('\n    print("\\x1b[31m")'), "names print"),
        ("script.pt", code('\n    a = getattr(x, "s\\x61ve")'), "names getattr with a backslash"),
        ("script.pt", code("\n    a = __torch__.torch.classes.a.B"), "names torch.classes"),
        ("script.pt", code("#" * 2**20), "has more than [0-9,]* bytes"),
        ("script.pt", lambda name, content: None if "data.pkl" in name else content, "not a whole TorchScript file"),
    ],
)
def test_a_script_that_may_do_more_than_compute_is_refused_unread(files, tmp_path, monkeypatch, name, edit, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robustkit.limits.CODE_BYTES", 2**18)
    path = str(files / name) if edit is None else changed(files / name, tmp_path / "a.pt", edit)
    with pytest.raises(UserError, match=words) as error:
        load_model(path, dataset="digits")

    assert "\n" not in str(error.value)
    assert not (tmp_path / "CODE_RAN").exists()


@pytest.mark.parametrize("option", [{"weights": "a.pt"}, {"train": True}, {"random_init": True}])
def test_a_saved_network_has_its_own_weights(files, option):
    with pytest.raises(UserError, match=r"leave|leave out"):
        load_model(str(files / "fixed.pt2"), dataset="digits", **option)


@_exports
def test_a_program_takes_images_of_the_size_of_its_example(files):
    images = load_dataset("digits")
    wide = torch.zeros(3, 1, 8, 12)

    with pytest.raises(ValueError, match="exported for images of 1x8x8"):
        load_model(str(files / "free.pt2"), dataset=images)(wide)


class WithFeatures(nn.Module):
    """Returns its logits behind features, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.network = cnn()

    def forward(self, x):
        return {"features": x.flatten(1), "nothing": None, "logits": self.network(x)}


class InDoubles(nn.Module):
    """Takes images of any type, and computes in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.network = cnn().double()

    def forward(self, x):
        return self.network(x.double())


def exported(network: nn.Module, path: Path) -> nn.Module:
    program = torch.export.export(network, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, path)
    return load_model(str(path), dataset="digits")


@_exports
def test_the_logits_of_a_file_are_found_by_their_name(tmp_path):
    network, x = WithFeatures().eval(), data(6)[0]

    assert torch.equal(exported(network, tmp_path / "named.pt2")(x)["logits"], network(x)["logits"])


@_exports
def test_a_file_of_another_type_than_its_images_takes_them(tmp_path):
    network, x = InDoubles().eval(), data(6)[0]

    assert torch.equal(exported(network, tmp_path / "doubles.pt2")(x.double()), network(x))
