"""The default ensemble: near images get its budget, far ones leave, and masked gradients are told."""

import math
import re

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from robustkit import Classifier, evaluate, load_dataset, masked_defenses
from robustkit.engine.jobs import Job
from robustkit.engine.scheduler import run as run_attack
from robustkit.errors import UserError
from robustkit.primitives import ensembles, registry
from robustkit.primitives.measure import Measure
from robustkit.primitives.reach import reach
from tests.diagnosis.nets import base as trained
from tests.networks import Changed, Falsified
from tests.small import cnn, data, ensemble, evaluated, linear, shortened

EPS = {"Linf": "0.05", "L2": "0.6", "L1": "0.6"}


@pytest.fixture(scope="module")
def base():
    return trained()


@pytest.fixture(scope="module")
def first():
    """The name of an ensemble of the first member of the default alone, with its measures."""
    with ensemble("first", {norm: ensembles.stages("default", norm)[:1] for norm in EPS}) as name:
        yield name


def verdicts(run, ensemble="rk-14") -> pd.Series:
    return run.samples[run.samples.attack == ensemble].set_index("sample").verdict


def members(run) -> pd.DataFrame:
    rows = run.results[run.results.role == "member"]
    return rows.assign(member=rows.attack.str.partition("/")[2]).set_index("member")


def digits(count):
    return load_dataset("digits").batch(range(count))


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_on_a_linear_model_the_verdicts_are_those_of_the_closed_form(norm):
    model, (x, y) = linear(), data(30)
    ran = evaluated(model, None, dataset=(x, y), attacks="default", norm=norm, eps=EPS[norm])
    weights = model[-1].weight.detach()
    breakable = []
    for image, label in zip(x, y, strict=True):
        lead = model(image[None])[0, label] - model(image[None])[0]
        rises, _ = reach(registry.build("fgsm" if norm == "Linf" else "apgd", norm, EPS[norm]).ball, image, image,
                         (weights - weights[label]).reshape(-1, *image.shape))  # fmt: skip
        breakable.append(bool((rises > lead + 1e-5).any()))

    wrong = verdicts(ran) != "robust"
    assert 0.1 < wrong.mean() < 0.9
    assert wrong.tolist() == [bool(model(x[i : i + 1]).argmax() != y[i]) or breakable[i] for i in range(len(x))]


def test_on_a_linear_model_the_first_member_measures_what_is_true():
    model, (x, y) = linear(), data(40)
    right = (model(x).argmax(1) == y).nonzero().flatten().tolist()
    attack = registry.build("apgd-ce:steps=5", "Linf", "0.01")
    measure = Measure(classes=9, clean_below=math.inf, unseen=True, clean_gradient=True)
    with Classifier(model).session(x) as session:
        jobs = [Job(i, x[i], int(y[i])) for i in right]
        ended, again = (
            {each.sample: each.nearness for each in run_attack(session, attack, jobs, slots=slots, measure=measure)}
            for slots in (8, 3)
        )

    assert ended == again
    found = {sample: each for sample, each in ended.items() if each is not None}
    assert len(found) > 10
    weights = model[-1].weight.detach()
    for sample, each in found.items():
        lead = (model(x[[sample]])[0, y[sample]] - model(x[[sample]])[0]).detach().double()
        slopes = (weights - weights[y[sample]]).reshape(-1, *x[sample].shape)
        rises, _ = reach(attack.ball, x[sample], x[sample], slopes)
        assert each.at_clean == pytest.approx((lead / rises)[rises > 0].min().item(), rel=1e-3)
        assert each.obtained == pytest.approx(each.predicted, rel=1e-3, abs=1e-5)
        assert each.unseen == each.clean_gradient.unseen == 0
        assert each.clean_gradient.step == pytest.approx(1, rel=1e-2)
        assert each.trusted
        assert list(each.ratios) == sorted(each.ratios)


def threshold(x):
    return x * (x > 0.05)


def fast_wave(x):
    return x + 0.02 * torch.sin(1000 * x)


