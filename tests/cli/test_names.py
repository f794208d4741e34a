"""What models and run folders are called."""

import pandas as pd
import pytest
import torch

from robustkit.cli.evaluate import shortened
from robustkit.evaluation.classifiers import names_from_files
from robustkit.primitives.user_code import address
from tests.cli.conftest import DATA, MODEL, SMALL
from tests.cli.test_bad_input import refused
from tests.small import linear

RUN = ("evaluate", "-q", *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "run")


def models(place) -> list[str]:
    return pd.read_csv(place / "run" / "results.csv").model.unique().tolist()


def checkpoints(place, *names: str) -> None:
    for name in names:
        (place / name).parent.mkdir(exist_ok=True)
        torch.save(linear().state_dict(), place / name)


def test_two_checkpoints_of_one_class_are_told_apart_by_their_files(robustkit, place):
    checkpoints(place, "early.pt", "late.pt")
    words = [*MODEL, "--weights", "early.pt"]
    robustkit(*RUN, *words)
    grown = robustkit(*RUN, *words, *MODEL, "--weights", "late.pt")

    assert grown.status == 0, grown.err
    assert models(place) == ["net.factory-early", "net.factory-late"]


def test_checkpoints_of_one_name_are_told_apart_by_their_folders(robustkit, place):
    checkpoints(place, "one/best.pt", "two/best.pt")
    robustkit(*RUN, *MODEL, "--weights", "one/best.pt", *MODEL, "--weights", "two/best.pt")

    assert models(place) == ["net.factory-best", "net.factory-two-best"]


def test_models_of_one_name_are_told_apart_by_their_arguments_or_folders():
    def names(model):
        return names_from_files(address(model).name, model, None)

    assert names("a/net.py:make(width=8)") == ["net.make(width=8)", "net.make(width=8)-a"]
    assert names("b/net.py:make") == ["net.make", "net.make-b"]
    assert names_from_files("clip", "clip:x/clip(classes=a.txt)", None) == ["clip", "clip(classes=a.txt)", "x-clip"]
    assert names_from_files("tuned", "c/model.safetensors", None) == ["tuned", "tuned-c"]
    assert names_from_files("resnet18", "resnet18", None) == ["resnet18"]


def test_names_are_given_on_the_command_line_or_in_a_file(robustkit, place):
    two = [*MODEL, "-m", "net.py:other"]
    robustkit(*RUN, *two, "--name", "plain", "--name", "A/B, with=signs")
    assert models(place) == ["plain", "A/B, with=signs"]

    (place / "plan.toml").write_text('name = ["one", "two"]\nout = "run2"\n')
    robustkit("evaluate", "-q", *DATA, "-a", "fgsm", "--eps", "0.1", *two, "--config", "plan.toml")
    assert pd.read_csv(place / "run2" / "results.csv").model.unique().tolist() == ["one", "two"]


@pytest.mark.parametrize("dry", [(), ("--plan",), ("--dry-run",)])
@pytest.mark.parametrize(
    ("names", "word"), [(["one", "two"], "1 models but 2 names"), ([" "], "letter")], ids=["too many", "empty"]
)
def test_names_that_do_not_fit_are_refused(names, word, dry, robustkit):
    refused(robustkit(*SMALL, *(each for name in names for each in ("--name", name)), *dry), word)


def test_two_models_may_not_get_one_name(robustkit):
    refused(robustkit(*SMALL, "-m", "net.py:other", "--name", "a", "--name", "a"), "'a'")


def test_a_folders_name_is_cut_between_words():
    assert shortened("resnet18+mobilenet_v3_small-digits", 40) == "resnet18+mobilenet_v3_small-digits"
    assert shortened("resnet18+mobilenet_v3_small-digits", 20) == "resnet18+mobilenet"
    assert shortened("resnet18-digits", 8) == "resnet18"
    assert shortened("a" * 30, 20) == "a" * 20
