"""The top of the page of a fine-tuning."""

import pytest
from robustkit.reports.evaluation.tuning import tuning_lines, tuning_sentences

from robustkit.comparison import compare as comparison_of
from tests.small import cnn, data, evaluated, linear


@pytest.fixture(scope="module")
def run():
    return evaluated([cnn(), linear()], None, names=["before", "after"], dataset=data(30), attacks="fgsm", eps=0.1,
                     norm="Linf")  # fmt: skip


def test_a_change_is_that_of_the_comparison_with_the_other_sign(run):
    pairs = comparison_of.compare(run).pairs
    under_attack = pairs[pairs["norm"] == "Linf"].iloc[0]
    line = tuning_lines(run)[0]

    assert line.threat == "Linf 0.1"
    assert line.before == f"{100 * (under_attack['both'] + under_attack['first_only']) / 30:.1f} %"
    assert float(line.change.replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        -100 * under_attack["difference"], abs=0.06
    )


def test_the_first_sentence_is_about_the_attack_and_the_second_about_clean_images(run):
    first, second = tuning_sentences(tuning_lines(run))

    assert first.startswith("Accuracy at Linf 0.1 ")
    assert second.startswith("Accuracy on clean images ")


def test_a_sentence_has_the_counts_because_rounded_percentages_do_not_add_up(run):
    line = tuning_lines(run)[0]
    before, after = (int(text.removesuffix("/30")) for text in (line.before_count, line.after_count))
    (sentence, _) = tuning_sentences(tuning_lines(run))

    assert f"({before}/30) to {line.after} ({after}/30), {line.change} points" in sentence
    assert line.change.lstrip("+\N{MINUS SIGN}") == f"{abs(after - before) / 0.3:.1f}"


def test_a_run_of_one_model_has_no_before_and_after():
    run = evaluated(linear(), None, dataset=data(8), attacks="fgsm", eps=0.1, norm="Linf")

    assert tuning_lines(run) == []
    assert list(tuning_sentences([])) == []
