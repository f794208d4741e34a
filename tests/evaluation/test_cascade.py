"""Several radii, ensembles whose members attack what is left, and the worst case over all attacks."""

from functools import cache
from itertools import pairwise

import pytest

from robustkit import Classifier, UserError, evaluate
from robustkit.evidence.run import Run
from tests.small import TINY, accuracy, broken, cnn, data, linear

EPS = ("0.02", "0.05", "0.1", "0.15")
NAMED = ("fgsm", "pgd:steps=4", "noise:queries=5")


@cache
def reference() -> Run:
    """Both models; the first test that needs it evaluates them, when the fixture has registered "tiny"."""
    models = [Classifier(linear(), name="linear"), Classifier(cnn(), name="cnn")]
    return evaluate(models, dataset=data(40), attacks=["tiny", *NAMED], eps=EPS)


def rows(attack: str, eps_text: str, model: str = "cnn"):
    table = reference().results
    (row,) = table[(table.attack == attack) & (table.eps_text == eps_text) & (table.model == model)].itertuples()
    return row


def images(attack: str, eps_text: str, model: str = "cnn", verdict: str | None = None) -> set[int]:
    table = reference().samples
    chosen = (table.attack == attack) & (table.eps_text == eps_text) & (table.model == model)
    return set(table["sample"][chosen & ((table.verdict == verdict) if verdict else table.verdict.ne("clean-wrong"))])


def correct(model: str = "cnn") -> set[int]:
    return images("fgsm", EPS[0], model)


@pytest.mark.parametrize("attack", [*NAMED, "tiny", "worst-case"])
@pytest.mark.parametrize("model", ["linear", "cnn"])
def test_accuracy_falls_with_the_radius(attack, model):
    table = reference().results
    column = table[(table.attack == attack) & (table.model == model)].sort_values("eps").accuracy

    assert len(column) == len(EPS)
    assert column.is_monotonic_decreasing
    assert column.iloc[0] > column.iloc[-1]


@pytest.mark.parametrize("attack", [*NAMED, "tiny"])
def test_an_image_broken_at_one_radius_is_broken_at_every_larger_one(attack):
    sets = [images(attack, eps, verdict="broken") for eps in EPS]

    assert all(small <= large for small, large in pairwise(sets))


@pytest.mark.parametrize("attack", NAMED)
def test_an_image_broken_at_one_radius_costs_no_passes_at_a_larger_one(attack):
    before = images(attack, "0.1", verdict="broken")
    table = reference().samples
    after = table[(table.attack == attack) & (table.eps_text == "0.15") & (table.model == "cnn")]
    after = after[after["sample"].isin(before)]

    assert len(after) == len(before) > 0
    assert (after.forwards == 0).all()
    assert (after.backwards == 0).all()
    assert (after.linf <= 0.1).all()


def test_an_image_broken_by_an_ensemble_costs_its_members_no_passes_at_a_larger_radius():
    before = images("tiny", "0.05", verdict="broken")
    table = reference().samples
    after = table[table.attack.str.startswith("tiny") & (table.eps_text == "0.1") & (table.model == "cnn")]

    assert before
    assert (after[after["sample"].isin(before)].forwards == 0).all()


def test_a_list_of_radii_breaks_at_least_the_images_that_each_radius_breaks_alone():
    alone = evaluate(Classifier(cnn(), name="cnn"), dataset=data(40), attacks="noise:queries=5", eps="0.15")

    assert broken(alone, "noise:queries=5") <= images("noise:queries=5", "0.15", verdict="broken")


@pytest.mark.parametrize("attack", NAMED)
@pytest.mark.parametrize("eps", EPS)
def test_a_named_attack_is_run_on_every_correct_image(attack, eps):
    assert images(attack, eps) == correct()
    assert rows(attack, eps).attacked == len(correct())


@pytest.mark.parametrize("eps", EPS)
def test_later_members_see_only_survivors(eps):
    first, second, third = (f"tiny/{name}" for name in ("noise", "fgsm", "pgd"))
    smaller = {"0.05": "0.02", "0.1": "0.05", "0.15": "0.1"}.get(eps)
    # What a member itself broke at a smaller radius is carried over to it.
    carried = {name: images(name, smaller, verdict="broken") if smaller else set() for name in (first, second, third)}
    before = set().union(*carried.values())

    left = correct() - before
    for name in (first, second, third):
        assert images(name, eps) == left | carried[name]
        left -= images(name, eps, verdict="broken")