def test_a_gradient_next_to_zero_is_not_believed():
    """A hard label beside a tenth of the probabilities left 10 of 98 images; now none is left."""

    class Labelled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = trained()

        def forward(self, x: Tensor) -> Tensor:
            logits = self.net(x)
            return (logits == logits.amax(1, keepdim=True)) + 0.1 * (8 * logits).softmax(1)

    given = {"dataset": load_dataset("digits").batch(range(30)), "eps": 0.15}
    before, now = (evaluated(Labelled(), None, attacks=name, **given) for name in ("rk-11", "default"))

    assert before.results.correct.iloc[-1] == 2
    assert [check.name for check in before.checks if check.alarming] == ["gradients_mislead"]
    assert now.results.correct.iloc[-1] == 0


def test_pixels_that_hardly_matter_are_no_masked_gradient(base):
    """Under a mask on them the gradient is small and right: 56 of 60 images got 9,000 passes each, and a warning."""
    weight = torch.ones(1, 1, 8, 8)
    weight[..., :2, :2] = 1e-4
    given = {"dataset": load_dataset("digits").batch(range(8)), "eps": 0.3, "mask": "patch:0,0,2,2"}
    before, now = (evaluated(Changed(base, before=lambda x: x * weight), None, attacks=name, **given)
                   for name in ("rk-11", "rk-12"))  # fmt: skip

    assert not [check for check in now.checks if check.alarming]
    assert now.samples.forwards.sum() == before.samples.forwards.sum()


def test_a_member_that_is_another_attack_in_another_norm_is_described_as_that():
    ran = evaluated(cnn(), None, dataset=digits(2), attacks="default", eps="0.01")
    (third,) = (entry for entry in ran.manifest["identity"]["attacks"] if entry["name"] == "rk-14/third")

    assert (third["attack"], third["rivals"]) == ("RacedAPGD", 4)
    assert "L2" not in third
    assert (third["L1"]["attack"], third["L1"]["start_radius"]) == ("SoftAPGD", 6)


def test_older_ensembles_are_described_as_before():
    """Runs of before `vanishing` could not be extended: a field that is switched off counted as another measure."""
    first = ensembles.stages("rk-11", "Linf")[0].measures
    assert "vanishing" not in first.described()
    assert first._replace(vanishing=True).described()["vanishing"] is True


def test_values_that_a_threshold_hides_from_the_gradient_are_attacked_in_full_and_said():
    """`rk-7` left 57 of 100 images of such a network where AutoAttack left 37, without a word."""
    model, dataset = Changed(linear(), before=threshold), data(16)
    today, before = (evaluated(model, None, dataset=dataset, attacks=name, eps="0.1") for name in ("default", "rk-7"))
    accuracy = [run.results.accuracy.iloc[-1] for run in (today, before)]

    assert accuracy[0] < accuracy[1]
    assert any("at which the gradient is exactly zero move the logits" in text for text in today.manifest["warnings"])
    # `rk-7` measures nothing of the kind; a look at the forward tells of the comparison whatever attacks.
    assert all("straight through gt" in text for text in before.manifest["warnings"])


@pytest.mark.usefixtures("_no_straight_through")
@pytest.mark.parametrize(
    ("front", "norm", "eps", "said"),
    [
        (threshold, "L2", "0.5", "at which the gradient is exactly zero move the logits"),
        pytest.param(
            threshold, "L1", "2", "at which the gradient is exactly zero move the logits", marks=pytest.mark.slow
        ),
        (fast_wave, "Linf", "0.1", "a short step does not change the logits"),
        pytest.param(fast_wave, "L2", "0.5", "a short step does not change the logits", marks=pytest.mark.slow),
        (fast_wave, "L1", "2", "a short step does not change the logits"),
    ],
)
def test_what_a_front_hides_from_gradients_is_attacked_in_full_and_said(front, norm, eps, said, brief):
    ran = evaluated(Changed(linear(), before=front), None, dataset=data(40), attacks=brief, norm=norm, eps=eps)
    (text,) = (text for text in ran.manifest["warnings"] if said in text)
    misled, rows = int(re.search(r"on (\d+) of", text)[1]), members(ran)

    assert rows.attacked["square"] + rows.broken["second":"restarts"].sum() >= misled


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "eps"), [("Linf", "0.1"), ("L2", "0.5"), ("L1", "2")])
@pytest.mark.parametrize("front", [threshold, fast_wave])
def test_a_front_leaves_no_more_images_than_before_it_was_looked_for(front, norm, eps):
    today, before = (
        evaluated(Changed(linear(), before=front), None, dataset=data(40), attacks=name, norm=norm, eps=eps)
        for name in ("default", "rk-7")
    )

    assert today.results.accuracy.iloc[-1] <= before.results.accuracy.iloc[-1]


