from collections.abc import Callable
from dataclasses import replace

import pytest
from robustkit.reports.evaluation.answer import answer
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.headline_threat import headline_threat
from robustkit.reports.evaluation.ranking import ranking
from robustkit.reports.shared.words import DASH

from robustkit.checks import Check
from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows
from tests.comparison.test_compare import Remembering, run_of
from tests.small import data, evaluated

LINF = (("Linf", 0.1, "0.1"),)
RADII = (("Linf", 1 / 255, "1/255"), ("Linf", 8 / 255, "8/255"), ("Linf", 16 / 255, "16/255"))


@pytest.mark.parametrize(
    ("dataset", "threats", "chosen", "words"),
    [
        ("cifar10", RADII, "Linf 8/255", "is the usual radius for cifar10"),
        ("CIFAR-10.npz", RADII, "Linf 8/255", "is the usual radius"),
        ("cifar10", RADII[:1], "Linf 1/255", "only radius tried; the usual one for cifar10 is Linf 8/255"),
        ("cifar10", (("L2", 0.25, "0.25"), ("L2", 128 / 255, "128/255")), "L2 128/255", "usual"),
        ("my photos", RADII, "Linf 16/255", "largest radius tried; none is usual for my photos"),
        ("digits", RADII, "Linf 16/255", "largest radius tried; the default one for digits is Linf 0.1"),
        ("digits", LINF, "Linf 0.1", "Linf 0.1 is the default radius for digits."),
    ],
)
def test_the_page_leads_with_the_usual_radius_else_with_the_largest(
    dataset: str, threats: object, chosen: str, words: str, make_run: Callable[..., Run]
) -> None:
    leading = headline_threat(boards([make_run(n=10, dataset=dataset, threats=threats)])[0])

    assert leading is not None
    assert str(leading.threat) == chosen
    assert words in leading.rule


def test_the_best_model_is_named_with_its_lead_on_the_same_images(make_run: Callable[..., Run]) -> None:
    run = make_run(n=300, models=("weak", "strong"), threats=LINF)
    (strong, weak) = (run.results[(run.results["model"] == name) & (run.results["role"] == "worst-case")].iloc[0]
                      for name in ("strong", "weak"))  # fmt: skip

    sentence = answer(boards([run])[0]).sentence.replace("\xa0", " ")

    lead = 100 * (strong["accuracy"] - weak["accuracy"])
    assert sentence.startswith(
        f"strong is the most robust: {100 * strong['accuracy']:.1f} % at Linf 0.1, {lead:.1f} points ("
    )
    assert sentence.endswith("above weak.")


def test_an_accuracy_under_attack_at_chance_is_named(make_run: Callable[..., Run]) -> None:
    run = make_run(n=100, models=("a",), threats=LINF)
    worst = run.results["role"] == "worst-case"
    (comment,) = answer(
        boards([replace(run, results=run.results.assign(correct=run.results["correct"].mask(worst, 4)))])[0]
    ).comments

    assert comment == "At Linf 0.1 the accuracy of a under attack (4.0 %) is not above chance (10.0 %)."


def test_models_with_the_same_verdicts_cannot_be_told_apart(make_run: Callable[..., Run]) -> None:
    run = make_run(n=40, models=("a",), threats=LINF)
    samples = SampleRows.of_frame(run.samples.assign(model="b"))
    twin = replace(run, results=run.results.assign(model="b"), sample_rows=samples, pictures=[])

    board = boards([run, twin])[0]

    assert "do not differ significantly" in answer(board).sentence
    assert [ranking(board, board.threats[0]).place(model) for model in ("a", "b")] == [f"1{DASH}2"] * 2


def test_a_model_was_the_most_robust_although_the_third_may_be_as_good() -> None:
    # The second is wrong wherever the first is, and on ten images more; the third errs on other images.
    right = {"first": range(30), "second": range(20), "third": [*range(10), *range(51, 60)]}
    names = list(right)
    runs = [run_of(Remembering(right[name]), names=[name]) for name in names]

    sentence = answer(boards(runs)[0]).sentence.replace("\xa0", " ")

    assert sentence.startswith("first (50.0 %) and third (31.7 %) do not differ significantly at Linf 0.02")


def test_the_most_accurate_on_corrupted_images_was_named_although_the_third_may_be_as_good() -> None:
    right = {"first": range(30), "second": range(20), "third": [*range(10), *range(51, 60)]}
    models = [Remembering(each) for each in right.values()]
    run = evaluated(models, None, names=list(right), dataset=data(60), attacks=(), corruptions="jpeg_compression",
                    severities=1)  # fmt: skip

    sentence = answer(boards([run])[0]).sentence.replace("\xa0", " ")

    assert sentence.startswith("first (50.0 %) and third (31.7 %) do not differ significantly on corrupted images")


def test_differences_are_those_of_the_table(make_run: Callable[..., Run]) -> None:
    run = make_run(n=200, models=("a", "b", "c"), threats=LINF)
    worst = run.results[run.results["role"] == "worst-case"].set_index("model")["accuracy"]
    board = boards([run])[0]

    pairs = ranking(board, board.threats[0]).pairs

    assert len(pairs) == 3
    for pair in pairs:
        assert pair.difference.value == pytest.approx(worst[pair.first] - worst[pair.second], abs=1e-12)
        assert pair.difference.value >= 0


def test_one_model_has_its_number_its_interval_and_n(make_run: Callable[..., Run]) -> None:
    run = make_run(n=90, models=("only",), threats=LINF)
    worst = run.results[run.results["role"] == "worst-case"].iloc[0]

    found = answer(boards([run])[0])

    sentence = found.sentence.replace("\xa0", " ")
    assert f"{100 * worst['accuracy']:.1f} %" in sentence
    assert f"{100 * worst['ci_low']:.1f}{DASH}{100 * worst['ci_high']:.1f} %" in sentence
    assert "n = 90" in sentence
    assert "upper bound" in found.support
    assert "white box" in found.threat


@pytest.mark.parametrize(
    ("model", "threat", "unreliable"),
    [("a", "Linf 0.1", True), ("a", "", True), ("a", "L2 1", False), ("worst", "Linf 0.1", False)],
)
def test_a_headline_that_names_a_model_with_a_failed_check_is_called_not_reliable(
    model: str, threat: str, unreliable: bool, make_run: Callable[..., Run]
) -> None:
    run = make_run(n=60, models=("worst", "b", "a"), threats=LINF)
    failed = Check(model, threat, "zero_gradients", "Gradients", "quick", "failed", "invalidating", "All are.")
    sentence = answer(boards([replace(run, checks=(failed,))])[0]).sentence

    assert sentence.startswith("Not reliable: ") == unreliable


@pytest.mark.parametrize(
    ("name", "threat", "unreliable"),
    [("black_box_wins", "Linf 0.1", False), ("fresh_answers", "Linf 0.1", True), ("clean_accuracy", "", True)],
)
def test_an_accuracy_of_0_was_called_not_reliable_because_an_attack_failed(
    name: str, threat: str, unreliable: bool, make_run: Callable[..., Run]
) -> None:
    run = make_run(n=40, models=("a",), threats=LINF)
    none = run.results.assign(correct=run.results["correct"].mask(run.results["role"] == "worst-case", 0))
    failed = Check("a", threat, name, "Title", "quick", "failed", "invalidating", "Finding.")
    found = answer(boards([replace(run, results=none, checks=(failed,))])[0])

    assert found.sentence.startswith("Not reliable: ") == unreliable
    assert "classifies none correctly under every attack tried; no attack can lower that." in found.support
