"""The library as the README shows it: a few lines of Python, and one sentence where they cannot work."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from robustkit.attacks import FGSM, PGD
from torch import nn

import robustkit
from robustkit import Classifier, UserError, evaluate, load_run
from robustkit.evaluation.request import Numerics
from tests.networks import AlwaysTraining, Changed, Constant
from tests.small import Recorder, cnn, data, linear


def test_a_users_module_is_attacked_on_tensors():
    x, y = data(20)
    result = robustkit.attack(cnn(), x, y, PGD(eps="0.1", steps=5))

    assert result.x_adv.shape == x.shape
    assert 0 <= result.robust_accuracy < result.clean_accuracy <= 1


def test_pixels_from_0_to_255_are_attacked_in_their_own_range():
    x, y = data(20)
    model = Changed(linear(), before=lambda pixels: pixels / 255)
    result = robustkit.attack(Classifier(model, bounds=(0, 255)), 255 * x, y, PGD(eps="8/255", steps=5))

    assert (result.x_adv - 255 * x).abs().max() <= 8 * (1 + 1e-5)
    assert result.clean_accuracy == robustkit.attack(linear(), x, y, PGD(eps="8/255", steps=5)).clean_accuracy


def test_two_models_give_a_data_frame():
    run = evaluate([linear(), Constant(3)], dataset=data(20), attacks=["fgsm", "noise:queries=3"], eps="0.1")
    table = run.results.pivot_table(index="model", columns="attack", values="accuracy")

    assert isinstance(run.results, pd.DataFrame)
    assert list(table.index) == ["constant", "sequential"]
    assert (table["worst-case"] <= table["clean"]).all()


def test_evaluate_agrees_with_attack():
    x, y = data(20)
    one = robustkit.attack(cnn(), x, y, PGD(eps="0.1", steps=5))
    other = evaluate(cnn(), dataset=(x, y), attacks="pgd:steps=5", eps="0.1")

    assert other.results.accuracy.tolist()[:2] == pytest.approx([one.clean_accuracy, one.robust_accuracy])
    assert int(other.results.forwards[1]) == int(one.forwards[one.clean_correct].sum()) - int(one.clean_correct.sum())


def test_a_run_read_from_its_folder_equals_the_run_in_memory(tmp_path):
    run = evaluate(linear(), dataset=data(12), attacks=["fgsm", "tiny"], eps=["0.05", "0.1"], out=tmp_path)
    read = load_run(tmp_path)

    assert read.results.equals(run.results)
    assert read.samples.equals(run.samples)
    assert read.manifest == run.manifest
    assert read.class_names == run.class_names
    assert len(read.pictures) == len(run.pictures)


def test_the_manifest_holds_the_settings(tmp_path):
    manifest = evaluate(linear(), dataset=data(12), attacks="pgd:steps=3", eps="8/255", seed=5, out=tmp_path).manifest
    identity = manifest["identity"]

    assert identity["seed"] == 5
    assert identity["threats"] == [["Linf", "8/255"]]
    assert identity["attacks"][0]["steps"] == 3
    assert len(identity["models"][0]["sha256"]) == len(identity["dataset"]["sha256"]) == 64
    assert manifest["finished"]


def test_a_search_in_bf16_stays_in_the_ball():
    run = evaluate(cnn(), dataset=data(20), attacks=["fgsm"], eps="0.1", numerics=Numerics(fold=False, bf16=True))

    assert run.manifest["identity"]["models"][0]["bf16"] is True
    assert (run.samples.linf.dropna() <= 0.1).all()


def test_a_warning_about_a_model_is_printed_once_and_stored(tmp_path):
    model, first, second = nn.Sequential(linear(), nn.Softmax(1)), Recorder(), Recorder()
    evaluate(model, dataset=data(12), attacks="fgsm", eps="0.1", samples=6, out=tmp_path, watch=first)
    run = evaluate(model, dataset=data(12), attacks="fgsm", eps="0.1", out=tmp_path, watch=second)

    assert "probabilities" in " ".join(first.sentences)
    assert not second.sentences
    assert len(run.manifest["warnings"]) == 1


def test_a_module_whose_name_is_a_method_has_its_class_name():
    class Odd(nn.Sequential):
        def name(self) -> str:
            return "not the name of the model"

    assert set(evaluate(Odd(linear()), dataset=data(4), attacks="fgsm", eps="0.1").results.model) == {"odd"}


def test_attack_objects_are_run_as_their_names_are():
    settings = {"dataset": data(12), "norm": "L2", "eps": "0.3"}
    objects = evaluate(linear(), attacks=[PGD("0.3", "L2", steps=3, step_size=0.07), FGSM("0.3", "L2")], **settings)
    names = evaluate(linear(), attacks=["pgd:steps=3,step_size=0.07", "fgsm"], **settings)

    assert objects.samples.drop(columns="attack").equals(names.samples.drop(columns="attack"))


def test_attack_objects_bring_their_threat_model():
    run = evaluate(linear(), dataset=data(12), attacks=PGD("0.3", "L2", steps=3))

    assert set(run.samples.norm) == {"L2"}
    assert set(run.samples.eps_text) == {"0.3"}


@pytest.mark.parametrize("radii", ["0.2", ["0.2", "L2:0.5"]])
def test_an_attack_object_is_not_run_at_a_radius_that_is_not_its_own(radii):
    """It was, without a word: PGD(eps=0.1) beside eps=0.2 was evaluated at 0.2."""
    with pytest.raises(UserError, match=r"^PGD has a radius of its own, 0\.1, and eps= is 0\.2.*leave out eps=.*$"):
        evaluate(linear(), dataset=data(4), attacks=[PGD(0.1, steps=2)], eps=radii)


@pytest.mark.parametrize(("norm", "eps", "apart"), [("L2", "8.1", "8"), ("L1", "65", "64")])
def test_a_ball_that_holds_every_image_is_refused(norm, eps, apart):
    with pytest.raises(UserError, match=rf"^No two images of 64 values .* farther apart than {apart} in {norm}.*\.$"):
        evaluate(linear(), dataset=data(4), attacks="fgsm", norm=norm, eps=eps)
    evaluate(linear(), dataset=data(4), attacks="fgsm", norm=norm, eps=apart)


def test_a_radius_may_be_given_twice_in_other_words():
    run = evaluate(linear(), dataset=data(4), attacks=[PGD("8/255", steps=2)], eps=["8/255", "0.1"])

    assert set(run.results.eps_text) >= {"8/255", "0.1"}


class Mine(PGD):
    """An attack that no registry knows."""


def test_an_attack_object_of_the_users_own_class_is_evaluated_and_resumed(tmp_path):
    settings = {"dataset": data(12), "attacks": [Mine("0.2", steps=3)], "out": tmp_path}
    first, again = evaluate(linear(), **settings), evaluate(linear(), **settings)

    assert list(first.results["attack"]) == ["clean", "mine:steps=3", "worst-case"]
    assert first.results["broken"].iloc[1] > 0
    assert again.results.equals(first.results)


WRONG = {
    "no model": {"models": []},
    "no attack": {"attacks": []},
    "objects of two radii": {"attacks": [PGD("0.1"), PGD("0.2", steps=3)], "eps": ()},
    "a number for an attack": {"attacks": 5},
    "a hyper-parameter twice": {"attacks": "pgd:steps=3,steps=4"},
    "no samples": {"samples": 0},
    "half a sample": {"samples": 2.5},
    "no batch": {"batch_size": 0},
    "a batch in words": {"batch_size": "many"},
    "an unknown attack": {"attacks": "pgdd"},
    "an attack twice": {"attacks": ["fgsm", "FGSM"]},
    "an attack in two spellings": {"attacks": ["pgd:steps=3", "pgd:steps=3,restarts=1"]},
    "an unknown hyper-parameter": {"attacks": "pgd:stesp=3"},
    "a huge number of steps": {"attacks": "pgd:steps=99999999999999999999"},
    "an unknown norm": {"norm": "L3"},
    "an attack without that norm": {"attacks": "apgd-ce", "norm": "L0", "eps": "3"},
    "eps 8": {"eps": 8},
    "eps infinite": {"eps": float("inf")},
    "eps beyond all floats": {"eps": "1e400"},
    "eps of several norms": {"norm": ["Linf", "L2"], "eps": 0.1},
    "half a pixel": {"norm": "L0", "eps": "0.5", "attacks": "noise"},
    "images without labels": {"dataset": (data(4)[0],)},
    "a path for a model": {"models": Path("net.py")},
    "a class for a model": {"models": AlwaysTraining},
    "weights without number": {"weights": ["a.pt", "b.pt"]},
    "an unknown device": {"device": "banana"},
    "a device without values": {"device": "meta"},
    "labels as floats": {"dataset": (data(4)[0], data(4)[1].float())},
    "more labels than images": {"dataset": (data(4)[0], data(5)[1])},
    "negative labels": {"dataset": (data(4)[0], data(4)[1] - 10)},
    "no images": {"dataset": (data(4)[0][:0], data(4)[1][:0])},
    "an unknown data set": {"dataset": "digit"},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_done_is_refused_in_one_sentence(case, tmp_path):
    settings = {"models": linear(), "dataset": data(4), "attacks": "fgsm", "eps": "0.1", **WRONG[case]}
    with pytest.raises(UserError) as error:
        evaluate(settings.pop("models"), out=tmp_path / "run", **settings)

    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_label_that_is_no_class_of_the_model_is_named():
    x, y = data(4)
    y[2] = 10
    with pytest.raises(UserError, match=r"10.*0 to 9|10 classes"):
        evaluate(linear(), dataset=(x, y), attacks="fgsm", eps="0.1")


def nan_for_some(x):
    return torch.where(x[:, :, 3:4, 3:4] > 0.99, torch.nan, x)


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (Changed(linear(), lambda logits: logits * float("nan")), "NaN"),
        (Changed(linear(), before=nan_for_some), "NaN"),
        (Changed(linear(), lambda logits: logits - logits.mean(0)), "batch"),
        (Changed(linear(), lambda logits: logits.detach()), "autograd"),
        (Changed(linear(), lambda logits: logits.sum()), "logits"),
        # AutoAttack's checks do not detect it.
        (AlwaysTraining(cnn()), "BatchNorm"),
    ],
    ids=["NaN", "NaN for some images", "coupled", "no gradient", "scalar", "train mode"],
)
def test_a_model_that_cannot_be_evaluated_is_refused_in_one_sentence(model, word, tmp_path):
    with pytest.raises(UserError, match=word) as error:
        evaluate(model, dataset=data(150), attacks="fgsm", eps="0.1", out=tmp_path)

    assert "\n" not in str(error.value)
    assert load_run(tmp_path).manifest["finished"] is None


@pytest.mark.parametrize("attack", ["fgsm", "pgd:steps=3", "mifgsm:steps=3", "apgd:steps=3", "apgd-t:steps=3"])
def test_a_gradient_that_is_nan_is_not_robustness(attack):
    # The slope of a square root at zero is infinite, and zero times infinity is NaN.
    model = Changed(linear(), before=lambda x: x + 0 * torch.sqrt(0 * x))

    with pytest.raises(UserError, match="gradient is not finite"):
        evaluate(model, dataset=data(4), attacks=attack, eps="0.1")


def test_a_model_without_weights_is_named_in_table_report_and_results(tmp_path):
    torch.manual_seed(0)
    untrained, watch = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), Recorder()
    run = evaluate([untrained, linear()], dataset=data(30), attacks="fgsm", eps="0.05", out=tmp_path, watch=watch)
    (sentence,) = run.manifest["warnings"]

    assert sentence in watch.sentences
    assert "not significantly above chance (10.0 %)" in sentence
    assert load_run(tmp_path).manifest["warnings"] == [sentence]
    assert run.results.note[run.results.model == "sequential"].unique().tolist() == [
        "clean accuracy is not above chance"
    ]
    assert run.results.note[run.results.model == "sequential-2"].isna().all()


def test_a_model_that_is_right_on_few_images_is_not_said_to_guess():
    run = evaluate(linear(), dataset=data(5), attacks="fgsm", eps="0.05")

    assert run.manifest["warnings"] == []
    assert "note" not in run.results
