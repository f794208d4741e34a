"""`robustkit finetune`: its files, its report, and its refusals."""

import json
import shlex
import warnings

import pandas as pd
import pytest
import torch
from robustkit.defenses.training.tensor_file import read_tensors
from safetensors import safe_open

from tests.cli.conftest import save_splits, without
from tests.cli.test_bad_input import refused
from tests.small import data, linear

TUNE = (
    "finetune", "-q", "-m", "net.py:factory", "--eps", "0.1", "--preset", "fast", "-a", "fgsm",
    "--set", "epochs=2", "--set", "select=pgd:steps=2", "--set", "prior=none", "--set", "lr=0.01", "--out", "tuned",
)  # fmt: skip


FILES = {
    *("model.safetensors", "history.csv", "report.html", "results.csv", "samples.csv", "run.sqlite"),
    "training.safetensors",
}


def test_a_tuning_writes_its_model_history_and_report_once(robustkit, place):
    printed = robustkit(*TUNE)
    first = {file.name: file.read_bytes() for file in (place / "tuned").iterdir()}
    robustkit(*TUNE)

    assert printed.status == 0, printed.err
    assert set(first) == FILES
    # The weights are in model.safetensors alone.
    assert not read_tensors(place / "tuned" / "training.safetensors").groups
    assert pd.read_csv(place / "tuned" / "history.csv").epoch.tolist() == [1, 2]
    models = pd.read_csv(place / "tuned" / "results.csv").model.unique().tolist()
    assert models == ["net.factory", "net.factory-tuned"]
    assert "validation images during the training of 2 epochs" in (place / "tuned" / "report.html").read_text(
        encoding="utf-8"
    )
    assert all((place / "tuned" / name).read_bytes() == first[name] for name in FILES - {"run.sqlite"})


@pytest.mark.usefixtures("judged_quickly")
def test_the_tuned_model_is_evaluated_by_its_weights_and_its_own_code(robustkit, place, run_once):
    run_once("tuned", *without(TUNE, "--out"))
    printed = robustkit(
        "evaluate", "-q", "-m", "net.py:factory", "--weights", "tuned/model.safetensors", "-a", "fgsm", "--eps", "0.1",
        "--out", "again",
    )  # fmt: skip
    again, first = (pd.read_csv(place / name / "results.csv").set_index("model") for name in ("again", "tuned"))

    assert printed.status == 0
    assert again.accuracy.tolist() == first.loc["net.factory-tuned"].accuracy.tolist()


@pytest.mark.usefixtures("judged_quickly")
def test_the_printed_command_evaluates_the_tuned_model_on_the_same_images_and_threat(robustkit, place):
    from torchvision.utils import save_image

    x, y = data(150)
    for number, label in enumerate(y.tolist()):
        folder = place / "my pictures" / ("train", "val", "held out")[number % 3] / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        save_image(x[number], folder / f"{number}.png")
    (place / "rgb.py").write_text("from torch import nn\n\ndef factory(num_classes):\n"
                                  "    return nn.Sequential(nn.Flatten(), nn.Linear(108, num_classes))\n")  # fmt: skip
    chosen = ("-m", "rgb.py:factory", "-d", "my pictures", "--image-size", "6", "--num-classes", "12",
              "--split", "held out")  # fmt: skip
    words = (*without(TUNE, "-m", "--eps", "--out"), *chosen, "--eps", "0.2", "--out", "it's tuned")
    printed = robustkit(*words)
    line = printed.out.splitlines()[-1]
    again = robustkit(*shlex.split(line.removeprefix("Evaluate it: robustkit ")), "-q", "-a", "fgsm", "--out", "again")
    first, second = (pd.read_csv(place / name / "results.csv") for name in ("it's tuned", "again"))
    columns = ["norm", "eps_text", "n", "correct"]

    assert (printed.status, again.status) == (0, 0), printed.err + again.err
    assert second[columns].values.tolist() == first[first.model == "rgb.factory-tuned"][columns].values.tolist()


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize("quiet", [("-q",), pytest.param((), marks=pytest.mark.slow)])
def test_a_training_that_improved_nothing_says_so_once_also_with_quiet(robustkit, place, quiet):
    words = [word for word in TUNE if word != "-q"]
    printed = robustkit(*words, *quiet, "--set", "lr=1e-30", "--set", "bn=frozen")

    assert printed.status == 0
    assert printed.err.count("No epoch was better than the start") == 1


