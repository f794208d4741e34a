"""Regression tests of bugs in other evaluation tools; each test is named after the tool and its issue."""

import sys

import pytest
import torch
from robustkit.attacks import PGD

import robustkit
from robustkit import evaluate, load_run
from tests.networks import Changed, Constant, Noisy, Recording
from tests.small import Recorder, accuracy, broken, cnn, csv, data, evaluated, linear


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
    run = evaluate(linear(), dataset=data(20), attacks="tiny", eps="0.1")
    rows = run.samples[(run.samples.attack == "tiny") & (run.samples.verdict == "broken")]

    assert len(rows)
    assert (rows.linf > 0).all()
    assert (rows.adv_pred != rows.label).all()


def test_art_an_unbeatable_model_is_not_called_infinitely_fragile():
    # Empirical robustness was 0.0 when every attack failed: the worst value for the best model.
    run = evaluate(Constant(3), dataset=(data(6)[0], torch.full((6,), 3)), attacks=["fgsm", "tiny"], eps="0.1")
    attacked = run.results[run.results.role != "clean"]

    assert (attacked.success_rate == 0).all()
    assert (attacked.accuracy == 1).all()
    assert set(run.samples.verdict) == {"robust"}


def test_foolbox_735_an_accuracy_is_over_images_not_over_batches():
    # The mean over batches would give the 3 images of the last batch the weight of the 64 before them.
    run = evaluate(linear(), dataset=data(67), attacks="fgsm", eps="0.1", batch_size=64)

    assert accuracy(run, "fgsm") == (run.samples.verdict == "robust").sum() / 67


def test_foolbox_674_successes_are_those_of_the_returned_images():
    x, y = data(30)
    result = robustkit.attack(cnn(), x, y, PGD("0.1", steps=5))
    with torch.no_grad():
        wrong = cnn()(result.x_adv).argmax(1) != y

    assert torch.equal(wrong & result.clean_correct, result.success)


def test_foolbox_638_passes_are_counted_for_every_image():
    run = evaluate(linear(), dataset=data(20), attacks=["pgd:steps=6", "noise:queries=7"], eps="0.1")
    attacked = run.samples[run.samples.verdict != "clean-wrong"]

    assert (attacked.forwards >= 1).all()
    assert (attacked[attacked.attack == "noise:queries=7"].forwards <= 7).all()
    assert (attacked[(attacked.attack == "noise:queries=7")].backwards == 0).all()


def test_autoattack_85_each_attacks_own_verdicts_are_kept():
    run = evaluate(linear(), dataset=data(30), attacks=["noise:queries=3", "fgsm", "pgd:steps=6"], eps="0.1")
    own = [broken(run, name) for name in ("noise:queries=3", "fgsm", "pgd:steps=6")]

    assert len({frozenset(images) for images in own}) == 3
    assert len(set().union(*own)) == int(run.results[run.results.attack == "worst-case"].broken.iloc[0])


def test_art_2289_the_evidence_says_which_attack_broke_which_image():
    run = evaluate(linear(), dataset=data(30), attacks="tiny", eps="0.1")
    members = [broken(run, f"tiny/{name}") for name in ("noise", "fgsm", "pgd")]

    assert sum(map(len, members)) == len(set().union(*members))
    assert set().union(*members) == broken(run, "tiny")


def test_autoattack_74_what_is_reported_is_what_the_pictures_show():
    run = evaluate(cnn(), dataset=data(24), attacks="pgd:steps=4", eps="0.1")
    shown = torch.stack([torch.from_numpy(picture.x_adv.copy()) for picture in run.pictures])
    labels = torch.tensor([picture.label for picture in run.pictures])
    with torch.no_grad():
        correct = (cnn()(shown).argmax(1) == labels).sum().item()

    assert correct / 24 == accuracy(run, "pgd:steps=4")


def test_robustbench_55_clean_and_robust_accuracy_are_of_the_same_images():
    run = evaluate(linear(), dataset=data(40), attacks="fgsm", eps="0.1", samples=15)

    assert set(run.results.n) == {15}
    assert accuracy(run, "fgsm") <= accuracy(run, "clean")


def test_autoattack_a_clean_image_is_judged_once_however_many_attacks_follow():
    # Each of its attacks begins with another forward of the clean images, FAB-T and APGD-T with one for each target.
    x, y = data(20)
    model = Recording(linear())

    def judged(attacks: list[str]) -> int:
        model.inputs.clear()
        evaluated(model, None, dataset=(x, y), attacks=attacks, eps="0.1", checks="none")
        return sum((seen.flatten(1).unsqueeze(1) == x.flatten(1)).all(2).sum().item() for seen in model.inputs)

    judged(["noise:queries=2"])  # compares batch sizes, once for a network

    assert judged(["noise:queries=2"]) == judged(["noise:queries=2", "pgd:steps=2", "apgd-t:steps=2,targets=3"]) > 0


def test_foolbox_what_one_radius_breaks_is_not_attacked_again_at_the_larger_ones():
    # foolbox attacks every image at each radius, from scratch. The tables would not show it.
    watch = Recorder()
    run = evaluated(linear(), None, dataset=data(20), attacks="pgd:steps=2", eps=["0.9", "0.95", "1"], watch=watch)
    to_attack = [total - done for text, total, done in watch.stages if "pgd" in text]

    assert accuracy(run, "pgd:steps=2", "0.9") == 0
    assert to_attack[0] > 0
    assert to_attack[1:] == [0, 0]


def test_autoattack_the_callers_debugger_goes_on_watching():
    # Its check for randomness takes the place of the caller's trace function, which debuggers and coverage need.
    watched, before = [], sys.gettrace()
    sys.settrace(tracer := lambda *_: None)
    try:
        evaluated(Changed(linear(), lambda logits: watched.append(sys.gettrace()) or logits), None,
                  dataset=data(4), attacks="fgsm", eps="0.1")  # fmt: skip
    finally:
        sys.settrace(before)

    assert set(watched) == {tracer}


def test_autoattack_54_a_radius_is_reported_as_it_was_written():
    run = evaluate(linear(), dataset=data(5), attacks="fgsm", eps="8/255")

    assert run.results.eps_text.tolist()[1:] == ["8/255", "8/255"]
    assert run.results.eps.tolist()[1:] == [8 / 255, 8 / 255]


def test_ioaf_an_evaluation_does_not_change_the_radius_of_the_next_one():
    # Its check of unconstrained attacks set the shared attack's radius to infinity and left it there.
    settings = {"dataset": data(12), "attacks": ["fgsm", "tiny"]}
    evaluate(linear(), **settings, eps="1")
    after = evaluate(linear(), **settings, eps="0.1")

    assert (after.samples.linf.dropna() <= 0.1).all()


def test_autoattack_105_a_randomized_model_is_reported_as_one():
    run = evaluate(Noisy(linear(), spread=0.05), dataset=data(12), attacks="fgsm", eps="0.1")

    assert "randomized" in " ".join(run.manifest["warnings"])
