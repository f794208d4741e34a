"""The table of models by radii."""

import pytest
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
