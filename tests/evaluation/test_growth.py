"""A run folder after any sequence of evaluations, interruptions and refusals: the bytes of one uninterrupted run."""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from torch import Tensor, nn

from robustkit import Classifier, Smoothing, UserError, evaluate, load_run
from robustkit.evidence.picture import Picture
from robustkit.evidence.run import Run
from robustkit.host import environment
from tests.networks import Changed, Constant, Failing
from tests.small import Recorder, cnn, csv, data, evaluated, evidence, linear

COUNT = 8
MODELS = ("linear", "cnn", "smoothed")
ATTACKS = ("fgsm", "tiny", "pgd:steps=3")
RADII = ("Linf:0.15", "Linf:0.05", "L2:0.6", "Linf:0.1", "L2:0.3")
TABLES = ("clean", "certified", "attacked", "picture")
ABOUT_SMOOTHING = {"smoothing": Smoothing(0.2, n=12, n0=4, alpha=0.01), "eot": 4}


class Request(NamedTuple):
    samples: int
    attacks: tuple[str, ...]
    models: tuple[str, ...]
    radii: tuple[str, ...] = ("0.05", "0.15")


def run(
    request: Request,
    folder: Path | None,
    *,
    calls: int | None = None,
    shift: float = 0,
    model: dict[str, Any] | None = None,
    **more: Any,
) -> Run:
    """The evaluation that is requested.

    Args:
        request: what may grow.
        folder: of the run.
        calls: how often each model answers before it interrupts the run, after it was recognised by one answer.
        shift: added to a weight of each model.
        model: arguments of each `Classifier`.
        more: arguments of `evaluate`.
    """
    models = []
    for name in request.models:
        network = Failing(
            cnn() if "cnn" in name else linear(), None if calls is None else 1 + calls, error=KeyboardInterrupt
        )
        with torch.no_grad():
            network.model[-1].bias[3] += shift
        models.append(Classifier(network, name=name, **(ABOUT_SMOOTHING if name == "smoothed" else {}), **model or {}))
    usual = {"dataset": data(COUNT), "attacks": request.attacks, "eps": request.radii, "samples": request.samples,
             "checks": "none"}  # fmt: skip
    return evaluated(models, folder, **usual | more)


class Uninterrupted(NamedTuple):
    csv: tuple[bytes, bytes]
    tables: dict[str, list[tuple[object, ...]]]
    images: int  # over all stages
    run: Run


@cache
def uninterrupted(request: Request) -> Uninterrupted:
    watch = Recorder()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = run(request, folder, watch=watch)
        return Uninterrupted(csv(done, folder), tables(folder), watch.images, done)


