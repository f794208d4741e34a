"""Against a stand-in for the package, whose `load_model` has the arguments of the real one."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.models import load_model


@pytest.fixture
def calls(monkeypatch) -> list[dict[str, str]]:
    """The arguments of each call of RobustBench's `load_model`."""
    asked: list[dict[str, str]] = []

    def loading(model_name: str, model_dir: str, dataset: str, threat_model: str) -> nn.Module:
        asked.append({"name": model_name, "folder": model_dir, "dataset": dataset, "threat": threat_model})
        if model_name == "Nobody2020":
            raise KeyError(model_name)
        if model_name == "Offline2020":
            raise OSError("no route to host")
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

    package, utils = ModuleType("robustbench"), ModuleType("robustbench.utils")
    utils.load_model = loading
    monkeypatch.setitem(sys.modules, "robustbench", package)
    monkeypatch.setitem(sys.modules, "robustbench.utils", utils)
    return asked


def test_the_benchmark_builds_the_model(calls, tmp_path):
    model = load_model("robustbench:cifar10/L2/Author2020Title", dataset="cifar10")

    assert (model.name, model.num_classes, model.normalises) == ("Author2020Title", 10, False)
    assert calls == [{"name": "Author2020Title", "folder": str(tmp_path / "cache" / "robustbench"),
                      "dataset": "cifar10", "threat": "L2"}]  # fmt: skip


def test_a_checkpoint_on_the_disk_is_used(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("models/cifar10/Linf").mkdir(parents=True)
    Path("models/cifar10/Linf/Author2020Title.pt").touch()
    load_model("robustbench:Author2020Title", dataset="cifar10")

    assert calls[0]["folder"] == "models"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Author2020Title", "does not say which data it is for; write robustbench:cifar10/Linf/Author2020Title"),
        ("cifar/Linf/Author2020Title", "did you mean cifar10"),
        ("cifar10/L1/Author2020Title", "no threat of RobustBench called 'L1'"),
        ("cifar10/Author2020Title", "write robustbench:NAME or"),
        ("cifar10/Linf/Nobody2020", "has no model Nobody2020 for cifar10 and Linf"),
        ("cifar10/Linf/Offline2020", r"no route to host\); put its checkpoint into .*Offline2020\.pt"),
    ],
)
def test_what_is_missing_is_named(calls, name, sentence):
    data = from_tensors(torch.zeros(2, 3, 32, 32), torch.arange(2), name="mine")

    with pytest.raises(UserError, match=sentence):
        load_model(f"robustbench:{name}", dataset=data)


def test_a_missing_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "robustbench", None)

    with pytest.raises(UserError, match="pip install git"):
        load_model("robustbench:cifar10/Linf/Author2020Title")
