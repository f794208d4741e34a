"""A run folder is gone on with: interrupted, grown, or refused; never mixed."""

import pytest
import torch
from torch import nn

from robustkit import Classifier, UserError, evaluate, load_run
from robustkit.evidence.run import Run
from robustkit.host import environment
from tests.small import Recorder, cnn, csv, data, evidence, linear


def run(out=None, models=("linear",), **more) -> Run:
    made = [Classifier({"linear": linear, "cnn": cnn}[name](), name=name) for name in models]
    settings = {"dataset": data(24), "attacks": ["fgsm", "tiny"], "eps": ["0.05", "0.1"], **more}
    return evaluate(settings.pop("model", made), out=out, **settings)


BASE = {"samples": 10, "attacks": ["fgsm"], "models": ("linear",)}
GROWN = {
    "samples": {"samples": 20},
    "an attack": {"attacks": ["fgsm", "pgd:steps=3"]},
    "an attack in front": {"attacks": ["noise:queries=3", "fgsm"]},
    "an ensemble": {"attacks": ["fgsm", "tiny"]},
    "a model": {"models": ("linear", "cnn")},
    "a model in front": {"models": ("cnn", "linear")},
    "everything": {"samples": None, "attacks": ["tiny", "fgsm"], "models": ("cnn", "linear")},
}


@pytest.mark.parametrize("growth", GROWN)
def test_a_grown_run_equals_a_fresh_one_byte_for_byte(growth, tmp_path):
    settings = BASE | GROWN[growth]
    run(tmp_path / "grown", **BASE)
    grown, fresh = run(tmp_path / "grown", **settings), run(tmp_path / "fresh", **settings)

    assert csv(grown, tmp_path / "a") == csv(fresh, tmp_path / "b")
    assert evidence(tmp_path / "grown")["attacked"] == evidence(tmp_path / "fresh")["attacked"]
    assert evidence(tmp_path / "grown")["picture"] == evidence(tmp_path / "fresh")["picture"]


def test_growing_attacks_only_what_is_new(tmp_path):
    run(tmp_path, samples=10, attacks=["fgsm"])
    watch = Recorder()
    run(tmp_path, samples=20, attacks=["fgsm"], watch=watch)

    assert watch.stages[0] == ("linear clean", 20, 10)
    assert watch.images < 40
    assert all(total - done <= 10 for _, total, done in watch.stages)


def test_growing_in_many_small_steps_equals_one_great_one(tmp_path):
    for samples in (1, 2, 5, 11, 24):
        grown = run(tmp_path / "run", samples=samples)

    assert csv(grown, tmp_path / "a") == csv(run(), tmp_path / "b")


def test_more_pictures_of_a_grown_run_are_the_first_images_too(tmp_path):
    run(tmp_path, samples=3)
    grown, fresh = run(tmp_path), run()

    assert [picture.sample for picture in grown.pictures] == [picture.sample for picture in fresh.pictures]