def tables(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    rows = evidence(folder)
    return {name: rows[name] for name in TABLES}


def grown(values: tuple[str, ...], of: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """The values and perhaps some more, in any order."""
    rest = [value for value in of if value not in values]
    more = st.lists(st.sampled_from(rest), unique=True) if rest else st.just([])
    return more.flatmap(lambda new: st.permutations([*values, *new])).filter(bool).map(tuple)


def changed_data(what: str) -> tuple[Tensor, Tensor]:
    x, y = data(COUNT)
    if what == "label":
        return x, (y + 1) % 10
    if what == "images":
        return x.flip(3), y
    x[3, 0, 4, 4] = 0.123
    return x, y


class Refusal(NamedTuple):
    """A change that a folder with evidence refuses."""

    words: tuple[str, ...]  # in the sentence
    more: Mapping[str, Any] = MappingProxyType({})  # arguments of `run`
    request: Mapping[str, Any] = MappingProxyType({})  # changed fields of the request


REFUSALS = {
    "another seed": Refusal(("seed was 0, now 1",), {"seed": 1}),
    "another radius": Refusal(("the radius Linf 0.15 is missing",), {"eps": ["0.05", "0.2"]}),
    "fewer radii": Refusal(("the radius Linf 0.15 is missing",), {"eps": "0.05"}),
    "another norm": Refusal(("the radius Linf 0.05 is missing",), {"norm": "L2"}),
    "other images": Refusal(("dataset",), {"dataset": changed_data("images")}),
    "another pixel": Refusal(("dataset",), {"dataset": changed_data("pixel")}),
    "other labels": Refusal(("dataset",), {"dataset": changed_data("label")}),
    "another weight": Refusal(("model ", "sha256"), {"shift": 2**-10}),
    "other bounds": Refusal(("model ", "bounds"), {"model": {"bounds": (0, 2)}}),
    "another search": Refusal(("model ", "bf16"), {"model": {"bf16": True}}),
    "fewer samples": Refusal(("samples was ",), request={"samples": 2}),
    "another attack": Refusal(("the attack ", "is missing"), request={"attacks": ("bim:steps=2",)}),
    "another model": Refusal(("the model ", "is missing"), request={"models": ("cnn-2",)}),
}


def refused(request: Request, folder: Path, refusal: Refusal) -> None:
    with pytest.raises(UserError) as error:
        run(request._replace(**refusal.request), folder, **refusal.more)

    assert all(word in str(error.value) for word in (*refusal.words, "--out")), str(error.value)
    assert not ("samples" in refusal.request and "dataset" in str(error.value))
    assert not set('[]{}"') & set(str(error.value)), "JSON in a message"


class RunFolder(RuleBasedStateMachine):
    """What a caller may do with one folder; the rows in it are compared after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = Path(self.place.name) / "run"
        self.request = Request(0, (), ())
        self.rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
        self.images = 0

    def teardown(self) -> None:
        self.place.cleanup()

    def larger(self, draw: st.DataObject) -> Request:
        return Request(
            draw.draw(st.integers(max(3, self.request.samples), COUNT)),
            draw.draw(grown(self.request.attacks, ATTACKS)),
            draw.draw(grown(self.request.models, MODELS)),
        )

    @rule(draw=st.data(), batch_size=st.sampled_from([4, 20]))
    def evaluate(self, draw: st.DataObject, batch_size: int) -> None:
        self.grow(self.larger(draw), batch_size)

    def grow(self, request: Request, batch_size: int) -> None:
        self.request, watch = request, Recorder()
        done = run(self.request, self.folder, batch_size=batch_size, watch=watch)
        expected = uninterrupted(self.request)
        self.images += watch.images

        assert csv(done, self.folder) == csv(load_run(self.folder), self.folder) == expected.csv
        assert tables(self.folder) == expected.tables
        assert done.manifest["finished"] is not None
        # Nothing that was finished before is done again.
        assert self.images == expected.images

    @rule(
        draw=st.data(),
        batch_size=st.sampled_from([4, 20]),
        after=st.integers(0, 60),
        by=st.sampled_from(["watch", "model"]),
    )
    def interrupt(self, draw: st.DataObject, batch_size: int, after: int, by: str) -> None:
        self.stop(self.larger(draw), batch_size, after, by)

    def stop(self, request: Request, batch_size: int, after: int, by: str) -> None:
        watch = Recorder(after if by == "watch" else None)
        try:
            run(request, self.folder, calls=after if by == "model" else None, batch_size=batch_size, watch=watch)
        except KeyboardInterrupt:
            assert load_run(self.folder).manifest["finished"] is None
        self.request = request
        self.images += watch.images

    @precondition(lambda self: any(self.rows.values()))
    @rule(change=st.sampled_from(sorted(REFUSALS)))
    def refuse(self, change: str) -> None:
        before = evidence(self.folder)
        refused(self.request, self.folder, REFUSALS[change])

        assert evidence(self.folder) == before

    @invariant()
    def rows_stay(self) -> None:
        if not (self.folder / "run.sqlite").exists():
            return
        rows = tables(self.folder)
        assert all(set(self.rows[name]) <= set(rows[name]) for name in TABLES)
        self.rows = rows


def test_a_run_that_is_interrupted_and_grows_ends_at_the_bytes_of_an_uninterrupted_one():
    folder = RunFolder()
    request = Request(4, ("tiny",), ("cnn",))
    folder.stop(request, 4, 9, "watch")
    folder.rows_stay()
    folder.stop(request, 20, 12, "model")
    folder.rows_stay()
    folder.refuse("another weight")
    folder.grow(request, 4)
    folder.rows_stay()
    larger = Request(COUNT, ("fgsm", "tiny"), ("smoothed", "cnn"))
    folder.stop(larger, 20, 25, "watch")
    folder.rows_stay()
    folder.grow(larger, 20)
    folder.rows_stay()
    folder.teardown()


def walked(machine: type[RuleBasedStateMachine], steps: int) -> None:
    given = settings(
        max_examples=2, stateful_step_count=steps, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=given)


@pytest.mark.slow
def test_any_sequence_of_calls_ends_at_the_bytes_of_one_uninterrupted_run():
    walked(RunFolder, 5)


class GrowingRadii(RunFolder):
    """A folder to which radii and norms are added too.

    A radius below those of the folder gives it rows that one uninterrupted run would not have made; the tables and
    pictures that follow from its rows are the same.
    """

    def larger(self, draw: st.DataObject) -> Request:
        before = self.request.radii if self.request.samples else ()
        few = draw.draw(st.sampled_from([value for value in RADII if value not in before] or RADII))
        radii = draw.draw(st.permutations(list(dict.fromkeys([*before, few]))))
        return super().larger(draw)._replace(radii=tuple(radii))

    @rule(draw=st.data(), batch_size=st.sampled_from([4, 20]))
    def evaluate(self, draw: st.DataObject, batch_size: int) -> None:
        self.request = self.larger(draw)
        done = run(self.request, self.folder, batch_size=batch_size)
        whole = uninterrupted(self.request)

        assert csv(done, self.folder) == csv(load_run(self.folder), self.folder) == whole.csv
        assert [vars_of(one) for one in done.pictures] == [vars_of(one) for one in whole.run.pictures]
        assert done.manifest["identity"] == whole.run.manifest["identity"]

    def refuse(self, change: str) -> None:
        """Not here: the refusals name the radii of `RunFolder`."""


def vars_of(picture: Picture) -> dict[str, object]:
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in vars(picture).items()}


@pytest.mark.slow
def test_a_run_to_which_radii_and_norms_are_added_has_the_tables_of_one_that_had_them_at_once():
    walked(GrowingRadii, 4)


SMALL = Request(COUNT, ("fgsm",), ("linear",))


@pytest.mark.parametrize("attack", ["fgsm", "tiny"])
def test_a_radius_between_two_others_leaves_no_image_robust_that_it_breaks(attack, tmp_path):
    request = SMALL._replace(attacks=(attack,), radii=("0.2",))
    for radii in [("0.2",), ("0.2", "0.01"), ("0.01", "0.2", "0.1"), ("0.1", "0.01", "0.3", "0.2")]:
        done = run(request._replace(radii=radii), tmp_path)

    table = done.results[done.results.role == "worst-case"]
    assert table.eps_text.tolist() == ["0.01", "0.1", "0.2", "0.3"]
    assert table.correct.is_monotonic_decreasing
    assert csv(done, tmp_path) == uninterrupted(request._replace(radii=("0.01", "0.1", "0.2", "0.3"))).csv


@pytest.mark.parametrize("change", REFUSALS)
def test_a_changed_setting_is_refused_by_name_and_changes_nothing(change, tmp_path):
    run(SMALL, tmp_path)
    before = evidence(tmp_path)
    refused(SMALL, tmp_path, REFUSALS[change])

    assert evidence(tmp_path) == before


class Scaled(nn.Module):
    """Scales its input by a plain attribute, or by a buffer that is not saved."""

    def __init__(self, gain: float, *, buffer: bool) -> None:
        super().__init__()
        self.model = linear()
        if buffer:
            self.register_buffer("gain", torch.tensor(gain), persistent=False)
        else:
            self.gain = gain

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self.gain)


def run_of(model: nn.Module, folder: Path) -> Run:
    return evaluated(model, folder, dataset=data(COUNT), attacks="fgsm", eps="0.1")


@pytest.mark.parametrize("buffer", [True, False])
def test_a_value_that_is_no_weight_makes_another_model(buffer, tmp_path):
    run_of(Scaled(1.0, buffer=buffer), tmp_path)

    with pytest.raises(UserError, match="sha256"):
        run_of(Scaled(0.1, buffer=buffer), tmp_path)


def test_a_finished_run_asks_its_model_only_who_it_is_and_keeps_its_times(tmp_path):
    queries: list[int] = []

    def counting() -> nn.Module:
        # A new function each time, as in another process.
        return Changed(linear(), before=lambda x: queries.append(len(x)) or x)

    first = run_of(counting(), tmp_path)
    assert queries
    queries.clear()
    again = run_of(counting(), tmp_path)

    assert queries == [COUNT + 32]  # its images, and noise
    assert again.results.equals(first.results)
    assert again.manifest == first.manifest


def test_an_evaluation_that_failed_without_evidence_leaves_the_folder_free(tmp_path):
    with pytest.raises(UserError, match="NaN"):
        run(SMALL, tmp_path, shift=float("nan"))

    assert run(SMALL, tmp_path).results.equals(run(SMALL, None).results)


def test_a_folder_names_the_torch_that_made_it_and_warns_of_a_second_one(tmp_path, monkeypatch):
    first = run(SMALL._replace(samples=4), tmp_path)
    monkeypatch.setattr(environment, "_version", lambda package: "9.9")
    again, grown = (run(SMALL._replace(samples=samples), tmp_path) for samples in (4, 8))

    assert again.manifest["warnings"] == first.manifest["warnings"] == []
    assert again.manifest["environment"] == first.manifest["environment"]
    assert "9.9" in " ".join(grown.manifest["warnings"])


def test_an_attack_that_has_no_image_to_attack_is_still_in_the_results(tmp_path):
    x, _ = data(4)
    wrong = {"dataset": (x, torch.ones(4, dtype=torch.int64)), "eps": "0.1"}
    evaluate(Constant(0), attacks=["fgsm"], out=tmp_path, **wrong)
    both = evaluate(Constant(0), attacks=["fgsm", "pgd:steps=2"], out=tmp_path, **wrong)

    assert list(both.results["attack"]) == ["clean", "fgsm", "pgd:steps=2", "worst-case"]
    assert load_run(tmp_path).results.equals(both.results)


class Counting(nn.Module):
    """Counts its passes in a plain attribute, which the hash of a model contains."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.passes = linear(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return self.inner(x)


def test_a_model_that_counts_its_passes_may_go_on_more_than_once(tmp_path: Path):
    for samples in (4, 6, 8):
        done = evaluate(
            Counting(), dataset=data(COUNT), samples=samples, attacks="fgsm", norm="Linf", eps=0.1, out=tmp_path
        )

    assert done.samples["sample"].nunique() == COUNT
