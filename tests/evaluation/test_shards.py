"""Shards of a run, each with a folder of its own, are merged into the run's own tables and rows, or refused."""

import json
import shutil
import sqlite3

import pytest

from robustkit import Classifier, UserError, evaluate
from robustkit.classifier.smoothing import Smoothing
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.merging import merge
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import resolve
from robustkit.evaluation.shard import ignored_shard, shard_of
from robustkit.evidence.consistency import contradictions_in
from robustkit.evidence.kept import check_kept
from robustkit.evidence.planned_rows import plan_contradictions
from tests.evaluation.test_autoattack import shorter
from tests.networks import Noisy
from tests.small import Recorder, cnn, csv, data, evidence, linear, only

EVERYTHING = {
    "dataset": data(10),
    "attacks": ["brief", "noise:queries=3"], "eps": ["0.05", "0.1"], "keep_adversarial": True,
    "corruptions": "contrast", "severities": 1,
}  # fmt: skip
FAST = {"attacks": "fgsm", "eps": "0.1"}


def run(folder, shard=None, models=None, watch=None, **asked):
    """One shard of an evaluation, in its own folder below `folder`."""
    models = models or [Classifier(linear(), name="linear"), Classifier(cnn(), name="cnn")]
    request = EvaluationRequest(models, shard=shard, watch=watch or Recorder(), **{"dataset": data(17), **asked})
    evaluation = resolve(request)
    return carry_out(evaluation, evaluation.folder(folder), request.watch)


def shards(folder, count, **asked):
    """The folders of all shards, the last one first."""
    for index in range(1, count + 1):
        run(folder, f"{index}/{count}", **asked)
    return [folder / f"shard-{index}-of-{count}" for index in range(count, 0, -1)]


def same_rows(one, other):
    """Whether all tables but the manifest are equal."""
    left, right = evidence(one), evidence(other)
    return all(left[name] == right[name] for name in left if name != "run")


@pytest.fixture(scope="module")
def whole(brief, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return csv(run(folder, **EVERYTHING), folder), folder


@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_shards_have_the_rows_and_tables_of_one_run(count, whole, tmp_path):
    tables, folder = whole
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, f"2/{count}", watch=Recorder(stop_after=9), **EVERYTHING)
    merged = merge(shards(tmp_path, count, **EVERYTHING), tmp_path / "merged")

    assert csv(merged.run, tmp_path) == tables
    assert same_rows(tmp_path / "merged", folder)
    assert not merged.missing
    assert merged.run.manifest["finished"]
    assert not list(contradictions_in(merged.run))
    assert not check_kept(merged.run, {}).contradictions


KINDS = {
    "randomized": {"models": [Classifier(Noisy(linear(), spread=0.2), name="noisy", eot=2)],
                   "dataset": data(4), "checks": "none", **FAST},
    "smoothed": {"models": [Classifier(linear(), name="smoothed", smoothing=Smoothing(0.2, n=12, n0=4))], **FAST},
    "transferred": {"models": [Classifier(linear(), name="linear")], "attacks": "mifgsm:steps=2", "eps": "0.1",
                    "surrogates": [Classifier(cnn(), name="cnn")]},
    "distances": {"models": [Classifier(linear(), name="linear")], "attacks": ["fab:steps=3", "noise:queries=3"],
                  "norm": "L2", "eps": "minimum"},
}  # fmt: skip


@pytest.mark.parametrize("asked", KINDS.values(), ids=KINDS)
def test_every_kind_of_model_and_attack_can_be_divided(asked, tmp_path):
    few = {"dataset": data(7), **asked}
    tables = csv(run(tmp_path / "whole", **few), tmp_path)
    merged = merge(shards(tmp_path, 2, **few), tmp_path / "merged")

    assert csv(merged.run, tmp_path) == tables
    assert same_rows(tmp_path / "merged", tmp_path / "whole")


def test_a_merged_run_grows_by_what_needs_all_images(monkeypatch, tmp_path):
    shorter(monkeypatch)
    rules = only("zero_gradients", "gradient_direction", "longer_search")
    monkeypatch.setattr("robustkit.checks.register.RULES", rules)
    asked = {"models": [Classifier(linear(), name="linear")], "dataset": data(7), **FAST}
    more = {"audit": 1, "checks": "standard"}
    whole = csv(run(tmp_path / "whole", **asked, **more), tmp_path)
    merge(shards(tmp_path, 2, **asked), tmp_path / "merged")

    assert csv(run(tmp_path / "merged", **asked, **more), tmp_path) == whole


def test_the_shards_of_a_longer_run_begin_with_those_of_a_shorter_one(tmp_path):
    asked = {"models": [Classifier(linear(), name="linear")], **FAST}
    longer = csv(run(tmp_path / "whole", samples=9, **asked), tmp_path)
    shards(tmp_path, 2, samples=4, **asked)
    merged = merge(shards(tmp_path, 2, samples=9, **asked), tmp_path / "merged")

    assert csv(merged.run, tmp_path) == longer


def test_a_shard_is_unfinished_until_it_is_merged(tmp_path):
    asked = {"models": [Classifier(linear(), name="linear")], **FAST}
    run(tmp_path, "1/2", **asked)
    shard = run(tmp_path, "1/2", watch=Recorder(stop_after=0), **asked)

    assert shard.manifest["finished"] is None
    assert shard.manifest["shard"]["finished"]
    assert set(shard.results["n"]) == {9}
    assert not list(plan_contradictions(shard))
    assert "Shard 1/2: 9 of 17 images" in str(shard)


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    folder = tmp_path_factory.mktemp("halves")
    return shards(folder, 2, models=[Classifier(linear(), name="linear")], **FAST)