@pytest.mark.usefixtures("judged_quickly")
def test_the_notes_of_a_training_are_not_lost_with_the_terminal(robustkit, place):
    robustkit(*TUNE, "--set", "lr=1e-30", "--set", "bn=frozen")
    note = "No epoch was better than the start on validation images, so the weights are unchanged."
    with safe_open(place / "tuned" / "model.safetensors", "pt") as file:
        description = json.loads(file.metadata()["robustkit"])

    assert note in description["notes"]
    assert note in (place / "tuned" / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("judged_quickly")
def test_a_second_training_in_the_folder_is_refused(robustkit, place):
    from robustkit.host.lock import _HELD

    _HELD[(place / "tuned").resolve()] = -1  # as a process or thread at work has it
    try:
        refused(robustkit(*TUNE), "at work in tuned")
        # The other's folder, still empty, was removed, and a third command worked beside it.
        assert (place / "tuned").is_dir()
    finally:
        _HELD.clear()
    assert robustkit(*TUNE).status == 0


@pytest.mark.usefixtures("judged_quickly")
def test_a_history_is_replaced_in_one_step(robustkit, place, monkeypatch, run_once):
    run_once("tuned", *without(TUNE, "--out"))
    before = (place / "tuned" / "history.csv").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    printed = robustkit(*TUNE)

    assert printed.status == 2
    assert (place / "tuned" / "history.csv").read_bytes() == before


def test_a_plan_trains_nothing(robustkit, place):
    printed = robustkit(*TUNE, "--plan")

    assert "units of a forward pass" in printed.out
    assert not (place / "tuned").exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--preset", "saef"), "safe"),
        (("--set", "epoch=3"), "epochs"),
        (("--set", "epochs"), "KEY=VALUE"),
        (("--set", "prior=none:5"), "is not a prior"),
        (("--set", "lr=-1"), "lr"),
        (("--set", "freeze=*"), "every weight"),
        (("--set", "objective=trade"), "trades"),
        (("--set", "momentum=0"), "momentum"),
        (("--eps", "3"), "3/255"),
        (("-d", "digits.npz"), "train"),
        (("--set", "freeze=0:none;9:1.bias"), "changes at epoch 9"),
        (("--set", "fresh=head"), "head"),
        (("--set", "select=square"), "loss"),
        (("-a", "pdg"), "pgd"),
        (("-a", "pgd:steps=0"), "steps"),
        (("--norm", "L0", "--eps", "3", "--set", "attack=pgd:steps=1"), "no L0 form"),
        (("--seed", "1", "--set", "seed=2"), "--seed"),
        (("--split", "train"), "another --split"),
        (("--split", "val"), "another --split"),
    ],
)
@pytest.mark.parametrize("plan", [(), ("--plan",)])
def test_what_cannot_be_trained_is_refused_in_one_line(robustkit, place, words, match, plan):
    start = without(TUNE, *{"--preset", "--eps"}.intersection(words))

    refused(robustkit(*start, *words, *plan), match)
    assert not (place / "tuned").exists()


def test_the_folder_of_an_evaluation_is_refused_before_any_training(robustkit, place):
    robustkit("evaluate", "-q", "-m", "net.py:factory", "-d", "digits.npz", "-a", "fgsm", "--eps", "0.1", "-o", "tuned")
    before = {file.name: file.read_bytes() for file in (place / "tuned").iterdir()}

    refused(robustkit(*TUNE), "tuned holds an evaluation")
    assert before == {file.name: file.read_bytes() for file in (place / "tuned").iterdir()}


@pytest.mark.usefixtures("judged_quickly")
def test_a_history_of_the_user_is_not_overwritten(robustkit, place):
    (place / "tuned").mkdir()
    own = place / "tuned" / "history.csv"
    own.write_text("epoch,loss,val_loss\n1,0.5,0.6\n")

    refused(robustkit(*TUNE), "history.csv", "not replaced")
    assert own.read_text() == "epoch,loss,val_loss\n1,0.5,0.6\n"
    assert [file.name for file in (place / "tuned").iterdir()] == ["history.csv"]


def test_a_class_that_is_missing_in_one_split_is_refused(robustkit, place):
    from torchvision.utils import save_image

    x, y = data(30)
    for split in ("train", "val", "test"):
        for number, label in enumerate(y.tolist()):
            folder = place / "pictures" / split / "abcdefghij"[label]
            folder.mkdir(parents=True, exist_ok=True)
            save_image(x[number], folder / f"{number}.png")
    for file in (place / "pictures" / "val" / "a").iterdir():
        file.unlink()
    (place / "pictures" / "val" / "a").rmdir()
    (place / "rgb.py").write_text("from torch import nn\n\ndef factory():\n"
                                  "    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))\n")  # fmt: skip

    refused(
        robustkit(*without(TUNE, "-m"), "-m", "rgb.py:factory", "-d", "pictures"),
        "val lacks folders of classes that another split has (a)",
    )


@pytest.mark.usefixtures("judged_quickly")
@pytest.mark.parametrize(("steps", "words"), [(0, "begins again"), (50, "goes on from what is stored in tuned")])
def test_an_interruption_before_the_first_checkpoint_does_not_promise_to_go_on(
    robustkit, place, monkeypatch, steps, words
):
    from robustkit.defenses.training.stepping import Stepper

    taken, step = [], Stepper.step

    def interrupted(self, *given):
        if len(taken) == steps:
            raise KeyboardInterrupt
        taken.append(1)
        return step(self, *given)

    monkeypatch.setattr(Stepper, "step", interrupted)
    printed = robustkit(*TUNE, "--set", "batch=32", "--set", "epochs=9")

    assert printed.status == 130
    assert words in printed.err
    assert (place / "tuned" / "training.safetensors").exists() == (steps > 0)


def test_the_plan_of_a_training_with_one_class_is_refused_as_the_training_is(robustkit, place):
    x, y = data(90)
    train = x[:60][y[:60] == 3], y[:60][y[:60] == 3]
    save_splits(place / "one.npz", train=train, val=(x[60:75], y[60:75]), test=(x[75:], y[75:]))

    for plan in ((), ("--plan",)):
        refused(robustkit(*TUNE, "-d", "one.npz", *plan), "All training images are of class 3")


@pytest.mark.parametrize("plan", [[], ["--plan"]])
def test_a_saved_network_is_not_trained_as_no_weights_can_be_loaded_into_it(robustkit, place, plan):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that TorchScript will go
        torch.jit.save(torch.jit.trace(linear(), torch.zeros(2, 1, 8, 8)), place / "net.pt")

    refused(robustkit("finetune", "-m", "net.pt", "--eps", "0.1", "-q", *plan), "the module", "--model FILE.py:NAME")
