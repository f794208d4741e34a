"""Settings that cannot be meant are refused, where they were once accepted without a word."""

import click
import numpy as np
import pytest
import torch
from PIL import Image

from robustkit import Classifier, UserError, evaluate
from robustkit.cli import main
from tests.cli.conftest import MODEL, SMALL
from tests.cli.test_bad_input import refused
from tests.networks import Changed
from tests.small import data, linear

STATISTICS = {
    "mean in 0 to 255": (["--mean", "125", "--std", "0.2"], ["divide", "255"]),
    "std in 0 to 255": (["--mean", "0.5", "--std", "60"], ["divide", "255"]),
    "std inf": (["--mean", "0.5", "--std", "inf"], ["inf"]),
    "std nan": (["--mean", "0.5", "--std", "nan"], ["nan"]),
    "std negative": (["--mean", "0.5", "--std", "-1"], ["positive"]),
    "mean nan": (["--mean", "nan", "--std", "1"], ["nan"]),
    "mean negative": (["--mean", "-3", "--std", "1"], ["-3", "[0, 1]"]),
}  # fmt: skip


@pytest.mark.parametrize("case", STATISTICS)
def test_a_normalisation_in_another_unit_is_refused(case, robustkit):
    words, expected = STATISTICS[case]

    refused(robustkit(*SMALL, *words), *expected)


@pytest.mark.parametrize(
    ("mean", "std", "bounds"),
    [(125, 60, (0, 1)), (0.5, float("inf"), (0, 1)), (0.5, float("nan"), (0, 1)), (300, 60, (0, 255))],
)
def test_a_classifier_refuses_it_too(mean, std, bounds):
    with pytest.raises(UserError, match=r"mean|std"):
        Classifier(linear(), mean=[mean], std=[std], bounds=bounds)


@pytest.mark.parametrize("more", [{"mean": 0.5, "std": 0.5}, {"mean": [0.5], "std": 0.5}])
def test_a_number_for_all_channels_is_refused_in_one_line(more):
    with pytest.raises(UserError, match="one number per channel"):
        Classifier(linear(), **more)


def test_statistics_in_the_unit_of_the_bounds_are_accepted():
    assert Classifier(linear(), mean=[125], std=[60], bounds=(0, 255)).name == "sequential"


def test_a_normalisation_of_models_that_are_modules_is_not_ignored():
    with pytest.raises(UserError, match="mean and std are for models given by name"):
        evaluate(linear(), dataset=data(4), attacks="fgsm", eps="0.1", mean=[0.5], std=[0.5])


def pictures(folder) -> None:
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), 90, np.uint8)).save(folder / name / "1.png")


def test_a_split_of_a_folder_without_splits_is_refused(robustkit, place):
    pictures(place / "photos")

    refused(robustkit("evaluate", *MODEL, "-d", "photos", "--split", "val"), "no folder for a split called 'val'")


def test_the_splits_of_a_folder_are_not_taken_for_classes(robustkit, place):
    for split in ("train", "val"):
        pictures(place / "photos" / split)

    refused(robustkit("evaluate", *MODEL, "-d", "photos"), "no split called 'test'", "train, val")


def test_a_split_of_a_file_without_splits_is_refused(robustkit):
    refused(robustkit(*SMALL, "--split", "val"), "x_val")


def test_complex_logits_are_refused():
    model = Changed(linear(), lambda logits: torch.complex(logits, logits))

    with pytest.raises(UserError, match="complex"):
        evaluate(model, dataset=data(4), attacks="fgsm", eps="0.1")


def leaves(group: click.Group, *before: str) -> dict[tuple[str, ...], click.Command]:
    """The commands by their words."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name, command in group.commands.items():
        words = (*before, name)
        found |= leaves(command, *words) if isinstance(command, click.Group) else {words: command}
    return found


ONE_VALUE = {
    words: [
        max(option.opts, key=len)
        for option in command.params
        if isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
    ]
    for words, command in leaves(main).items()
}


@pytest.mark.parametrize("words", ONE_VALUE, ids=" ".join)
def test_no_command_drops_one_of_two_values(words, robustkit):
    for option in ONE_VALUE[words]:
        refused(robustkit(*words, f"{option}=1", option, "2"), f"{option} is given 2 times")

    assert "--seed" in ONE_VALUE[("evaluate",)]


def test_a_flag_may_be_repeated(robustkit):
    assert robustkit(*SMALL, "-q", "--plan", "--plan").status == 0
    refused(robustkit("attack", "--quiet", "-q"), "No image is given")


ONLY_FOR_OTHER_DATA = {
    "size of digits": (["digits", "--image-size", "4"], "--image-size"),
    "size of arrays": (["digits.npz", "--image-size", "4"], "--image-size"),
    "folder of digits": (["digits", "--data-dir", "nowhere"], "--data-dir"),
    "folder of arrays": (["digits.npz", "--data-dir", "nowhere"], "--data-dir"),
    "download of arrays": (["digits.npz", "--download"], "--download"),
}


@pytest.mark.parametrize("case", ONLY_FOR_OTHER_DATA)
def test_an_option_for_other_data_is_not_ignored(case, robustkit):
    words, named = ONLY_FOR_OTHER_DATA[case]

    refused(robustkit("evaluate", *MODEL, "-a", "fgsm", "--eps", "0.1", "-d", *words), named, words[0])
