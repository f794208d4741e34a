"""The table of models by radii."""

import pytest
from robustkit.reports.evaluation.answer import answer
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.overview import overview

from robustkit import evaluate
from tests.small import cnn, data, linear


def made(norms, eps):
    models = {"models": [linear(), cnn()], "names": ["linear", "cnn"]}
    return evaluate(**models, dataset=data(30), attacks="fgsm", norm=norms, eps=eps)


@pytest.fixture(scope="module")
def run():
    return made(["Linf", "L2"], ["Linf:0.05", "Linf:0.1", "L2:0.3"])


def test_the_last_column_is_the_union_of_all_threats_counted_image_by_image(run):
    table = overview(boards([run])[0])
    standing = (run.samples["verdict"] == "robust").groupby([run.samples["model"], run.samples["sample"]]).all()

    assert [(norm.norm, norm.columns) for norm in table.norms] == [("", 1), ("Linf", 2), ("L2", 1), ("union", 1)]
    assert str(table.columns[-1].threat) == "union Linf 0.1 + L2 0.3"
    for row in table.rows:
        union = row.cells[-1]
        assert union is not None
        assert union.row.correct == standing[row.model].sum()
        assert union.row.low < union.row.correct / union.row.n < union.row.high


def test_one_norm_has_no_union():
    assert not overview(boards([made("Linf", ["0.05", "0.1"])])[0]).has_union


def test_models_that_met_other_threats_have_unions_of_their_own(run):
    other = evaluate(cnn(), names="third", dataset=data(30), attacks="fgsm", norm=["Linf", "L2"],
                     eps=["Linf:0.1", "L2:0.5"])  # fmt: skip
    table = overview(boards([run, other])[0])
    cells = {row.model: [cell is not None for cell in row.cells[-2:]] for row in table.rows}

    assert table.norms[-1] == ("union", 2)
    assert cells == {"linear": [True, False], "cnn": [True, False], "third": [False, True]}


def corrupted(**request):
    models = {"models": [linear(), cnn()], "names": ["linear", "cnn"]}
    names = {"corruptions": ["contrast", "impulse_noise"], "severities": [3, 5]}
    return evaluate(**models, dataset=data(30), **{"attacks": [], **names, **request})


def test_corrupted_images_are_a_column_of_their_own_beside_the_attacks():
    run = corrupted(attacks="fgsm", eps="0.1")
    table = overview(boards([run])[0])
    means = run.corruptions[run.corruptions["corruption"] == "all"].set_index("model")["accuracy"]

    assert table.norms[-1] == ("corruption", 1)
    assert {row.model: row.cells[-1].row.correct / 10**6 for row in table.rows} == pytest.approx(dict(means), abs=1e-6)


def test_a_page_about_corrupted_images_alone_answers_about_them():
    run = corrupted()
    means = run.corruptions[run.corruptions["corruption"] == "all"].set_index("model")["accuracy"]
    found = answer(boards([run])[0])

    assert found.sentence.startswith(str(means.idxmax()))
    assert f"{100 * means.max():.1f}" in found.sentence
    assert "No attack was run" in found.support
    assert not found.comments
