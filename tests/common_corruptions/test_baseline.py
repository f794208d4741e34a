"""Corruption errors: the numbers that RobustBench publishes follow from its accuracies, and files are checked."""

from pathlib import Path

import pytest

from robustkit.common_corruptions.baseline import ALEXNET, chosen_baseline, read_accuracies
from robustkit.common_corruptions.suite import cells_of
from robustkit.errors import UserError
from robustkit.host.text import csv_cell
from robustkit.statistics.corruption_error import MeanErrors, corruption_errors

ALL = cells_of(("fog", "snow"), (1, 2, 3, 4, 5))

# Two lines of RobustBench's table for ImageNet-C (github.com/RobustBench/robustbench, MIT licence).
ACCURACIES = {
    "AlexNet": """
        shot_noise 0.2944 0.1598 0.0726 0.0196 0.012
        motion_blur 0.4174 0.295 0.1794 0.1022 0.0698
        snow 0.2788 0.114 0.132 0.085 0.0502
        pixelate 0.4754 0.4502 0.267 0.1288 0.0858
        gaussian_noise 0.311 0.1814 0.0724 0.0214 0.0058
        defocus_blur 0.3404 0.262 0.1502 0.085 0.0522
        brightness 0.5504 0.514 0.464 0.3886 0.2906
        fog 0.3154 0.2324 0.157 0.1214 0.0556
        zoom_blur 0.3028 0.2308 0.1936 0.163 0.1312
        frost 0.3788 0.1976 0.1052 0.0994 0.0616
        glass_blur 0.3486 0.2412 0.1126 0.08 0.0636
        impulse_noise 0.2234 0.1154 0.0556 0.014 0.0054
        contrast 0.3496 0.2334 0.1094 0.0266 0.0094
        jpeg_compression 0.4858 0.4522 0.4228 0.3488 0.2564
        elastic_transform 0.471 0.3022 0.44 0.3568 0.1898
    """,
    "Standard_R50": """
        shot_noise 0.5828 0.4486 0.2856 0.1026 0.0352
        motion_blur 0.636 0.5342 0.3754 0.2158 0.1452
        snow 0.5468 0.312 0.3494 0.2344 0.165
        pixelate 0.638 0.6434 0.4598 0.293 0.2088
        gaussian_noise 0.602 0.4878 0.3124 0.1422 0.0288
        defocus_blur 0.5914 0.5154 0.3808 0.2752 0.1824
        brightness 0.736 0.7222 0.6958 0.6496 0.5886
        fog 0.6092 0.56 0.4674 0.4024 0.236
        zoom_blur 0.5258 0.4302 0.356 0.2844 0.2194
        frost 0.6106 0.4366 0.3064 0.2864 0.2258
        glass_blur 0.5362 0.3974 0.1708 0.1306 0.1034
        impulse_noise 0.4854 0.3862 0.2904 0.113 0.0244
        contrast 0.6428 0.5824 0.466 0.2098 0.0542
        jpeg_compression 0.6644 0.6234 0.6004 0.4786 0.3254
        elastic_transform 0.6684 0.4514 0.5456 0.4122 0.1702
    """,
}


def table(folder: Path) -> Path:
    """The two lines in RobustBench's own form."""
    lines = {model: [line.split() for line in text.strip().splitlines()] for model, text in ACCURACIES.items()}
    first = next(iter(lines.values()))
    head = [name for name, *shares in first for _ in shares]
    severities = [str(number) for _, *shares in first for number in range(1, len(shares) + 1)]
    rows = [["", *head], ["", *severities]]
    rows += [[model, *(share for _, *shares in each for share in shares)] for model, each in lines.items()]
    file = folder / "accuracies.csv"
    file.write_text("\n".join(",".join(row) for row in rows))
    return file


def test_published_mce_and_mean_accuracy_follow_from_published_accuracies(tmp_path):
    models = read_accuracies(table(tmp_path))
    resnet = models["Standard_R50"]
    relative = corruption_errors(resnet, models["AlexNet"])

    assert relative is not None
    assert round(100 * relative.mean, 2) == 76.38
    assert round(100 - 100 * sum(resnet.corrupted.values()) / 15, 2) == 39.48
    assert corruption_errors(models["AlexNet"], models["AlexNet"]).mean == 1