@pytest.mark.parametrize("stop_after", [0, 10, 24, 27, 40, 60, 90, 120, 150])
def test_an_interrupted_run_goes_on_to_the_same_bytes(stop_after, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", watch=Recorder(stop_after))
    resumed = run(tmp_path / "run")

    assert csv(resumed, tmp_path / "a") == csv(run(), tmp_path / "b")


def test_a_run_interrupted_again_and_again_ends_at_the_same_bytes(tmp_path):
    times = 0
    while True:
        try:
            done = run(tmp_path / "run", watch=Recorder(17))
            break
        except KeyboardInterrupt:
            times += 1

    assert times >= 5
    assert csv(done, tmp_path / "a") == csv(run(), tmp_path / "b")


def test_nothing_that_is_finished_is_done_twice(tmp_path):
    whole, first, second = Recorder(), Recorder(70), Recorder()
    run(tmp_path / "whole", watch=whole)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", watch=first)
    run(tmp_path / "run", watch=second)

    assert first.images + second.images == whole.images


def test_an_interrupted_run_may_grow_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", samples=12, watch=Recorder(20))
    grown = run(tmp_path / "run", samples=20, attacks=["fgsm", "tiny", "noise:queries=2"])

    fresh = run(samples=20, attacks=["fgsm", "tiny", "noise:queries=2"])
    assert csv(grown, tmp_path / "a") == csv(fresh, tmp_path / "b")


def test_a_finished_run_asks_no_model_again(tmp_path):
    asked: list[int] = []

    class Heard(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()

        def forward(self, x):
            asked.append(len(x))
            return self.inner(x)

    first = run(tmp_path, model=Heard())
    asked.clear()
    again = run(tmp_path, model=Heard())

    assert again.results.equals(first.results)
    assert not asked


def test_a_model_that_holds_functions_is_still_itself_in_another_process(tmp_path):
    class Holding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            # Another object each time, as in another process.
            self.steps = (lambda x: x,)

        def forward(self, x):
            return self.inner(self.steps[0](x))

    first = run(tmp_path, model=Holding())

    assert run(tmp_path, model=Holding()).results.equals(first.results)


def test_a_finished_run_stays_finished_when_it_was(tmp_path):
    first, again = run(tmp_path), run(tmp_path)

    assert first.manifest["finished"] is not None
    assert again.manifest["finished"] == first.manifest["finished"]
    assert again.manifest["created"] == first.manifest["created"]


def test_an_interrupted_run_is_not_called_finished(tmp_path):
    run(tmp_path, samples=10)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, samples=20, watch=Recorder(3))

    assert load_run(tmp_path).manifest["finished"] is None


def other_weights():
    model = linear()
    with torch.no_grad():
        model[-1].bias[3] += 2**-10
    return Classifier(model, name="linear")


def turned() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = data(24)
    return x.flip(3), y


def one_pixel() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = data(24)
    x[3, 0, 4, 4] = 0.123
    return x, y


CHANGED = {
    "the seed": ({"seed": 1}, ["seed was 0, now 1"]),
    "a radius": ({"eps": ["0.05", "0.2"]}, ["threats", "0.2"]),
    "a norm": ({"norm": "L2"}, ["threats", "L2"]),
    "fewer samples": ({"samples": 10}, ["samples was 24, now 10"]),
    "fewer attacks": ({"attacks": ["fgsm"]}, ["attack tiny/pgd", "absent"]),
    "an attack's steps": ({"attacks": ["fgsm:random_start=true", "tiny"]}, ["attack fgsm"]),
    "other images": ({"dataset": turned()}, ["dataset"]),
    "one pixel": ({"dataset": one_pixel()}, ["dataset"]),
    "one label": ({"dataset": (data(24)[0], (data(24)[1] + 1) % 10)}, ["dataset"]),
    "one weight": ({"model": other_weights()}, ["model linear", "sha256"]),
    "another model": ({"models": ("cnn",)}, ["model linear", "absent"]),
    "other bounds": ({"model": Classifier(linear(), name="linear", bounds=(0, 2))}, ["bounds"]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_setting_is_refused_by_name_and_the_evidence_stays(change, tmp_path):
    run(tmp_path)
    before = evidence(tmp_path)
    settings, words = CHANGED[change]
    with pytest.raises(UserError) as error:
        run(tmp_path, **settings)

    assert all(word in str(error.value) for word in words), str(error.value)
    assert "--out" in str(error.value)
    assert evidence(tmp_path) == before


def test_fewer_samples_are_not_called_other_data(tmp_path):
    run(tmp_path)
    with pytest.raises(UserError) as error:
        run(tmp_path, samples=10)

    assert "sha256" not in str(error.value)


class Hidden(nn.Module):
    """Has a trait that is neither a weight nor in its text."""

    def __init__(self, gain: float, *, buffer: bool) -> None:
        super().__init__()
        self.inner = linear()
        if buffer:
            self.register_buffer("gain", torch.tensor(gain), persistent=False)
        else:
            self.gain = gain

    def forward(self, x):
        return self.inner(x * self.gain)


@pytest.mark.parametrize("buffer", [True, False])
def test_a_model_that_answers_differently_is_another_model(buffer, tmp_path):
    run(tmp_path, model=Hidden(1.0, buffer=buffer))

    with pytest.raises(UserError, match="sha256"):
        run(tmp_path, model=Hidden(0.1, buffer=buffer))


def test_a_classifier_that_searches_differently_is_another_setting(tmp_path):
    run(tmp_path, model=Classifier(linear(), bf16=True))

    with pytest.raises(UserError, match="bf16"):
        run(tmp_path, model=Classifier(linear()))


def test_a_first_try_without_any_evidence_binds_nobody(tmp_path):
    spoilt = linear()
    with torch.no_grad():
        spoilt[-1].weight.fill_(float("nan"))
    with pytest.raises(UserError, match="NaN"):
        run(tmp_path, model=Classifier(spoilt, name="linear"))

    assert run(tmp_path).results.equals(run().results)


def test_a_finished_run_seen_by_another_torch_was_still_made_by_the_first(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(environment, "_version", lambda package: "9.9")
    again = run(tmp_path)

    assert again.manifest["warnings"] == first.manifest["warnings"] == []
    assert again.manifest["environment"] == first.manifest["environment"]


def test_a_run_gone_on_with_by_another_torch_says_so(tmp_path, monkeypatch):
    run(tmp_path, samples=10)
    monkeypatch.setattr(environment, "_version", lambda package: "9.9")
    grown = run(tmp_path, samples=20)

    assert "9.9" in " ".join(grown.manifest["warnings"])
