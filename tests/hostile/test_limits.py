"""What options and hyper-parameters may ask for is bounded, and the bound is met before any work."""

import contextlib
import re
from pathlib import Path

import click
import pytest
import torch
from robustkit.defenses import Recipe
from robustkit.defenses.ablation.ablation import jobs_of
from robustkit.defenses.ablation.grid import axes_of, cells_of
from robustkit.defenses.inner_attack.specification import inner_attack
from torch import nn

from robustkit import limits
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.cli.option_types import CountOr, Duration, OpenShare
from robustkit.data import from_tensors, held_out
from robustkit.errors import UserError
from robustkit.evaluation.threats import threats_of
from robustkit.models import load_model
from robustkit.primitives import registry
from robustkit.primitives.threat import ball
from tests.hostile.files import NUMBERS
from tests.hostile.guard import not_refused, run_limited

HUGE = ("2147483647", "2147483648", "9" * 20, "9" * 400, "9" * 5000, "1e18", "nan", "inf", "-1")


def test_a_radius_that_would_take_for_ever_is_refused_at_once(tmp_path):
    # In a process of its own: nothing stops Fraction("1e99999999999") but the end of the process.
    def refuse_each() -> None:
        for text in NUMBERS:
            for call in (
                lambda text=text: threats_of(["Linf"], [text], []),
                lambda text=text: threats_of([], ["L2:" + text], []),
                lambda text=text: ball("L1", text),
            ):
                with pytest.raises(UserError) as refused:
                    call()
                assert len(str(refused.value)) < 600

    assert run_limited(refuse_each, tmp_path) == (0, "")


@pytest.mark.parametrize("text", ["8/255", "0.5", "1e-3", ".5", "1.", "+0.1", " 8/255 ", "1E-2", "0"])
def test_a_radius_as_people_write_it_is_accepted(text):
    assert threats_of(["Linf"], [text], [])[0].eps <= 0.5 or text == "1."


@pytest.mark.parametrize("value", HUGE)
def test_an_attack_of_endless_work_is_refused(value):
    names = {"pgd": ("steps", "restarts", "targets"), "square": ("queries", "restarts"), "apgd": ("steps",),
             "noise": ("queries",), "ila": ("guide_steps",)}  # fmt: skip

    assert not not_refused(
        (f"{attack}:{key}", lambda text=f"{attack}:{key}={value}": registry.build(text, "Linf", "0.1"))
        for attack, keys in names.items()
        for key in keys
    )


@pytest.mark.parametrize("value", HUGE)
def test_a_training_of_endless_work_is_refused(value):
    number = registry.value_of(value)

    assert not not_refused([
        ("free", lambda: inner_attack(f"free:{value}", "Linf", 0.1)),
        *((name, lambda name=name: Recipe(**{name: number})) for name in ("epochs", "batch", "accumulate")),
    ])  # fmt: skip


def test_an_ablation_of_endless_work_is_refused():
    ten = [f"prefix:layer{number}" for number in range(10)]
    axes = axes_of(dict.fromkeys(("freeze", "prior", "objective", "select", "fresh", "attack"), ten))
    cells = cells_of(axes, "main-effects")

    assert not not_refused([
        ("seeds", lambda: jobs_of(cells, 10**9)),
        ("seeds times cells", lambda: jobs_of(cells, 1000)),
        ("a million cells", lambda: cells_of(axes, "full")),
    ])  # fmt: skip


def test_more_draws_than_anyone_waits_for_are_refused():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    assert not not_refused([
        ("eot", lambda: Classifier(network, eot=2**31)),
        ("draws", lambda: Classifier(network, draws=2**31)),
        ("n", lambda: Smoothing(0.25, n=2**31)),
        ("n0", lambda: Smoothing(0.25, n0=2**31)),
        ("sigma", lambda: Smoothing(float("nan"))),
        ("alpha", lambda: Smoothing(0.25, alpha=float("nan"))),
    ])  # fmt: skip


def test_more_classes_and_pixels_than_fit_are_refused(tmp_path):
    from robustkit.data import load_dataset

    (tmp_path / "a").mkdir()

    assert not not_refused([
        ("classes", lambda: load_model("resnet18", dataset="digits", num_classes=10**9)),
        ("side", lambda: load_dataset(str(tmp_path), image_size=30000)),
    ])  # fmt: skip


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -1.0, 0.0, 1.0, 2.0, 1e300])
def test_a_share_that_is_none_is_refused(share):
    data = from_tensors(torch.zeros(20, 1, 8, 8), torch.zeros(20, dtype=torch.int64))

    assert not not_refused([("share", lambda: held_out(data, share))])


@pytest.mark.parametrize("kind", [CountOr("all"), Duration(), OpenShare(0, 0.5)], ids=lambda kind: type(kind).__name__)
def test_an_option_answers_to_any_number(kind):
    for text in NUMBERS:
        with contextlib.suppress(click.UsageError):
            assert 0 < kind.convert(text, None, None) < 10**18


def test_every_limit_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    values = {name: value for name, value in vars(limits).items() if name.isupper() and name != "MIB"}

    def written(value: int) -> str:
        return f"{value // limits.MIB:,} MiB" if value % limits.MIB == 0 and value > 2**25 else f"{value:,}"

    assert not {name for name, value in values.items() if not re.search(rf"(?<![\d,]){written(value)}(?![\d,])", page)}


def test_a_user_text_in_an_error_is_short_printable_and_on_one_line():
    for text in ("a\nb", "\x1b[2J", "\udcff", "x" * 10**7, "\u202e", Path("a" * 5000)):
        assert limits.shortened(text).isprintable()
        assert len(limits.shortened(text)) <= limits.SHOWN + 3
    assert limits.shown(10**5000) == "a number of thousands of digits"