def changed(half, folder, **entries):
    """A copy of a shard with other entries in its manifest."""
    shutil.copytree(half, folder)
    with sqlite3.connect(folder / "run.sqlite") as store:
        for key, value in entries.items():
            store.execute("UPDATE run SET value = ? WHERE key = ?", (json.dumps(value), key))
    store.close()
    return folder


def other_shard(tmp_path, shard, **more):
    run(tmp_path / "other", shard, **{"models": [Classifier(linear(), name="linear")], **FAST, **more})
    return next((tmp_path / "other").rglob("run.sqlite")).parent


TOGETHER = {
    "one is missing": (lambda two, one, place: [one, changed(one, place / "copy")], "Shard 1/2 is given twice"),
    "another number of shards": (lambda two, one, place: [one, other_shard(place, "2/3")], "one of 3 shards"),
    "two of three": (lambda two, one, place: [other_shard(place, "1/3"), other_shard(place / "b", "3/3")],
                     "shard 2 of 3 is missing"),
    "one is a whole run": (lambda two, one, place: [two, one, other_shard(place, None)],
                           "all images, and others are shards"),
    "another attack": (lambda two, one, place: [one, other_shard(place, "2/2", attacks="pgd:steps=2")], "attack"),
    "one more radius": (lambda two, one, place: [one, other_shard(place, "2/2", eps=["0.1", "0.2"])], "radius"),
    "another seed": (lambda two, one, place: [one, other_shard(place, "2/2", seed=1)], "seed was 0, now 1"),
    "a number that would fill the memory": (
        lambda two, one, place: [
            changed(half, place / f"half-{index}", shard={"index": index, "count": 10**12, "finished": "now"})
            for index, half in enumerate((one, two), 1)], "3, 4, 5, 6, 7, 8, 9, 10, ... of 1000000000000 are missing"),
    "an unfinished one": (
        lambda two, one, place: [
            one, changed(two, place / "two", shard={"index": 2, "count": 2, "finished": None})], "unfinished"),
}  # fmt: skip


@pytest.mark.parametrize(("chosen", "words"), TOGETHER.values(), ids=TOGETHER)
def test_shards_that_are_missing_or_do_not_belong_together_are_refused(chosen, words, halves, tmp_path):
    with pytest.raises(UserError, match=words) as error:
        merge(chosen(*halves, tmp_path), tmp_path / "merged")

    assert "\n" not in str(error.value)
    assert not (tmp_path / "merged").exists()


def test_a_folder_keeps_to_its_shard(halves):
    linear_alone = [Classifier(linear(), name="linear")]
    for asked, words in ((None, "shard 1/2, not of all images"), ("2/2", "shard 1/2, not of shard 2/2")):
        evaluation = resolve(EvaluationRequest(linear_alone, shard=asked, dataset=data(17), **FAST))
        with pytest.raises(UserError, match=words):
            carry_out(evaluation, halves[1], Recorder())


UNDIVIDED = {
    "audit": ({"audit": 3}, "leave --audit out, merge"), "checks": ({"checks": "full"}, "leave --checks out, merge"),
    "precision": ({"precision": 0.1}, "--precision or --shard"), "memory": ({"out": None}, "out"),
    "too many": ({"shard": "3/18"}, "17 images, too few"), "from 0": ({"shard": "0/8"}, "counted from 1"),
    "too large": ({"shard": "9/8"}, "8/8"), "no shard": ({"shard": "1-8"}, "2/8"),
    "nothing set": ({"shard": "auto"}, "SLURM_ARRAY_TASK_ID .* are not set"),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "words"), UNDIVIDED.values(), ids=UNDIVIDED)
def test_what_cannot_be_divided_is_refused(asked, words, tmp_path):
    with pytest.raises(UserError, match=words):
        evaluate(linear(), **{"dataset": data(17), "shard": "1/2", "out": tmp_path / "out", **FAST, **asked})

    assert not (tmp_path / "out").exists()


def array(number, first, last, count=None):
    count = last - first + 1 if count is None else count
    values = {"ID": number, "COUNT": count, "MIN": first, "MAX": last}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


def ranks(rank, size):
    return {"RANK": str(rank), "WORLD_SIZE": str(size)}


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (array(0, 0, 7), "1/8"), (array(8, 1, 8), "8/8"), (ranks(0, 4), "1/4"),
        (ranks(3, 4), "4/4"), ({**array(2, 1, 8), **ranks(0, 1)}, "2/8"), ({**array(1, 1, 1), **ranks(1, 2)}, "2/2"),
    ],
)  # fmt: skip
def test_the_environment_says_which_shard_this_is(environment, text):
    assert shard_of("auto", environment).text == text
    assert ignored_shard(environment) is not None
    assert ignored_shard({}) is None


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "are not set"), ({**array(2, 1, 8), **ranks(1, 2)}, "either"), (ranks("", 2), "not a number"),
        (ranks(4, 4), "5/4"), (array(3, 3, 3), "of the tasks 3 to 3"), (array(5, 5, 6), "2 of the tasks 5 to 6"),
        (array(3, 3, 5, count=2), "2 of the tasks 3 to 5"), (array(0, 0, 14, count=8), "SLURM_ARRAY_TASK_ID/8"),
    ],
)  # fmt: skip
def test_an_unclear_environment_is_refused(environment, words):
    with pytest.raises(UserError, match=words):
        shard_of("auto", environment)


def test_the_shares_are_all_images_once():
    ids = range(100, 117)
    shares = [shard_of(f"{index}/5", {}).share(ids) for index in range(1, 6)]

    assert sorted(number for share in shares for number in share) == list(ids)
    assert {len(share) for share in shares} == {3, 4}