WRONG = {"a tenth reversed": (-1.0, 10), "half nearly gone": (1e-4, 2)}


@pytest.mark.parametrize(
    ("wrong", "norm", "eps"),
    [
        ("a tenth reversed", "Linf", "0.05"),
        ("a tenth reversed", "L1", "1"),
        ("half nearly gone", "L2", "0.3"),
        pytest.param("a tenth reversed", "L2", "0.3", marks=pytest.mark.slow),
        pytest.param("half nearly gone", "Linf", "0.05", marks=pytest.mark.slow),
        pytest.param("half nearly gone", "L1", "1", marks=pytest.mark.slow),
    ],
)
def test_a_backward_pass_that_is_wrong_at_some_values_is_said(wrong, norm, eps, first):
    model = Changed(linear(), before=lambda x: Falsified.apply(x, *WRONG[wrong]))
    ran = evaluated(model, None, dataset=data(40), attacks=first, norm=norm, eps=eps)

    assert any("step in a random direction does not change the logits" in text for text in ran.manifest["warnings"])


def in_256_levels(x):
    return x + ((x * 255).round() / 255 - x).detach()


@pytest.mark.usefixtures("_no_straight_through")
@pytest.mark.parametrize(("norm", "eps"), [("Linf", "8/255"), ("L2", "0.3"), ("L1", "1")])
def test_a_wrong_backward_pass_is_said_of_images_that_are_rounded_too(norm, eps, first):
    # Steps that rounding swallows, or turns into jumps, say nothing: so it must not be as small as the radius allows.
    model = Changed(linear(), before=lambda x: Falsified.apply(in_256_levels(x), -1.0, 4))
    honest = Changed(linear(), before=in_256_levels)
    said, silent = (
        evaluated(each, None, dataset=data(40), attacks=first, norm=norm, eps=eps).manifest["warnings"]
        for each in (model, honest)
    )

    assert any("step in a random direction does not change the logits" in text for text in said)
    assert not any("random direction" in text for text in silent)


@pytest.mark.usefixtures("_no_straight_through")
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_logits_in_bf16_do_not_look_like_a_wrong_gradient(norm, first):
    # Rounding them is a step with a gradient, too; a small random step is lost in it, or crosses one such step.
    model = Changed(linear(), lambda logits: logits + (logits.bfloat16().float() - logits).detach())
    eps = {"Linf": "0.01", "L2": "0.05", "L1": "0.3"}[norm]
    ran = evaluated(model, None, dataset=data(60), attacks=first, norm=norm, eps=eps)

    assert not any("random direction" in text for text in ran.manifest["warnings"])


def test_far_images_leave_after_the_first_member():
    rows = members(evaluated(linear(), None, dataset=data(60), attacks="default", norm="Linf", eps="0.005"))

    assert rows.attacked["first"] > 40
    assert rows.attacked["square"] == 0
    assert rows.forwards["second"] <= 40 * rows.attacked["second"]


def test_three_classes_are_aimed_at_where_gradients_show_fewer_as_near(monkeypatch):
    spent = {}
    for name in ("rk-3", "rk-4"):
        first, *between = ensembles.stages(name, "L2")[:4]
        between = (each if each.label == "targeted" else shortened(each) for each in between)
        monkeypatch.setitem(ensembles.ENSEMBLES, "begin", (first, *between))
        rows = evaluated(cnn(), None, dataset=data(30), attacks="begin", norm="L2", eps="0.5").samples
        rows = rows[(rows.attack == "begin/targeted") & (rows.verdict == "robust") & (rows.backwards > 0)]
        spent[name] = set(rows.backwards)

    assert min(spent["rk-3"]) < 3 * 30
    assert min(spent["rk-4"]) == 3 * 30


def test_crattack_two_classes_are_enough_for_every_member():
    # It aims at the three likeliest wrong classes, whether there are so many or not.
    x, y = data(60)
    two = y < 2
    model = Changed(cnn(), lambda logits: logits[:, :2])
    rows = members(evaluated(model, None, dataset=(x[two], y[two]), attacks="default", eps="0.17"))

    assert rows.broken["targeted"] > 0


