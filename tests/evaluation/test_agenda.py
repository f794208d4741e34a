"""Lanes in any order, by any number of workers, whole or lost on the way, leave the rows of a run in one go."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from robustkit import Classifier
from robustkit.evaluation.agenda import Agenda
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.lanes import Lane, LaneDone, NewRows
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import resolve
from robustkit.evaluation.workbench import Bench
from robustkit.evidence.rows import CleanRecord, FailedRecord
from robustkit.evidence.store import Store
from robustkit.primitives.ensembles import stages
from tests.small import Recorder, cnn, data, ensemble, evidence, linear

ASKED = {
    "attacks": ["few", "noise:queries=3"], "eps": ["Linf:0.05", "Linf:0.1", "L2:0.5"],
    "corruptions": "contrast", "severities": 1, "keep_adversarial": True,
}  # fmt: skip


def resolved(images=5, **asked):
    models = [Classifier(linear(), name="linear"), Classifier(cnn(), name="cnn")]
    return resolve(EvaluationRequest(models, dataset=data(images), watch=Recorder(), **{**ASKED, **asked}))


@pytest.fixture(autouse=True, scope="module")
def _few(brief):
    """The ensemble "few": four members, which measure nearness and attack by it."""
    labels = ("first", "second", "targeted", "square")
    members = {norm: [stage for stage in stages(brief, norm) if stage.label in labels] for norm in ("Linf", "L2", "L1")}
    with ensemble("few", members):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of a run in one go."""
    folder = tmp_path_factory.mktemp("whole")
    carry_out(resolved(), folder, Recorder())
    return {name: rows for name, rows in evidence(folder).items() if name not in ("run", "answers")}


class Wire(list):
    """What a worker sends; more lanes come for it, or not, as luck has it."""

    def __init__(self, agenda, luck):
        super().__init__()
        self.agenda, self.luck, self.next = agenda, luck, None

    def begin(self, lane):
        self.clear()
        self.images = lane
        return self._with_rows(lane)

    def send(self, message):
        self.append(message)

    def poll(self):
        self.next = self.agenda.more(self.images, 2) if self.luck.random() < 0.5 else None
        return self.next is not None

    def recv(self):
        self.images = replace(self.images, images=self.images.images + self.next.images)
        return self._with_rows(self.next)

    def finished(self, images):
        """The lane of some of the images, which the worker has no longer."""
        left = tuple(image for image in self.images.images if image not in images)
        done, self.images = replace(self.images, images=images), replace(self.images, images=left)
        return done

    def _with_rows(self, lane):
        return replace(lane, rows=self.agenda.known(lane), noted={}, keep_adversarial=True)


def work(agenda, evaluation, luck, workers=3, *, loses=0.0, poison=None):
    """Carry out all lanes, some at a time, in random order; a lost worker sends some of its rows."""
    benches = [Bench(evaluation, Wire(agenda, luck)) for _ in range(workers)]
    out: dict[int, Lane] = {}
    while agenda.left:
        for number in set(range(workers)) - set(out):
            lane = agenda.take(workers, luck.randrange(2))
            if lane is not None:
                out[number] = lane
        number = luck.choice(list(out))
        wire = benches[number].connection
        benches[number].carry_out(wire.begin(out.pop(number)))
        unlucky = luck.random() < loses and wire.images.deaths < 2  # a third time alone would make it an error
        lost = poison in wire.images.images or unlucky
        sent = [message for message in wire if isinstance(message, NewRows | LaneDone)]
        assert isinstance(sent[-1], LaneDone)
        for message in sent[: luck.randrange(len(sent))] if lost else sent:
            if isinstance(message, LaneDone):
                agenda.done(wire.finished(message.images))
            elif poison not in {row.sample for row in message.rows}:
                agenda.write(wire.images.model, message.rows)
        if lost:
            lose(agenda, evaluation, wire.images)
    for bench in benches:
        bench.close()


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


