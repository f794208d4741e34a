"""A name that is almost right: the message says what the name is, and what was meant."""

import os

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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize(
    "words",
    [
        ["-m", "{}.onnx"], ["-m", "{}.pt2"], ["-m", "{}.pt"], ["-m", "{}.safetensors"], ["-m", "{}.py:make"],
        ["-m", "net.py:factory", "--weights", "{}.pt"], ["-m", "net.py:factory", "--weights", "{}.safetensors"],
        ["-m", "net.py:factory", "-d", "{}.npz"], ["-m", "net.py:factory", "-d", "{}"],
    ],
)  # fmt: skip
def test_a_pipe_or_a_device_is_called_what_it_is(words, robustkit, place):
    """It was said to be missing, and to be what was meant."""
    option, name = words[-2:]
    suffix = name.removeprefix("{}").partition(":")[0]
    os.mkfifo(place / f"pipe{suffix}")
    (place / f"zero{suffix}").symlink_to("/dev/zero")
    (place / f"gone{suffix}").symlink_to("nowhere")

    for stem, kind in [("pipe", "is a pipe"), ("zero", "is a device"), ("gone", "is a link to nothing")]:
        refused(robustkit(*RUN, *words[:-2], option, name.format(stem)), f"{stem}{suffix} {kind}")


def test_an_option_of_other_commands_is_named_with_them(robustkit):
    refused(
        robustkit(*RUN, "-m", "net.py:factory", "--target", "3"),
        "evaluate has no option --target",
        "attack, universal.",
    )
    refused(robustkit("compare", "run", "--outt", "page.html"), "No such option '--outt'", "--out")
