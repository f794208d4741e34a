"""`robustkit verify` measures distances of features again: pixels do not say them."""

import shutil

import pytest

from tests.cli.conftest import DATA
from tests.cli.test_verify import edited

NETWORK = """import torch
from torch import nn


def make():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def copy(kept, place, robustkit):
    """A run with the model's own features in `own`, and one with those of features.py in `other`."""
    (place / "features.py").write_text(NETWORK)
    lpips = ("-n", "12", "--norm", "lpips", "--eps", "0.9", "--keep-adversarial")
    for name, attack in (("own", "ppgd"), ("other", "ppgd:network=features.py:make,layers=1")):
        if not (kept / name).exists():
            assert robustkit("evaluate", "-q", *CNN, "-a", attack, *lpips, "--out", kept / name).status == 0
        shutil.copytree(kept / name, place / name)
    return place


CNN = (*DATA, "-m", "net.py:other")


def test_the_distance_in_features_was_never_measured_again(copy, robustkit):
    printed = robustkit("verify", "own", *CNN)

    assert printed.status == 0
    assert "stored adversarial examples lie within the radius" in printed.out


def test_without_the_model_it_is_said_that_nothing_was_measured(copy, robustkit):
    printed = robustkit("verify", "own")

    assert printed.status == 0
    assert "lpips: distances not measured again, because that needs --model" in printed.out


@pytest.mark.parametrize(("run", "words"), [("own", ()), ("other", ("--features", "features.py:make"))])
def test_an_example_that_was_moved_out_of_its_ball_of_features_is_found(run, words, copy, robustkit):
    # A smaller radius in all rows: everything else agrees with everything else.
    for table in ("attacked", "witness", "picture", "confidence"):
        edited(copy / run, f"UPDATE {table} SET eps_text = '0.001'")
    edited(copy / run, """UPDATE run SET value = replace(value, '"0.9"', '"0.001"')""")
    printed = robustkit("verify", run, *CNN, *words)

    assert printed.status == 1
    assert "lies outside of its ball in lpips" in printed.out


def test_a_network_that_the_evidence_names_is_not_loaded_unasked(copy, robustkit):
    (copy / "features.py").write_text("raise SystemExit('executed')")
    printed = robustkit("verify", "other", *CNN)

    assert printed.status == 0
    assert "distances in lpips not measured again: it takes the network features.make; name it again" in printed.out


def test_the_network_is_compared_with_that_of_the_run(copy, robustkit):
    measured = robustkit("verify", "other", *CNN, "--features", "features.py:make")
    assert measured.status == 0
    assert "stored adversarial examples lie within the radius" in measured.out

    (copy / "features.py").write_text(NETWORK.replace("(3)", "(4)"))
    assert (
        "another one than that of the run" in robustkit("verify", "other", *CNN, "--features", "features.py:make").out
    )
    assert "the run's features are those of" in robustkit("verify", "other", *CNN, "--features", "resnet18").out