def begun(folder, evaluation, correct=()):
    store = Store(folder)
    store.set_manifest(warnings=[], seconds={})
    store.write(CleanRecord("linear", image, 0, 0, "1 2") for image in correct)
    return store, Agenda(evaluation, store)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1))])
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
    work(agenda, evaluation, random.Random(0), poison=3)
    store.close()
    rows, place = evidence(tmp_path), {"attacked": 4, "clean": 1}

    assert {(model, sample) for model, sample, *_ in rows["failed"]} == {("linear", 3), ("cnn", 3)}
    for name, column in place.items():
        assert rows[name] == [row for row in whole[name] if row[column] != 3]


def plain(images, *attacks):
    """A model, some attacks at one radius, and nothing else."""
    asked = EvaluationRequest(
        Classifier(linear(), name="linear"), dataset=data(images), attacks=attacks, eps="Linf:0.1", watch=Recorder()
    )
    return resolve(asked)


def all_of(agenda, workers):
    """The images that a worker has when it has got as many as it may."""
    images = agenda.take(workers, 0)
    while (lane := agenda.more(images, workers)) is not None:
        images = replace(images, images=images.images + lane.images)
    return images


def test_no_lane_is_left_with_images_that_fill_no_batch(tmp_path):
    store, agenda = begun(tmp_path, plain(40, "fgsm"))
    sizes = [len(agenda.take(2, None).images) for _ in range(2)]
    store.close()

    assert sizes == [16, 24]


def test_the_attack_with_the_most_passes_comes_first_and_what_ends_last_is_small(tmp_path):
    store, agenda = begun(tmp_path, plain(32, "fgsm", "pgd:steps=40"), range(32))
    lanes = [agenda.take(2, 0) for _ in range(2)]
    store.close()

    assert [agenda.evaluation.plan.attacks[lane.attack].name for lane in lanes] == ["pgd:steps=40", "fgsm"]


def test_images_wait_for_the_others_of_their_stage_while_there_is_something_else_to_do(tmp_path):
    store, agenda = begun(tmp_path, plain(150, "fgsm"), range(38))  # some images could be attacked already
    following = agenda.take(2, 0)
    store.close()

    assert following.attack is None


def test_a_worker_gets_further_images_of_its_attack_until_none_waits(tmp_path):
    store, agenda = begun(tmp_path, plain(100, "pgd:steps=38", "pgd:steps=39", "pgd:steps=40"), range(100))
    images = all_of(agenda, 2)  # the other worker has other attacks
    store.close()

    assert sorted(images.images) == sorted(agenda.evaluation.ids)


def test_a_worker_leaves_images_of_a_long_attack_to_one_whose_attack_is_soon_over(tmp_path):
    store, agenda = begun(tmp_path, plain(100, "fgsm", "pgd:steps=40"), range(100))
    images = all_of(agenda, 2)
    store.close()

    assert agenda.evaluation.plan.attacks[images.attack].name == "pgd:steps=40"
    assert 50 - 4 <= len(images.images) <= 60


def test_workers_share_the_last_attack_evenly(tmp_path):
    store, agenda = begun(tmp_path, plain(100, "fgsm"), range(100))
    first, second = all_of(agenda, 2), all_of(agenda, 2)
    store.close()

    assert not {*first.images} & {*second.images}
    assert min(len(first.images), len(second.images)) > 50 - 4  # fewer are not handed out alone


def test_images_of_a_lost_worker_share_no_batch_with_others(tmp_path):
    store, agenda = begun(tmp_path, plain(100, "fgsm"), range(100))
    agenda.lost(agenda.take(1, None))
    again = agenda.take(1, None)
    store.close()

    assert again.alone
    assert agenda.more(again, 1) is None


def test_the_end_of_a_host_is_blamed_on_no_image(tmp_path):
    store, agenda = begun(tmp_path, resolved(1))
    alone = agenda.lost(agenda.take(1, None), blamed=False)
    agenda.again(alone)
    twice = agenda.lost(agenda.take(1, None))
    store.close()

    assert (alone.deaths, twice.deaths) == (0, 1)
