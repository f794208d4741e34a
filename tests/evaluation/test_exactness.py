"""The same inputs and seed give the same bits, whatever the batch size, the order and the company."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from robustkit import Classifier, evaluate
from robustkit.evidence.run import Run
from tests.small import cnn, csv, data, evaluated, linear

ATTACKS = ("fgsm", "tiny", "pgd:steps=3,restarts=2", "apgd-t:steps=3,targets=2", "noise:queries=4")
EPS = ("0.05", "0.1")
KEYS = ("model", "norm", "eps_text", "attack", "sample")


def classifiers(*kinds: str) -> list[Classifier]:
    return [Classifier({"linear": linear, "cnn": cnn}[kind](), name=kind) for kind in kinds]


def run(*kinds: str, folder: str | None = None, **more: object) -> Run:
    settings = {"attacks": ATTACKS, "eps": EPS, "dataset": data(6), "checks": "none", **more}
    return evaluated(classifiers(*kinds), folder and Path(folder), **settings)


@cache
def reference() -> Run:
    return run("linear", "cnn")


def witnesses(run: Run) -> dict[tuple[object, ...], tuple[bytes, int]]:
    return {tuple(getattr(p, key) for key in KEYS): (p.x_adv.tobytes(), p.adv_pred) for p in run.pictures}


def by_key(frame):
    keys = [key for key in KEYS if key in frame]
    return frame.sort_values(keys).reset_index(drop=True)


@pytest.mark.parametrize(
    "change",
    [{"batch_size": 1, "folder": "run"}, {"batch_size": 4, "eps": EPS[::-1]}],
    ids=str,
)
def test_a_second_run_gives_the_same_bytes_whatever_its_batches_and_its_folder(change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1234)
    np.random.seed(5)
    other = run("linear", "cnn", **change)

    assert csv(other, tmp_path / "a") == csv(reference(), tmp_path / "b")
    assert witnesses(other) == witnesses(reference())
    assert other.results.equals(reference().results)
    assert other.samples.equals(reference().samples)


@pytest.mark.parametrize("change", ["models", "attacks"])
def test_the_order_of_models_and_attacks_changes_no_number(change):
    turned = run("cnn", "linear") if change == "models" else run("linear", "cnn", attacks=ATTACKS[::-1])

    for name in ("results", "samples"):
        assert by_key(getattr(turned, name)).equals(by_key(getattr(reference(), name)))
    assert witnesses(turned) == witnesses(reference())


@pytest.mark.parametrize(
    ("kinds", "change"),
    [(("cnn",), {}), (("linear", "cnn"), {"attacks": ("noise:queries=4",)}), (("cnn",), {"samples": 4})],
    ids=["one model", "one attack", "fewer samples"],
)
def test_a_part_of_a_run_has_the_numbers_of_the_whole(kinds, change):
    part, whole = run(*kinds, **change), reference().samples
    chosen = whole.model.isin(kinds) & whole["sample"].isin(part.samples["sample"])
    if "attacks" in change:
        chosen &= whole.attack.isin(change["attacks"])

    assert part.samples["sample"].nunique() == change.get("samples", 6)
    assert part.samples.equals(whole[chosen].reset_index(drop=True))


def test_another_seed_changes_the_noise_and_no_clean_image():
    other, whole = run("linear", "cnn", seed=1), reference()

    assert not other.samples.equals(whole.samples)
    assert other.results[other.results.role == "clean"].equals(whole.results[whole.results.role == "clean"])


@pytest.mark.parametrize(("norm", "eps"), [("L2", "0.4"), ("L1", "1.5"), ("L0", "3")])
def test_results_in_other_norms_do_not_depend_on_the_batch_size_either(norm, eps):
    attacks = ["noise:queries=4"] if norm == "L0" else ["fgsm", "apgd-ce:steps=4", "square:queries=8"]
    one, other = (run("cnn", attacks=attacks, norm=norm, eps=eps, batch_size=size) for size in (3, 64))

    assert one.samples.equals(other.samples)
    assert witnesses(one) == witnesses(other)


@pytest.mark.parametrize("twice", [False, True])
def test_two_models_of_one_name_get_two_names_and_the_classifiers_keep_theirs(twice):
    one = classifiers("linear")[0]
    other = one if twice else classifiers("linear")[0]
    made = evaluate([one, other], dataset=data(4), attacks="fgsm", eps=0.1)

    assert made.results.model.value_counts().to_dict() == {"linear": 3, "linear-2": 3}
    assert (one.name, other.name) == ("linear", "linear")
