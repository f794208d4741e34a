"""Where the host waits for a GPU, seen on a stand-in for one; and that the engine runs on another device than a CPU."""

from itertools import pairwise

import pytest
import torch
from robustkit.attacks import APGD, DDN, DIFGSM, FMN, GAMA, PGD, SINIFGSM, SSA, SoftAPGD, Square

from robustkit import attack as attacked
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.oracle import Plain
from robustkit.engine.jobs import Job
from robustkit.engine.scheduler import run
from robustkit.primitives.registry import classes
from tests.networks import Noisy
from tests.problems import jobs_of, problem, same
from tests.stand_in import DEVICE, moved, stand_in
from tests.test_contract import subject

QUERY = "query"


def on_stand_in(monkeypatch, made, attack, *, slots=64):
    """The outcomes, and what the host waited for between one query and the next."""
    with stand_in() as waits, Classifier(moved(made.model), fold=False).session(made.x.to(DEVICE)) as session:
        queried = Plain.query
        with monkeypatch.context() as patch:
            patch.setattr(Plain, "query", lambda *given, **more: waits.append(QUERY) or queried(*given, **more))
            jobs = [Job(job.sample, job.x.to(DEVICE), job.y) for job in jobs_of(made)]
            waits.clear()
            ended = sorted(run(session, attack, jobs, slots=slots), key=lambda outcome: outcome.sample)
        places = [place for place, each in enumerate(waits) if each == QUERY]
        return ended, [waits[start + 1 : end] for start, end in pairwise(places)]


def on_cpu(made, attack, slots):
    with Classifier(made.model, fold=False, channels_last=False).session(made.x) as session:
        session.sizes.exact = False  # the same batch sizes
        return sorted(run(session, attack, jobs_of(made), slots=slots), key=lambda outcome: outcome.sample)


ASCENTS = [PGD(0.0, steps=6), APGD(0.0, "L2", steps=6), APGD(0.0, "Linf", steps=6, start_radius=3)]
OTHERS = [PGD(0.0, "L2", steps=6), APGD(0.0, steps=6), APGD(0.0, "L2", steps=6, start_radius=2)]


@pytest.mark.parametrize(
    "attack", [*ASCENTS, *(pytest.param(attack, marks=pytest.mark.slow) for attack in OTHERS)],
    ids=lambda attack: f"{type(attack).__name__} {attack.norm}",
)  # fmt: skip
def test_the_host_waits_for_a_gpu_three_times_in_a_step(monkeypatch, attack):
    _, waits = on_stand_in(monkeypatch, problem("cnn", 1, 8, 8, count=6), attack)

    # For zero gradients, for which images are broken, and for which trials are over.
    assert [len(each) for each in waits[1:]] == [3] * 4


SCHEDULED = [FMN(0.0, "L2", steps=4), DDN(0.0, "L2", steps=4), GAMA(0.0, steps=4), SoftAPGD(0.0, steps=4)]
SCHEDULED += [DIFGSM(0.0, steps=4), SINIFGSM(0.0, steps=2, scales=2), SSA(0.0, steps=2, copies=2)]


def _by_the_engine(wait):
    """Whether the engine looks at what a step has shown; the places that asked are the innermost first."""
    return any(place.startswith(("scheduler.py", "slots.py")) for place in wait.split(" < ")[1:3])


@pytest.mark.parametrize("attack", SCHEDULED, ids=lambda attack: type(attack).__name__)
def test_art_nothing_is_sent_to_a_gpu_again_in_each_step(monkeypatch, attack):
    # ART sends the radius and the bounds anew; others draw noise on the CPU, as auto-attack does.
    _, waits = on_stand_in(monkeypatch, problem("cnn", 1, 8, 8, count=6), attack)

    assert len(waits) >= 3
    assert not [each for between in waits[1:] for each in between if not _by_the_engine(each)]


def test_advertorch_the_l1_projection_stays_on_the_device(monkeypatch):
    # It waits until all rows have converged, but its points do not go to the CPU and back.
    _, waits = on_stand_in(monkeypatch, problem("cnn", 1, 8, 8, count=6), PGD(0.0, "L1", steps=3))

    assert not [each for between in waits[1:] for each in between if "_to_copy" in each]


@pytest.mark.parametrize(
    "attack", [PGD(0.03, steps=5, restarts=2), APGD(0.03, steps=8, start_radius=3), Square(0.05, queries=10)]
)
def test_another_device_gives_the_outcomes_of_the_cpu(monkeypatch, attack):
    made = problem("cnn", 1, 8, 8, count=6)
    elsewhere, _ = on_stand_in(monkeypatch, made, attack, slots=3)
    here = on_cpu(made, attack, slots=3)

    assert all(same(*pair) for pair in zip(here, elsewhere, strict=True))
    assert {outcome.success for outcome in here} == {True, False}


def test_cleverhans_1248_and_art_2553_images_in_any_bounds_may_lie_on_another_device_than_the_model():
    # Checks of their bounds fail on a GPU, and images that come from the CPU are not sent there.
    made = problem("cnn", 1, 8, 8, count=4)
    x, given = 2 * made.x - 1, {"method": PGD(0.03, steps=2), "bounds": (-1, 1)}
    y = made.model(x).argmax(1)
    with stand_in():
        elsewhere = attacked(moved(made.model), x, y, **given)

    assert torch.equal(elsewhere.x_adv, attacked(made.model, x, y, **given).x_adv)


@pytest.mark.filterwarnings("ignore:noisy is randomized")
@pytest.mark.parametrize("attack", [PGD(0.03, steps=2), Square(0.05, queries=4)], ids=lambda each: type(each).__name__)
def test_a_randomized_model_may_lie_on_another_device_than_the_cpu(attack):
    made = problem("cnn", 1, 8, 8, count=1)
    network = Noisy(made.model, spread=0.05).eval()
    few = {"eot": 2, "draws": 64}
    with stand_in():
        elsewhere = attacked(Classifier(moved(network), **few), made.x, made.y, attack)

    assert torch.equal(elsewhere.x_adv, attacked(Classifier(network, **few), made.x, made.y, attack).x_adv)


@pytest.mark.slow
@pytest.mark.parametrize("name", classes())
def test_every_attack_runs_on_another_device(monkeypatch, name):
    under_test = subject(name, classes()[name].norms[0])
    made, attack = under_test.images(), under_test.made(restarts=2)
    elsewhere, _ = on_stand_in(monkeypatch, made, attack, slots=3)

    assert all(same(*pair) for pair in zip(on_cpu(made, attack, slots=3), elsewhere, strict=True))
