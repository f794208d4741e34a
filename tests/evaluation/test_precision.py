"""A run with a precision stops at the same image however it is carried out, and says what its intervals are."""

import pytest

from robustkit import UserError, compare, evaluate, gate, load_run
from robustkit.host.progress import Silent
from tests.small import cnn, data, linear

SETTINGS = {"dataset": data(400), "attacks": "noise:queries=2", "eps": "0.02", "precision": 0.05}


class Stopping(Silent):
    """Interrupts a run after so many finished images."""

    def __init__(self, images: int) -> None:
        self.left = images

    def advance(self, images: int, robust: float) -> None:
        self.left -= images
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return evaluate(linear(), out=tmp_path_factory.mktemp("run"), **SETTINGS)


def test_it_stops_when_every_interval_is_narrow_enough(run):
    rows = run.results[run.results["role"] == "worst-case"]

    assert 60 < rows["n"].iloc[0] < 400
    assert (rows["ci_high"] - rows["ci_low"]).max() <= 0.1
    assert set(run.results["ci_method"]) == {"confidence-sequence"}


def test_the_batch_size_does_not_change_a_byte(run, tmp_path):
    evaluate(linear(), out=tmp_path, batch_size=7, **SETTINGS)

    for name in ("results.csv", "samples.csv"):
        assert (tmp_path / name).read_bytes() == (run.folder / name).read_bytes()


def test_intervals_of_means_over_corruptions_were_called_confidence_sequences():
    run = evaluate(linear(), corruptions=["contrast"], severities=1, **SETTINGS | {"precision": 0.2})

    assert set(run.corruptions["ci_method"]) == {"clopper-pearson"}
    assert "Those of means over corruptions are for a number of images that was fixed" in " ".join(str(run).split())


@pytest.mark.parametrize("images", [30, 200, 330])
def test_an_interrupted_run_stops_at_the_same_image(run, tmp_path, images):
    with pytest.raises(KeyboardInterrupt):
        evaluate(linear(), out=tmp_path, watch=Stopping(images), **SETTINGS)
    evaluate(linear(), out=tmp_path, **SETTINGS)

    for name in ("results.csv", "samples.csv"):
        assert (tmp_path / name).read_bytes() == (run.folder / name).read_bytes()


def test_samples_is_the_most(tmp_path):
    run = evaluate(linear(), samples=80, **SETTINGS)

    assert run.results["n"].max() == 80
    assert "precision of +-5 points is not reached" in str(run).replace("\n ", " ")


def test_a_model_that_is_added_may_need_more_images_and_never_fewer(run, tmp_path):
    evaluate(linear(), out=tmp_path, **SETTINGS)
    grown = evaluate([linear(), cnn()], names=["Linear", "cnn"], out=tmp_path / "two", **SETTINGS)
    looser = evaluate(linear(), out=tmp_path, **{**SETTINGS, "precision": 0.2})

    assert grown.results["n"].nunique() == 1
    assert looser.results["n"].max() == run.results["n"].max()


def test_without_a_precision_it_grows_to_an_ordinary_run(run, tmp_path):
    evaluate(linear(), out=tmp_path, **SETTINGS)
    evaluate(linear(), out=tmp_path, **{**SETTINGS, "precision": None})
    evaluate(linear(), out=tmp_path / "once", **{**SETTINGS, "precision": None})

    assert (tmp_path / "results.csv").read_bytes() == (tmp_path / "once" / "results.csv").read_bytes()


def test_gates_and_comparisons_take_the_interval_of_the_run(run):
    row = load_run(run.folder).results.query("role == 'worst-case'").iloc[0]

    assert gate(run, fail_under=f"Linf@0.02>={float(row['ci_low'])!r}", judged_by="low").passed
    assert not gate(run, fail_under=f"Linf@0.02>={float(row['ci_low']) + 1e-6!r}", judged_by="low").passed
    assert any("fixed before" in note for note in compare(run, run).notes)


@pytest.mark.parametrize(("more", "words"), [
    ({"precision": 0.7}, "above 0"), ({"audit": 3}, "audit"), ({"eps": "minimum"}, "at a radius"),
])  # fmt: skip
def test_what_cannot_be_stopped_is_refused(more, words):
    with pytest.raises(UserError, match=words):
        evaluate(linear(), **{**SETTINGS, **more})
