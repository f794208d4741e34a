"""Lanes in any order, by any number of workers, whole or lost on the way, leave the rows of a run in one go."""

import random
from contextlib import suppress

import pytest

from robustkit import Classifier
from robustkit.evaluation.agenda import Agenda
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.lanes import Lane, LaneDone, NewRows
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import resolve
from robustkit.evaluation.worker import Bench
from robustkit.evidence.rows import CleanRecord, FailedRecord
from robustkit.evidence.store import Store
from tests.small import Recorder, cnn, data, evidence, linear

ASKED = {
    "attacks": ["default", "noise:queries=3"], "eps": ["Linf:0.05", "Linf:0.1", "L2:0.5"],
    "corruptions": "contrast", "severities": 1, "keep_adversarial": True,
}  # fmt: skip


def resolved(images=24, **asked):
    models = [Classifier(linear(), name="linear"), Classifier(cnn(), name="cnn")]
    return resolve(EvaluationRequest(models, dataset=data(images), watch=Recorder(), **{**ASKED, **asked}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run in one go."""
    folder = tmp_path_factory.mktemp("whole")
    carry_out(resolved(), folder, Recorder())
    return {name: rows for name, rows in evidence(folder).items() if name not in ("run", "answers")}


class Wire(list):
    """What a worker sends."""

    def send(self, message):
        self.append(message)


def work(agenda, evaluation, luck, workers=3, *, loses=0.0, poison=None):
    """Carry out all lanes, some at a time, in random order; a lost lane sends some of its rows."""
    benches = [Bench(evaluation, Wire()) for _ in range(workers)]
    out: dict[int, Lane] = {}
    while agenda.left:
        for number in set(range(workers)) - set(out):
            lane = agenda.take(workers, luck.randrange(2))
            if lane is not None:
                out[number] = lane
        number = luck.choice(list(out))
        lane = out.pop(number)
        rows = [] if poison in lane.images else rows_of(benches[number], agenda, lane)
        lost = poison in lane.images or luck.random() < loses
        for some in rows[: luck.randrange(len(rows) + 1)] if lost else rows:
            agenda.write(lane.model, some)
        if lost:
            lose(agenda, evaluation, lane)
        else:
            agenda.done(lane)
    for bench in benches:
        bench.close()


def rows_of(bench, agenda, lane):
    """What a worker writes, in its transactions."""
    bench.connection.clear()
    bench.carry_out(Lane(lane.model, lane.attack, lane.images, agenda.known(lane), {}, True))
    assert isinstance(bench.connection[-1], LaneDone)
    return [message.rows for message in bench.connection if isinstance(message, NewRows)]


def lose(agenda, evaluation, lane):
    alone = agenda.lost(lane)
    if alone is None:
        return
    if alone.deaths < 3:
        agenda.again(alone)
        return
    label = int(evaluation.data.labels[alone.images[0]])
    name = evaluation.classifiers[alone.model].name
    agenda.failed(alone, FailedRecord(name, alone.images[0], label, 3, "SIGKILL"))


def begun(folder, evaluation):
    store = Store(folder)
    store.set_manifest(warnings=[], seconds={})
    return store, Agenda(evaluation, store)


@pytest.mark.parametrize("seed", [0, 2, pytest.param(1, marks=pytest.mark.slow)])
def test_any_order_of_lanes_and_lost_lanes_leave_the_same_rows(seed, whole, tmp_path):
    evaluation = resolved()
    store, agenda = begun(tmp_path, evaluation)
    work(agenda, evaluation, random.Random(seed), loses=0.2 * seed)
    store.close()
    rows = evidence(tmp_path)

    assert {name: rows[name] for name in whole} == whole


def test_a_run_that_was_cut_anywhere_goes_on_with_the_same_rows(whole, tmp_path):
    luck, evaluation, left = random.Random(5), resolved(), 1
    while left:
        store, agenda = begun(tmp_path, evaluation)
        lanes = luck.randrange(1, 25)
        done = agenda.done

        def cut(lane, done=done):
            nonlocal lanes
            lanes -= 1
            if lanes < 0:
                raise KeyboardInterrupt  # its rows are written, and nothing else
            done(lane)

        agenda.done = cut
        with suppress(KeyboardInterrupt):
            work(agenda, evaluation, luck)
        left = agenda.left
        store.close()
    rows = evidence(tmp_path)

    assert {name: rows[name] for name in whole} == whole


def test_a_poisonous_image_holds_up_nothing_else(whole, tmp_path):
    evaluation = resolved()
    store, agenda = begun(tmp_path, evaluation)
    work(agenda, evaluation, random.Random(0), poison=7)
    store.close()
    rows, place = evidence(tmp_path), {"attacked": 4, "clean": 1}

    assert {(model, sample) for model, sample, *_ in rows["failed"]} == {("linear", 7), ("cnn", 7)}
    for name, column in place.items():
        assert rows[name] == [row for row in whole[name] if row[column] != 7]


def plain(images):
    """A model, two attacks at one radius, and nothing else."""
    asked = EvaluationRequest(
        Classifier(linear(), name="linear"), dataset=data(images), attacks=["fgsm", "pgd:steps=40"], eps="Linf:0.1",
        watch=Recorder(),
    )  # fmt: skip
    return resolve(asked)


def correct(agenda, lane):
    """All images of a lane are classified correctly."""
    agenda.write(lane.model, [CleanRecord("linear", image, 0, 0, "1 2") for image in lane.images])
    agenda.done(lane)


def test_no_lane_is_left_with_images_that_fill_no_batch(tmp_path):
    store, agenda = begun(tmp_path, plain(66))
    sizes = [len(agenda.take(2, None).images) for _ in range(2)]
    store.close()

    assert sizes == [32, 34]


def test_the_attack_with_the_most_passes_comes_first_and_what_ends_last_is_small(tmp_path):
    store, agenda = begun(tmp_path, plain(32))
    correct(agenda, agenda.take(2, None))
    lanes = [agenda.take(2, 0) for _ in range(2)]
    store.close()

    assert [agenda.evaluation.plan.attacks[lane.attack].name for lane in lanes] == ["pgd:steps=40", "fgsm"]


def test_images_wait_for_the_others_of_their_stage_while_there_is_something_else_to_do(tmp_path):
    store, agenda = begun(tmp_path, plain(150))
    correct(agenda, agenda.take(2, 0))  # 38 images, which could be attacked already
    following = agenda.take(2, 0)
    store.close()

    assert following.attack is None


def test_the_end_of_a_host_is_blamed_on_no_image(tmp_path):
    store, agenda = begun(tmp_path, resolved(1))
    alone = agenda.lost(agenda.take(1, None), blamed=False)
    agenda.again(alone)
    twice = agenda.lost(agenda.take(1, None))
    store.close()

    assert (alone.deaths, twice.deaths) == (0, 1)
