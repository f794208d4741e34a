"""An audit: AutoAttack on random survivors, the share that the attacks missed, and the worst case with the misses."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from robustkit import Classifier, Smoothing, UserError, load_run
from robustkit.evidence.audit import draw
from robustkit.evidence.run import Run
from robustkit.primitives import ensembles
from robustkit.statistics.intervals import upper_bound
from tests.evaluation.test_autoattack import shorter
from tests.networks import Noisy
from tests.small import Recorder, broken, cnn, csv, data, evaluated, linear

WEAK = {"dataset": data(18), "attacks": "noise:queries=2", "eps": "0.1", "checks": "none"}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    shorter(monkeypatch)


def run(folder: Any = None, model: Any = None, **more: Any) -> Run:
    return evaluated(model or linear(), folder, **{**WEAK, **more})


@cache
def once(**more: Any) -> Run:
    """One run for all tests that only read it."""
    return run(**more)


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Callable[[int | None, Path], Path]:
    """Copies the folder of a finished run with or without an audit."""

    @cache
    def original(audit: int | None) -> Path:
        folder = tmp_path_factory.mktemp("begun")
        run(folder, audit=audit)
        return folder

    return lambda audit, to: Path(shutil.copytree(original(audit), to))


def row(done: Run, role: str = "audit", eps_text: str = "0.1") -> Any:
    (found,) = done.results[(done.results.role == role) & (done.results.eps_text == eps_text)].itertuples()
    return found


def audited(done: Run, eps_text: str = "0.1") -> set[int]:
    rows = done.samples[(done.samples.attack == "audit") & (done.samples.eps_text == eps_text)]
    return set(rows["sample"])


def survivors(done: Run, attack: str = "noise:queries=2") -> set[int]:
    return set(done.samples["sample"][(done.samples.attack == attack) & (done.samples.verdict == "robust")])


def test_the_seed_alone_draws_and_a_smaller_draw_is_part_of_a_larger_one():
    images = set(range(100))

    assert draw(0, reversed(range(100)), 10) == draw(0, images, 10)
    assert len(draw(0, images, 10)) == 10
    assert draw(0, images, 10) < draw(0, images, 20)
    assert draw(0, images, 10) != draw(1, images, 10)
    assert draw(0, {3, 5}, 10) == {3, 5}
    assert draw(0, (), 10) == set()


def test_what_is_drawn_of_many_stays_drawn_of_fewer():
    assert draw(0, range(100), 10) & set(range(50)) <= draw(0, range(50), 10)


def test_every_image_is_drawn_equally_often():
    drawn = [draw(seed, range(20), 5) for seed in range(400)]
    times = [sum(number in each for each in drawn) for number in range(20)]

    # Binomial with mean 100 and standard deviation 8.7.
    assert min(times) > 60
    assert max(times) < 140


def test_the_misses_of_a_weak_attack_are_counted_and_lower_the_worst_case():
    done, alone, stronger = once(audit=8), once(), once(attacks="autoattack")
    drawn = draw(0, survivors(alone), 8)
    missed = drawn & broken(stronger, "autoattack")

    assert 0 < len(missed) < 8
    assert audited(done) == drawn
    assert broken(done, "audit") == missed
    assert (row(done).n, row(done).correct, row(done).attacked, row(done).broken) == (
        8,
        8 - len(missed),
        8,
        len(missed),
    )
    assert row(done).ci_low == 1 - upper_bound(len(missed), 8)
    assert row(done, "worst-case").correct == row(alone, "worst-case").correct - len(missed)
    assert f"audit: AutoAttack broke {len(missed)} of 8 survivors, which the worst case counts as" in str(done)


def test_with_fewer_survivors_all_are_audited_and_the_share_is_exact():
    done, alone = run(audit=1000), once()

    assert audited(done) == survivors(alone)
    assert row(done).ci_method == "exact"
    assert row(done).ci_low == row(done).ci_high == row(done).accuracy
    assert row(done, "worst-case").correct == row(once(attacks="autoattack"), "worst-case").correct
    assert "these are all survivors" in " ".join(str(done).split())


def test_without_survivors_nothing_is_audited():
    done = run(attacks="autoattack", eps="1", audit=3)

    assert row(done, eps_text="1").n == 0
    assert "nothing was audited" in str(done)


def test_the_batch_size_changes_nothing(tmp_path):
    alone, together = (run(audit=4, dataset=data(8), batch_size=size) for size in (1, 64))

    assert csv(alone, tmp_path / "1") == csv(together, tmp_path / "many")
    assert row(alone).n == 4


@pytest.mark.parametrize("after", [20, 70])
def test_an_interrupted_audit_goes_on_where_it_stopped(after, tmp_path):
    settings = {"audit": 8, "eps": ("0.05", "0.1")}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", watch=Recorder(after), **settings)
    cut = load_run(tmp_path / "cut")
    done, whole = run(tmp_path / "cut", **settings), once(**settings)

    assert cut.manifest["finished"] is None
    assert set(cut.results.ci_method[cut.results.role == "audit"]) & {"unfinished"}
    assert "unfinished" in str(cut)
    assert csv(done, tmp_path / "cut") == csv(whole, tmp_path / "whole")


@pytest.mark.parametrize(
    ("first", "more"),
    [(None, {}), (None, {"attacks": ("noise:queries=2", "fgsm")}), (None, {"eps": ("0.05", "0.1")}),
     (8, {}), (8, {"audit": 12}), (8, {"attacks": ("noise:queries=2", "fgsm")}), (8, {"eps": ("0.05", "0.1")}),
     (8, {"eps": ("0.1", "0.15")})],
)  # fmt: skip
def test_a_run_gets_an_audit_later_and_an_audited_run_grows(first, more, begun, tmp_path):
    folder = begun(first, tmp_path / "grown")
    grown, at_once = run(folder, **{"audit": 8, **more}), once(**{"audit": 8, **more})

    assert csv(grown, folder) == csv(load_run(folder), folder) == csv(at_once, tmp_path / "once")


def test_an_audit_added_to_a_finished_run_repeats_no_attack(begun, tmp_path):
    watch = Recorder()
    run(begun(None, tmp_path / "run"), audit=8, watch=watch)

    assert all(
        total == finished for text, total, finished in watch.stages if "audit" not in text and "checks" not in text
    )


def test_what_an_earlier_draw_broke_stays_broken_when_samples_are_added(tmp_path):
    few = run(tmp_path, samples=12, audit=8)
    more = run(tmp_path, audit=8)
    drawn = draw(0, survivors(once()), 8)

    assert broken(few, "audit") <= broken(more, "audit")
    assert broken(few, "audit") - drawn
    assert row(more).broken == len(broken(more, "audit") & drawn)
    worst = row(once(), "worst-case").correct - len(broken(more, "audit"))
    assert row(more, "worst-case").correct == worst


@pytest.mark.parametrize(("audit", "words"), [(None, "audit was 8, now not set"), (4, "audit was 8, now 4")])
def test_an_audit_is_not_taken_back(audit, words, begun, tmp_path):
    folder = begun(8, tmp_path / "run")

    with pytest.raises(UserError, match=words):
        run(folder, audit=audit)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"audit": 0}, "at least 1 survivors"),
        ({"audit": 2.5}, "at least 1 survivors"),
        ({"surrogates": Classifier(cnn(), name="other")}, "--surrogate"),
        ({"smooth": 0.2}, "smoothed"),
        ({"model": Classifier(linear(), smoothing=Smoothing(0.2, n=12, n0=4))}, "smoothed"),
        ({"norm": "L0", "eps": "3"}, "L0"),
    ],
)
def test_an_audit_that_cannot_be_made_is_refused(more, words):
    with pytest.raises(UserError, match=words):
        run(**{"audit": 3, **more})


def test_a_randomized_model_is_not_audited_and_others_are(tmp_path):
    models = [Classifier(Noisy(linear(), spread=0.2), name="noisy", eot=2), Classifier(linear(), name="linear")]
    run(tmp_path, models, dataset=data(8))
    done = run(tmp_path, models, dataset=data(8), audit=3)

    assert set(done.results.model[done.results.role == "audit"]) == {"linear"}
    assert any("noisy is randomized" in text and "not audited" in text for text in done.manifest["warnings"])
    assert csv(run(tmp_path, models, dataset=data(8), audit=3), tmp_path) == csv(done, tmp_path)


def test_the_members_are_those_of_autoattack():
    done = run(audit=2)
    names = [each["name"] for each in done.manifest["identity"]["attacks"]]

    assert names[1:] == [f"audit/{each.partition(':')[0]}" for each in ensembles.members("autoattack", "Linf")]
    assert done.manifest["identity"]["audit"] == 2