def test_batch_sizes_change_no_bit(brief):
    alone, some, together = (
        evaluated(cnn(), None, dataset=data(6), attacks=brief, norm="L2", eps="0.5", batch_size=size)
        for size in (1, 4, 64)
    )

    assert set(verdicts(together, brief)) >= {"robust", "broken"}
    pd.testing.assert_frame_equal(alone.samples, together.samples)
    pd.testing.assert_frame_equal(some.samples, together.samples)


def test_a_run_that_grows_has_the_rows_of_one_that_did_not(tmp_path, brief):
    dataset = data(16)
    for samples in (6, 16):
        grown = evaluated(cnn(), tmp_path, dataset=dataset, attacks=brief, eps=["0.1"], samples=samples)
    whole = evaluated(cnn(), None, dataset=dataset, attacks=brief, eps=["0.1"], samples=16)

    pd.testing.assert_frame_equal(grown.samples, whole.samples)


def test_at_radius_zero_every_image_survives_the_first_steps_and_no_gradient_is_suspected():
    """Nothing can be predicted there: that counted as a sign of masked gradients, and every member ran in full."""
    ran = evaluated(cnn(), None, dataset=digits(20), attacks="default", eps=["0", "0.05"])
    at_zero = ran.results[ran.results.eps_text == "0"].set_index("attack")

    assert not ran.manifest["warnings"]
    assert at_zero.accuracy["rk-14"] == ran.results.accuracy.iloc[0]
    assert at_zero.forwards["rk-14"] == at_zero.forwards["rk-14/first"]


PREDICTS_NOTHING = "predicts nothing, or less than a quarter"


@pytest.mark.usefixtures("_no_straight_through")
@pytest.mark.parametrize(
    ("name", "most", "said", "note"),
    [
        pytest.param("quantised", 0.5, PREDICTS_NOTHING, "gradients look masked", marks=pytest.mark.slow),
        pytest.param("kwta", 0.05, "", "", marks=pytest.mark.slow),  # broken
        ("temperature", 0.5, "", ""),
        pytest.param("zeroed", 0.5, PREDICTS_NOTHING, "gradients look masked", marks=pytest.mark.slow),
        pytest.param("sigmoid", 0.6, "", "", marks=pytest.mark.slow),
        pytest.param("softmax", 0.5, "seems to return probabilities", "outputs are not logits", marks=pytest.mark.slow),
    ],
)
def test_no_masked_defense_looks_robust(name, most, said, note, base):
    ran = evaluated(masked_defenses.build(name, base), None, dataset=digits(12), attacks="default", eps="0.1")
    accuracy = ran.results.set_index("attack").accuracy["rk-14"]

    assert accuracy <= most
    assert said in " ".join(ran.manifest["warnings"])
    if note:
        assert ran.results.note[ran.results.eps_text == "0.1"].str.contains(note).all()


def test_gradients_that_predict_nothing_are_said(base, brief):
    ran = evaluated(masked_defenses.build("zeroed", base), None, dataset=digits(12), attacks=brief, eps="0.1")

    assert PREDICTS_NOTHING in " ".join(ran.manifest["warnings"])
    assert ran.results.note[ran.results.eps_text == "0.1"].str.contains("gradients look masked").all()


def test_honest_models_are_not_suspected(base, brief):
    radii = ["Linf:0.03", "Linf:0.1", "L2:0.5", "L1:2"]
    models = [base, linear(), cnn()]
    ran = evaluated(models, None, dataset=digits(15), attacks=brief, eps=radii, names=["a", "b", "c"])

    assert not ran.manifest["warnings"]


def test_a_randomized_model_is_attacked_without_a_measure(base):
    noisy = masked_defenses.build("noisy", base)
    rows = members(evaluated(noisy, None, dataset=digits(3), attacks="default", eps="0.1", checks="none"))

    assert rows.attacked[["targeted", "restarts", "square"]].sum() == 0
    assert rows.attacked["second"] > 0


@pytest.mark.parametrize("name", ["standard", "Thorough"])
def test_names_of_earlier_versions_say_what_to_take(name):
    with pytest.raises(UserError, match=r"take default, .* or autoattack"):
        evaluate(torch.nn.Flatten(), dataset=data(4), attacks=name, eps=["0.1"])