@pytest.mark.parametrize("eps", EPS)
def test_an_ensemble_is_the_sum_of_its_members(eps):
    members = [images(f"tiny/{name}", eps, verdict="broken") for name in ("noise", "fgsm", "pgd")]

    assert images("tiny", eps, verdict="broken") == set().union(*members)
    assert sum(map(len, members)) == rows("tiny", eps).broken
    passes = [rows(f"tiny/{name}", eps) for name in ("noise", "fgsm", "pgd")]
    assert rows("tiny", eps).forwards == sum(row.forwards for row in passes)
    assert rows("tiny", eps).backwards == sum(row.backwards for row in passes)


def test_every_member_of_the_tiny_ensemble_breaks_something():
    # The other tests here depend on this.
    run = evaluate(linear(), dataset=data(40), attacks="tiny", eps="0.1")
    members = run.results[run.results.role == "member"]

    assert len(members) == len(TINY)
    assert (members.broken > 0).all()


def test_an_ensemble_breaks_the_images_that_its_members_break_as_named_attacks():
    alone = evaluate(Classifier(cnn(), name="cnn"), dataset=data(40), attacks=list(TINY), eps="0.1")
    together = evaluate(Classifier(cnn(), name="cnn"), dataset=data(40), attacks="tiny", eps="0.1")

    assert broken(together, "tiny") == set().union(*(broken(alone, name) for name in TINY))


@pytest.mark.parametrize("model", ["linear", "cnn"])
@pytest.mark.parametrize("eps", EPS)
def test_the_worst_case_is_the_mean_of_the_minimum_over_attacks(eps, model):
    robust = correct(model).intersection(*(images(name, eps, model, "robust") for name in (*NAMED, "tiny")))
    row = rows("worst-case", eps, model)

    assert row.correct == len(robust)
    assert row.accuracy == len(robust) / 40
    assert row.broken == len(correct(model) - robust)
    assert all(row.accuracy <= rows(name, eps, model).accuracy for name in (*NAMED, "tiny"))


def test_one_more_attack_never_raises_the_worst_case():
    values = [
        accuracy(evaluate(cnn(), dataset=data(40), attacks=list(NAMED[:count]), eps="0.1"), "worst-case")
        for count in (1, 2, 3)
    ]

    assert values == sorted(values, reverse=True)


def test_an_attack_alone_has_the_rows_it_has_beside_other_attacks():
    one = evaluate(Classifier(cnn(), name="cnn"), dataset=data(40), attacks="fgsm", eps=EPS)
    mine = reference().samples[(reference().samples.attack == "fgsm") & (reference().samples.model == "cnn")]

    # The other run counts the queries of its noise in a column of their own.
    assert one.samples.equals(mine[one.samples.columns].reset_index(drop=True))


def test_norms_do_not_mix_their_radii():
    run = evaluate(cnn(), dataset=data(20), attacks="fgsm", norm=["L2", "Linf"], eps=["Linf:0.1", "L2:0.2", "L2:0.4"])
    pairs = list(dict.fromkeys(zip(run.samples.norm, run.samples.eps_text, strict=True)))

    assert pairs == [("L2", "0.2"), ("L2", "0.4"), ("Linf", "0.1")]
    assert (run.samples[run.samples.norm == "Linf"].forwards.dropna() > 0).all()


def test_the_same_radius_written_twice_is_one():
    run = evaluate(cnn(), dataset=data(5), attacks="fgsm", eps=["0.1", "1/10", "0.10"])

    assert run.results.eps_text.tolist() == ["0", "0.1", "0.1"]


@pytest.mark.parametrize(
    ("norm", "eps"), [("Linf", ["0.1", "L2:0.5"]), ("L2", ["L2:1", "Linf:0.1"]), ("L2", ["Linf:0.1", "0.1"])]
)
def test_a_radius_of_a_norm_that_is_not_evaluated_is_refused(norm, eps):
    with pytest.raises(UserError, match="norm"):
        evaluate(cnn(), dataset=data(5), attacks="fgsm", norm=norm, eps=eps)


def test_a_radius_of_zero_breaks_nothing_and_does_not_change_the_next_one():
    run = evaluate(cnn(), dataset=data(20), attacks=["fgsm", "tiny"], eps=["0", "0.1"])

    assert accuracy(run, "worst-case", "0") == accuracy(run, "clean")
    assert accuracy(run, "worst-case", "0.1") < accuracy(run, "clean")