def test_alexnet_is_near_its_errors_in_robustbench(tmp_path):
    errors = read_accuracies(table(tmp_path))["AlexNet"].corrupted

    # RobustBench took 5,000 of the 50,000 images.
    assert all(errors[name] == pytest.approx(error, abs=0.02) for name, error in ALEXNET.corrupted.items())


def test_relative_errors_leave_out_what_was_wrong_without_corruption():
    baseline = MeanErrors(0.4, {"fog": 0.8, "snow": 0.6})
    relative = corruption_errors(MeanErrors(0.1, {"fog": 0.3, "snow": 0.2, "rain": 1.0}), baseline)

    assert relative is not None
    assert relative.by_corruption == pytest.approx({"fog": 0.375, "snow": 1 / 3})
    assert relative.relative == pytest.approx({"fog": 0.5, "snow": 0.5})
    assert relative.relative_mean == pytest.approx(0.5)
    assert corruption_errors(MeanErrors(None, {"rain": 1.0}), baseline) is None
    assert corruption_errors(MeanErrors(None, {"fog": 0.4}), baseline).relative_mean is None


def test_a_relative_error_was_divided_by_a_rounding_error():
    """The relative mCE was 2.9e15: the baseline's mean error over severities is its clean error, up to one bit."""
    baseline = MeanErrors(1 - 56 / 59, {"fog": sum(1 - right / 59 for right in (55, 56, 57)) / 3, "snow": 0.5})
    relative = corruption_errors(MeanErrors(0.1, {"fog": 0.3, "snow": 0.3}), baseline).relative

    assert baseline.corrupted["fog"] > baseline.clean
    assert list(relative) == ["snow"]


def test_a_baseline_is_a_model_of_the_run_alexnet_or_a_line_of_a_file(tmp_path):
    file = table(tmp_path)

    assert chosen_baseline("mine", ["mine"], ALL).errors is None
    assert chosen_baseline("AlexNet", ["mine"], ALL).errors == ALEXNET
    assert chosen_baseline(f"{file}:Standard_R50", [], ALL).name == "Standard_R50"
    for text, word in ((str(file), "2 models"), (f"{file}:none", "none"), ("nobody", "alexnet")):
        with pytest.raises(UserError, match=word):
            chosen_baseline(text, [], ALL)


def test_a_baseline_has_the_severities_of_the_run(tmp_path):
    file = table(tmp_path)
    errors = chosen_baseline(f"{file}:AlexNet", [], cells_of(("fog",), (1, 5))).errors

    assert errors.corrupted["fog"] == pytest.approx(1 - (0.3154 + 0.0556) / 2)
    for text, cells, sentence in (
        ("alexnet", cells_of(("fog",), (1, 5)), "means over severities 1 to 5, and this run has 1, 5"),
        (f"{file}:AlexNet", cells_of(("speckle_noise",), (1,)), "has no accuracy of AlexNet under a corruption"),
    ):
        with pytest.raises(UserError, match=sentence):
            chosen_baseline(text, [], cells)


def test_a_model_of_a_run_keeps_its_name_in_the_file_of_its_results(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text(f"model,role,attack,eps,accuracy\n{csv_cell('-x')},corruption,fog,1.0,0.5\n")

    assert chosen_baseline(f"{file}:-x", [], cells_of(("fog",), (1,))) == ("-x", MeanErrors(None, {"fog": 0.5}))


@pytest.mark.parametrize(
    "content",
    ["", "a,b\n1,2\n", "x,fog\n,1\nm,2.5\n", "x,fog\n,1\nm,nan\n", "x,fog\n,1\nm\n", "x,fog\n,inf\nm,0.5\n", "\0"],
)
def test_what_is_no_table_of_accuracies_is_one_clear_line(tmp_path, content):
    file = tmp_path / "wrong.csv"
    file.write_text(content)

    with pytest.raises(UserError, match="not a table of accuracies"):
        read_accuracies(file)
