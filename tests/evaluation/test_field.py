"""Bugs that evaluators of others have or had, each named by where it was met (shared/field/evaluation.md)."""

import pytest
import torch
from robustkit.attacks import PGD

import robustkit
from robustkit import evaluate, load_run
from tests.small import Recorder, Sure, accuracy, broken, cnn, csv, data, linear


def test_autoattack_a_run_can_be_resumed_at_all(tmp_path):
    # fra31/auto-attack PR#98: the state on disk could not be read back, so the second run raised.
    settings = {"dataset": data(20), "attacks": ["fgsm", "tiny"], "eps": "0.1"}
    with pytest.raises(KeyboardInterrupt):
        evaluate(linear(), **settings, out=tmp_path / "run", watch=Recorder(30))
    resumed = evaluate(linear(), **settings, out=tmp_path / "run")

    assert csv(resumed, tmp_path / "a") == csv(evaluate(linear(), **settings), tmp_path / "b")


def test_robustbench_accuracy_is_a_number_also_after_a_resume(tmp_path):
    # RobustBench's path over saved state took the mean of a bool tensor, which raises.
    evaluate(linear(), dataset=data(20), attacks="fgsm", eps="0.1", out=tmp_path)

    assert 0 < accuracy(load_run(tmp_path), "worst-case") < 1
    assert 0 < robustkit.attack(linear(), *data(20), PGD("0.1", steps=3)).robust_accuracy < 1


def test_secml_an_ensemble_selects_adversarial_examples():
    # MinDistanceEnsemble began at the clean image, which nothing beats in distance.
    made = evaluate(linear(), dataset=data(20), attacks="tiny", eps="0.1")
    rows = made.samples[(made.samples.attack == "tiny") & (made.samples.verdict == "broken")]

    assert len(rows)
    assert (rows.linf > 0).all()
    assert (rows.adv_pred != rows.label).all()


def test_art_an_unbeatable_model_is_not_called_infinitely_fragile():
    # Empirical robustness was 0.0 when every attack failed: the worst value for the best model.
    made = evaluate(Sure(3), dataset=(data(6)[0], torch.full((6,), 3)), attacks=["fgsm", "tiny"], eps="0.1")
    attacked = made.results[made.results.role != "clean"]

    assert (attacked.success_rate == 0).all()
    assert (attacked.accuracy == 1).all()
    assert set(made.samples.verdict) == {"robust"}


def test_foolbox_735_an_accuracy_is_over_images_not_over_batches():
    # 3 images left for the last batch of 64 would weigh as much as the first 64.
    made = evaluate(linear(), dataset=data(67), attacks="fgsm", eps="0.1")

    assert accuracy(made, "fgsm") * 67 == pytest.approx(len(set(made.samples["sample"])) - 67 + (
        made.samples.verdict == "robust").sum())  # fmt: skip


def test_foolbox_674_successes_are_those_of_the_returned_images():
    x, y = data(30)
    result = robustkit.attack(cnn(), x, y, PGD("0.1", steps=5))
    with torch.no_grad():
        wrong = cnn()(result.x_adv).argmax(1) != y

    assert torch.equal(wrong & result.clean_correct, result.success)


def test_foolbox_638_passes_are_known_for_every_image():
    made = evaluate(linear(), dataset=data(20), attacks=["pgd:steps=6", "noise:queries=7"], eps="0.1")
    attacked = made.samples[made.samples.verdict != "clean-wrong"]

    assert (attacked.forwards >= 1).all()
    assert (attacked[attacked.attack == "noise:queries=7"].forwards <= 7).all()
    assert (attacked[(attacked.attack == "noise:queries=7")].backwards == 0).all()


def test_autoattack_85_each_attacks_own_verdicts_are_kept():
    made = evaluate(linear(), dataset=data(30), attacks=["noise:queries=3", "fgsm", "pgd:steps=6"], eps="0.1")
    own = [broken(made, name) for name in ("noise:queries=3", "fgsm", "pgd:steps=6")]

    assert len({frozenset(images) for images in own}) == 3
    assert len(set().union(*own)) == int(made.results[made.results.attack == "worst-case"].broken.iloc[0])


def test_art_2289_it_is_known_which_attack_broke_which_image():
    made = evaluate(linear(), dataset=data(30), attacks="tiny", eps="0.1")
    by = {name: broken(made, f"tiny/{name}") for name in ("noise", "fgsm", "pgd")}

    assert sum(map(len, by.values())) == len(set().union(*by.values()))
    assert set().union(*by.values()) == broken(made, "tiny")


def test_autoattack_74_what_is_reported_is_what_the_pictures_show():
    made = evaluate(cnn(), dataset=data(24), attacks="pgd:steps=4", eps="0.1")
    shown = torch.stack([torch.from_numpy(picture.x_adv.copy()) for picture in made.pictures])
    labels = torch.tensor([picture.label for picture in made.pictures])
    with torch.no_grad():
        right = (cnn()(shown).argmax(1) == labels).sum().item()

    assert right / 24 == accuracy(made, "pgd:steps=4")


def test_robustbench_55_clean_and_robust_accuracy_are_of_the_same_images():
    made = evaluate(linear(), dataset=data(40), attacks="fgsm", eps="0.1", samples=15)

    assert set(made.results.n) == {15}
    assert accuracy(made, "fgsm") <= accuracy(made, "clean")


def test_autoattack_54_a_radius_is_kept_as_it_was_written():
    made = evaluate(linear(), dataset=data(5), attacks="fgsm", eps="8/255")

    assert made.results.eps_text.tolist()[1:] == ["8/255", "8/255"]
    assert made.results.eps.tolist()[1:] == [8 / 255, 8 / 255]


def test_ioaf_an_attack_leaves_no_trace_in_the_next_evaluation():
    # Its check of unconstrained attacks set the shared attack's radius to infinity and left it there.
    settings = {"dataset": data(12), "attacks": ["fgsm", "tiny"]}
    evaluate(linear(), **settings, eps="1")
    after = evaluate(linear(), **settings, eps="0.1")

    assert (after.samples.linf.dropna() <= 0.1).all()


def test_autoattack_105_a_randomised_model_is_named_as_one():
    class Random(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x):
            return self.inner(x + 0.05 * torch.randn_like(x))

    made = evaluate(Random(), dataset=data(12), attacks="fgsm", eps="0.1")

    assert "randomized" in " ".join(made.manifest["warnings"])
