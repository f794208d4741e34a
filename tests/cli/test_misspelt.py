"""A name that is almost right: the message says what the name is, and what was meant."""

import pytest
import torch

from tests.cli.conftest import DATA
from tests.cli.test_bad_input import refused
from tests.small import linear

RUN = ("evaluate", "-q", "-a", "fgsm", "--eps", "0.1")
NAMES = {
    "a checkpoint as the model": (["-m", "net.pt"], ["--weights net.pt"]),
    "a Hugging Face folder as the model": (["-m", "vit/"], ["is a folder", "Hugging Face", ".py:"]),
    "a file of another kind as the model": (["-m", "net.h5"], ["no model net.h5", "timm:NAME"]),
    "a missing ONNX file": (["-m", "net.onnx"], ["no file net.onnx", "path"]),
    "a misspelt model file": (["-m", "nett.py:factory"], ["did you mean net.py"]),
    "a misspelt checkpoint": (["-m", "net.py:factory", "--weights", "nett.pt"], ["did you mean net.pt"]),
    "a misspelt folder of pictures": (["-m", "net.py:factory", "-d", "photo/"], ["did you mean photos?"]),
    "a misspelt data file": (["-m", "net.py:factory", "-d", "./digit.npz"], ["did you mean digits.npz?"]),
    "no weights for a torchvision model": (["-m", "resnet18", "--weights", "none"], ["untrained", "--train"]),
    "no weights for a timm model": (["-m", "timm:resnet18", "--weights", "none"], ["untrained", "--train"]),
}


@pytest.fixture(autouse=True)
def _files(place):
    torch.save(linear().state_dict(), place / "net.pt")
    (place / "vit").mkdir()
    (place / "vit" / "config.json").write_text("{}")
    (place / "photos").mkdir()


@pytest.mark.parametrize("case", NAMES)
def test_a_misleading_name_is_explained(case, robustkit):
    words, expected = NAMES[case]
    if "timm" in str(words):
        pytest.importorskip("timm")

    refused(robustkit(*RUN, *words), *expected)


def test_a_misspelt_timm_model_is_unknown_whatever_the_data_are(robustkit):
    pytest.importorskip("timm")

    refused(robustkit(*RUN, "-m", "timm:resnet1888", *DATA), "no timm model", "did you mean resnet18")


def test_a_module_in_a_file_is_a_model(robustkit, place):
    (place / "instance.py").write_text("from tests import small\n\nmodel = small.linear()\n")
    by_name, by_function = (
        robustkit(*RUN, *DATA, "-m", name, "--out", out)
        for name, out in [("instance.py:model", "a"), ("net.py:factory", "b")]
    )

    assert by_name.status == by_function.status == 0
    results = [(place / out / "results.csv").read_text() for out in "ab"]
    assert results[0].replace("instance.model", "net.factory") == results[1]
