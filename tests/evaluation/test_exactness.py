"""The same inputs and seed give the same bits, whatever the batches, the order and the hour."""

from functools import cache

import numpy as np
import pytest
import torch

from robustkit import Classifier, evaluate
from robustkit.evidence.run import Run
from tests.small import cnn, csv, data, linear

ATTACKS = ("fgsm", "tiny", "pgd:steps=3,restarts=2", "apgd-t:steps=3,targets=2", "noise:queries=4")
EPS = ("0.05", "0.1")


def named(*kinds: str) -> list[Classifier]:
    return [Classifier({"linear": linear, "cnn": cnn}[kind](), name=kind) for kind in kinds]


def run(*kinds: str, count: int = 20, **more: object) -> Run:
    settings = {"attacks": ATTACKS, "eps": EPS, "dataset": data(count), **more}
    return evaluate(named(*kinds), **settings)


@cache
def usual() -> Run:
    return run("linear", "cnn")


def same_witnesses(one: Run, other: Run) -> bool:
    def keyed(run: Run) -> dict[tuple[object, ...], object]:
        return {(p.model, p.norm, p.eps_text, p.attack, p.sample): p for p in run.pictures}

    first, second = keyed(one), keyed(other)
    return first.keys() == second.keys() and all(
        np.array_equal(first[key].x_adv, second[key].x_adv) and first[key].adv_pred == second[key].adv_pred
        for key in first
    )


def aligned(frame, *columns):
    return frame.sort_values([*columns], kind="stable").reset_index(drop=True)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 200])
def test_the_batch_size_does_not_change_a_bit(batch_size, tmp_path):
    other = run("linear", "cnn", batch_size=batch_size)

    assert csv(other, tmp_path / "other") == csv(usual(), tmp_path / "usual")
    assert same_witnesses(other, usual())


def test_a_second_run_gives_the_same_bytes(tmp_path):
    torch.manual_seed(1234)
    np.random.seed(5)
    again = run("linear", "cnn")

    assert csv(again, tmp_path / "again") == csv(usual(), tmp_path / "usual")
    assert same_witnesses(again, usual())


def test_a_second_run_gives_equal_frames():
    again = run("linear", "cnn")

    assert again.results.equals(usual().results)
    assert again.samples.equals(usual().samples)


def test_the_order_of_models_does_not_change_a_number():
    turned = run("cnn", "linear")

    for name in ("results", "samples"):
        one, other = (aligned(getattr(each, name), "model") for each in (turned, usual()))
        assert one.equals(other)
    assert same_witnesses(turned, usual())


def test_a_model_alone_has_the_numbers_it_has_in_company():
    alone = run("cnn")
    mine = usual().samples[usual().samples.model == "cnn"].reset_index(drop=True)

    assert alone.samples.equals(mine)


def test_the_order_of_attacks_does_not_change_a_number():
    turned = run("linear", "cnn", attacks=ATTACKS[::-1])
    keys = ("model", "norm", "eps", "attack")

    assert aligned(turned.results, *keys).equals(aligned(usual().results, *keys))
    assert aligned(turned.samples, *keys, "sample").equals(aligned(usual().samples, *keys, "sample"))


def test_an_attack_alone_has_the_numbers_it_has_in_company():
    alone = run("linear", "cnn", attacks="noise:queries=4")
    mine = usual().samples[usual().samples.attack == "noise:queries=4"].reset_index(drop=True)

    assert alone.samples.equals(mine)


def test_the_order_of_radii_does_not_matter(tmp_path):
    turned = run("linear", "cnn", eps=EPS[::-1])

    assert csv(turned, tmp_path / "turned") == csv(usual(), tmp_path / "usual")


def test_fewer_samples_are_the_same_images_with_the_same_fate():
    few = run("cnn", samples=9)
    chosen = usual().samples["sample"].isin(set(few.samples["sample"])) & (usual().samples.model == "cnn")

    assert few.samples["sample"].nunique() == 9
    assert few.samples.equals(usual().samples[chosen].reset_index(drop=True))


def test_another_seed_changes_noise_and_nothing_about_clean_images():
    other = run("linear", "cnn", seed=1)

    assert not other.samples.equals(usual().samples)
    assert other.results[other.results.role == "clean"].equals(usual().results[usual().results.role == "clean"])


def test_the_evidence_on_disk_says_what_the_run_in_memory_says(tmp_path):
    kept = run("linear", "cnn", out=tmp_path / "run")

    assert kept.results.equals(usual().results)
    assert kept.samples.equals(usual().samples)
    assert same_witnesses(kept, usual())


@pytest.mark.parametrize(("norm", "eps"), [("L2", "0.4"), ("L1", "1.5"), ("L0", "3")])
def test_other_norms_do_not_feel_the_batch_size_either(norm, eps):
    attacks = ["noise:queries=4"] if norm == "L0" else ["fgsm", "apgd-ce:steps=4", "square:queries=8"]
    one, other = (run("cnn", attacks=attacks, norm=norm, eps=eps, batch_size=size) for size in (3, 64))

    assert one.samples.equals(other.samples)
    assert same_witnesses(one, other)


def test_the_callers_model_comes_back_as_it_was():
    model = cnn().train()
    before = [module.training for module in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}
    evaluate(model, dataset=data(6), attacks="fgsm", eps=0.1)

    assert [module.training for module in model.modules()] == before[0]
    assert all(torch.equal(value, before[1][key]) for key, value in model.state_dict().items())


def test_a_callers_classifier_keeps_its_name():
    one, other = named("linear")[0], named("linear")[0]
    made = evaluate([one, other], dataset=data(4), attacks="fgsm", eps=0.1)

    assert set(made.results.model) == {"linear", "linear-2"}
    assert (one.name, other.name) == ("linear", "linear")


def test_one_classifier_given_twice_is_two_models():
    one = named("linear")[0]
    made = evaluate([one, one], dataset=data(4), attacks="fgsm", eps=0.1)

    assert made.results.model.value_counts().to_dict() == {"linear": 3, "linear-2": 3}
