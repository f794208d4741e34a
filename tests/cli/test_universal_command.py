"""`robustkit universal`: what it writes is what it prints, and can be judged again."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from robustkit.host.lock import claimed
from tests.cli.conftest import MODEL, save_splits, without
from tests.cli.test_bad_input import refused
from tests.small import data, linear

START = ("universal", "-q", *MODEL, "-d", "digits.npz")
RUN = (*START, "--fit-share", "0.5", "-a", "universal:steps=5", "--eps", "0.2", "--out", "made")


def test_the_table_has_the_split_of_the_fit_and_the_other_one(robustkit, place):
    printed = robustkit(*RUN, "--judge-on", "net.py:other")
    table = pd.read_csv(place / "made" / "results.csv")

    assert printed.status == 0
    assert table.split.tolist() == ["val", "test", "test"]
    assert table.fitted.tolist() == [True, False, False]
    assert table.n.tolist() == [15, 15, 15]
    assert table.model.nunique() == 2
    assert (table.robust_accuracy_low <= table.robust_accuracy).all()
    assert f"{100 * table.robust_accuracy[1]:.1f} %" in printed.out
    assert table.robust_accuracy[1] < table.clean_accuracy[1]


def test_the_stored_perturbation_breaks_what_the_table_says(robustkit, place):
    robustkit(*RUN, "--seed", "1")
    stored = load_file(place / "made" / "perturbation.safetensors")
    table = pd.read_csv(place / "made" / "results.csv")
    x, y = data(30)
    points = (x + stored["perturbation"]).clamp(0, 1)
    right = ((linear()(x).argmax(1) == y) & (linear()(points).argmax(1) == y)).sum()

    assert stored["perturbation"].abs().max() <= 0.2
    assert right == (table.robust_accuracy * table.n).round().sum()


def test_a_rejected_image_is_not_broken_by_a_perturbation(robustkit, place):
    words = ["net.py:rejecting" if word == MODEL[1] else word for word in RUN]
    robustkit(*words, "--rejects")
    stored = load_file(place / "made" / "perturbation.safetensors")
    table = pd.read_csv(place / "made" / "results.csv")
    x, y = data(30)
    scores, points = linear()(x), linear()((x + stored["perturbation"]).clamp(0, 1))
    taken = points.argmax(1) != y
    sure = [(first - second > 0.5) for first, second in (each.topk(2, 1).values.unbind(1) for each in (scores, points))]
    right = (scores.argmax(1) == y) & sure[0]

    assert not bool(sure[1].all())
    assert int((right & ~(taken & sure[1])).sum()) == (table.robust_accuracy * table.n).round().sum()


def test_a_patch_is_written_as_a_picture(robustkit, place):
    robustkit(*START, "--fit-share", "0.5", "-a", "adversarial_patch:steps=5", "--out", "made", "--places", "3")
    stored = load_file(place / "made" / "perturbation.safetensors")["perturbation"]
    with Image.open(place / "made" / "perturbation.png") as picture:
        levels = torch.from_numpy(np.asarray(picture).astype(np.int64))

    assert torch.equal(levels, (stored[0].double() * 255).round().long())
    assert pd.read_csv(place / "made" / "results.csv").places.tolist() == [3, 3]


def test_an_earlier_perturbation_is_judged_again_without_the_images_of_its_fit(robustkit, place):
    robustkit(*RUN, "--target", "3")
    words = (*START, "--perturbation", "made", "--judge-on", "net.py:other", "--out", "again")
    printed = robustkit(*words)
    table = pd.read_csv(place / "again" / "results.csv")

    assert printed.status == 0
    assert "15 images that the perturbation was fitted to are left out" in printed.err
    assert table.n.tolist() == [15, 15]
    assert table.broken[0] == pd.read_csv(place / "made" / "results.csv").broken[1]


def test_an_earlier_perturbation_is_not_judged_on_the_split_of_its_fit(robustkit, place):
    x, y = data(30)
    save_splits(place / "splits.npz", train=(x[:15], y[:15]), test=(x[15:], y[15:]))
    robustkit(*without(RUN, "-d", "--fit-share"), "-d", "splits.npz")
    again = (*without(START, "-d"), "-d", "splits.npz", "--split", "train", "--perturbation", "made", "--out", "again")

    refused(robustkit(*again), "fitted to all 15 images of splits train; give another --split")


def test_the_same_command_writes_the_same_bytes(robustkit, place):
    robustkit(*RUN)
    robustkit(*RUN[:-1], "other", "--batch-size", "7")

    for name in ("results.csv", "perturbation.safetensors", "perturbation.png"):
        assert (place / "made" / name).read_bytes() == (place / "other" / name).read_bytes()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("-a", "pgd"), "robustkit evaluate"),
        (("-a", "adversarial_patch"), "no radius"),
        (("--judge-weights", "none.safetensors"), "one each"),
        (("--target", "nobody"), "nobody"),
        (("--norm", "L1", "--eps", "3"), "Linf, L2"),
        (("--places", "0"), "places"),
        (("--places", "5"), "leave out --places 5"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_writes_nothing(more, words, robustkit, place):
    refused(robustkit(*without(RUN, *{"-a", "--eps"}.intersection(more)), *more), words)

    assert not (place / "made").exists()


def test_a_file_of_images_is_no_perturbation(robustkit):
    refused(robustkit(*START, "--perturbation", "digits.npz"), "not a perturbation")


def test_a_black_box_is_refused_by_its_name_with_the_way_out(robustkit, place):
    (place / "box.py").write_text(
        "import robustkit\nbox = robustkit.BlackBox(lambda images: images[:, 0, :, 0].repeat(2, 1))\n"
    )
    printed = robustkit("universal", "-m", "box.py:box", "--out", "never")

    assert printed.status == 2
    assert "box gives no gradients, which Universal needs" in printed.err
    assert "--judge-on" in printed.err


def test_an_existing_folder_is_refused(robustkit, place):
    (place / "made").mkdir()

    refused(robustkit(*RUN), "made exists")


def test_a_second_process_with_the_same_out_is_refused_before_its_fit(robustkit, place, monkeypatch):
    first = claimed(place / "made")
    with ThreadPoolExecutor(1) as other:
        other.submit(first.__enter__).result()
        with monkeypatch.context() as broken:
            broken.setattr("robustkit.engine.fit_universal.mini_batches", None)
            refused(robustkit(*RUN), "at work in made")
        other.submit(first.__exit__, None, None, None).result()
    printed = robustkit(*RUN)

    assert printed.status == 0
    assert sorted(file.name for file in place.iterdir() if file.is_dir()) == ["made"]


def test_fitting_and_judging_on_the_same_images_is_refused(robustkit):
    refused(robustkit(*START, "--fit-split", "test"), "same images")
    refused(robustkit(*START), "--fit-share 0.5")


def test_images_that_are_in_both_splits_are_refused(robustkit, place):
    x, y = data(60)
    save_splits(place / "shared.npz", train=(x[:32], y[:32]), test=(x[30:], y[30:]))
    words = (*without(RUN, "-d", "--fit-share"), "-d", "shared.npz")

    refused(robustkit(*words), "2 judged images are fitted images too")
    assert robustkit(*words, "--fit-samples", "1", "--samples", "1").status == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("universal:steps=5", "evil.py:Attack", "attack of your own"),
        ('"target": null', '"target": -1', "damaged"),
        ('"seed": 0', '"seed": 1e30', "damaged"),
        ('"eps": "0.2"', '"eps": "many"', "not a radius"),
        ("[0.0, 1.0]", "[1.0, 0.0]", "damaged"),
    ],
)
def test_a_file_of_data_chooses_no_code_and_no_nonsense(old, new, words, robustkit, place):
    robustkit(*RUN)
    path = place / "made" / "perturbation.safetensors"
    with safe_open(path, "pt") as opened:
        settings = opened.metadata()["robustkit.universal"]
    assert old in settings
    (place / "evil.py").write_text("raise SystemExit('run')")
    save_file(load_file(path), path, {"robustkit.universal": settings.replace(old, new)})

    refused(robustkit(*START, "--perturbation", "made", "--out", "again"), words)


def test_a_misspelt_judge_is_refused_before_the_fit(robustkit, place, monkeypatch):
    monkeypatch.setattr("robustkit.engine.fit_universal.mini_batches", None)

    refused(robustkit(*RUN, "--judge-on", "net.py:nobody"), "nobody")


def test_an_interruption_while_it_is_judged_does_not_lose_the_fit(robustkit, place, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("robustkit.engine.fitted.FittedPerturbation.judge", interrupt)
        assert robustkit(*RUN).status == 130
    with monkeypatch.context() as broken:
        broken.setattr("robustkit.engine.fit_universal._Fit.gradient", interrupt)
        assert robustkit(*RUN).status == 0
    robustkit(*RUN[:-1], "other")

    assert not (place / "made.fit.safetensors").exists()
    for name in ("results.csv", "perturbation.safetensors"):
        assert (place / "made" / name).read_bytes() == (place / "other" / name).read_bytes()


def test_an_interruption_before_the_fit_is_stored_does_not_promise_to_go_on(robustkit, place, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("robustkit.engine.fit_universal._Fit.gradient", interrupt)
    printed = robustkit(*RUN)

    assert printed.status == 130
    assert "begins again" in printed.err
    assert not (place / "made.fit.safetensors").exists()


def test_a_perturbation_that_cannot_be_written_is_one_line_and_keeps_the_fit(robustkit, place, monkeypatch):
    # As on a full disk, where safetensors raises an error of its own.
    monkeypatch.setattr("robustkit.adversarial_examples.universal_files.FILE", "missing/perturbation.safetensors")

    refused(robustkit(*RUN), "check the path, its permissions and the disk")
    assert (place / "made.fit.safetensors").exists()
    assert not (place / "made").exists()


@pytest.mark.parametrize("option", [("--eps", "0.1"), ("--target", "3"), ("-a", "adversarial_patch"), ("--seed", "0")])
def test_an_option_of_the_fit_is_not_ignored_where_nothing_is_fitted(option, robustkit, place):
    robustkit(*RUN)

    refused(robustkit(*START, "--perturbation", "made", "--out", "again", *option), "leave out --")


def test_places_are_not_ignored_where_an_earlier_perturbation_has_none(robustkit, place):
    robustkit(*RUN)

    refused(robustkit(*START, "--perturbation", "made", "--out", "again", "--places", "5"), "leave out --places 5")


def test_a_fit_along_zero_gradients_is_no_silent_evidence_of_robustness(robustkit, place):
    (place / "masked.py").write_text(
        "from torch import nn\nfrom tests import networks, small\n"
        "def masked():\n    return nn.Sequential(networks.Rounding(4), small.linear())\n"
    )

    assert "every gradient was zero" in robustkit(*without(RUN, "-m"), "-m", "masked.py:masked").err


def test_the_note_of_a_targeted_perturbation_says_that_other_errors_count_as_robust(robustkit):
    assert "not taken for class 3" in robustkit(*RUN, "--target", "3").out


def test_universal_attacks_are_listed_with_their_kind(robustkit):
    lines = [
        line for line in robustkit("list", "attacks").out.splitlines() if "one perturbation for all images" in line
    ]

    assert [line.split()[0] for line in lines] == ["adversarial_patch", "universal"]


def test_two_checkpoints_of_one_network_have_rows_of_their_own(robustkit, place):
    save_file(linear().state_dict(), place / "first.safetensors")
    save_file(linear().state_dict(), place / "second.safetensors")
    judges = [word for name in ("first", "second")
              for word in ("--judge-on", "net.py:factory", "--judge-weights", f"{name}.safetensors")]  # fmt: skip
    printed = robustkit(*RUN, *judges)
    names = pd.read_csv(place / "made" / "results.csv").model.tolist()

    assert printed.status == 0
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert [name.rpartition("-")[2] for name in names[2:]] == ["first", "second"]


def test_a_judge_at_chance_is_told(robustkit, place):
    (place / "net.py").write_text(
        (place / "net.py").read_text() + "\n\ndef untrained():\n    model = factory()\n"
        "    for weight in model.parameters():\n        weight.data.zero_()\n    return model\n"
    )
    printed = robustkit(*RUN, "--judge-on", "net.py:untrained")

    assert "net.untrained: the model classifies" in printed.err
