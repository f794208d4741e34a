"""`--help`, `--plan`, `list` and `cache`: commands that query no model and change no run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from robustkit.primitives.threat import THREATS
from tests.cli.conftest import DATA, MODEL, SMALL

ROOT = Path(__file__).parents[2]


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["evaluate", "--help"], ["--version"], ["evaluate", "--nosuch"]], ids=" ".join
)
def test_help_does_not_wait_for_torch(words):
    code = (
        "import sys, atexit\n"
        "heavy = {'torch', 'pandas', 'scipy'}\n"
        "atexit.register(lambda: print('HEAVY', [*heavy & set(sys.modules)]))\n"
        "from robustkit.cli import main\n"
        "main(sys.argv[1:], prog_name='robustkit')"
    )

    assert "HEAVY []" in python(code, *words).stdout


def test_python_m_robustkit_is_robustkit():
    done = subprocess.run(
        [sys.executable, "-m", "robustkit", "--version"], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd="/",
    )  # fmt: skip

    assert done.stdout.startswith("robustkit, version ")


def test_the_plan_is_printed_and_nothing_is_written(robustkit, place):
    before = sorted(place.rglob("*"))
    # A model that would have to be trained: none is loaded.
    printed = robustkit("evaluate", "-m", "resnet18", *DATA, "-a", "fgsm", "-a", "default", "--eps", "0.1", "--plan")

    assert printed.status == 0
    assert all(word in printed.out for word in ("fgsm", "rk-14/first", "rk-14/square", "Linf 0.1", "30 images"))
    assert sorted(place.rglob("*")) == before
    assert not (place.parent / "cache").exists()


def test_a_plan_names_the_mask_and_refuses_what_is_none(robustkit):
    words = ("evaluate", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1", "--plan", "--mask")

    assert "Linf-in-patch-1-2-3-4 0.1  " in robustkit(*words, "patch:1,2,3,4").out
    assert "is not a mask" in robustkit(*words, "patch:1,2").err


def test_the_bound_of_a_plan_is_never_exceeded(robustkit, place):
    attacks = ("-a", "pgd:steps=3,restarts=2", "-a", "noise:queries=4")
    words = (*MODEL, "-m", "net.py:sure", *DATA, *attacks, "--eps", "0.02", "-n", "10")
    total = robustkit("evaluate", *words, "--plan").out.splitlines()[-1]
    robustkit("evaluate", "-q", *words, "--out", "run")
    table = pd.read_csv(place / "run" / "results.csv")
    spent = table[table.role.isin(["clean", "worst-case"])]
    forwards, backwards = (int(word.replace(",", "")) for word in total.split() if word.replace(",", "").isdigit())

    assert 0 < spent.forwards.sum() <= forwards
    assert 0 < spent.backwards.sum() <= backwards


def test_a_plan_counts_only_the_audited_survivors(robustkit):
    words = ("evaluate", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1", "--plan")
    few, all_of_them = (robustkit(*words, "--audit", count).out.splitlines() for count in ("2", "1000"))
    ((few_name, *_, few_forwards, _),) = (line.split() for line in few if "audit/square" in line)
    ((*_, all_forwards, _),) = (line.split() for line in all_of_them if "audit/square" in line)

    assert few_name == "audit/square"
    assert int(few_forwards.replace(",", "")) * 15 == int(all_forwards.replace(",", ""))


def test_every_norm_is_named_in_the_help_of_evaluate(robustkit):
    words = robustkit("evaluate", "--help").out.split("--norm TEXT")[1].split("--eps")[0]

    assert set(THREATS) <= set(re.findall(r"\w+", words))


def test_attacks_are_listed_with_their_hyper_parameters(robustkit):
    printed = robustkit("list", "attacks")

    assert printed.status == 0
    for name in ("fgsm", "pgd", "apgd-t", "square", "noise", "default", "rk-14", "autoattack", "autoattack-rand"):
        assert any(line.split()[0] == name for line in printed.out.splitlines())
    assert "steps=" in printed.out


def test_attacks_are_listed_with_what_a_trial_costs(robustkit):
    lines = {line.split()[0]: line.split() for line in robustkit("list", "attacks").out.splitlines()}

    assert lines["pgd"][1:4] == ["Linf/L2/L1/L0", "gradients", "41+40"]
    assert lines["square"][1:4] == ["Linf/L2/L1", "scores", "5000+0"]
    assert lines["ifgsm"][1:] == ["=", "bim"]


def test_attacks_are_listed_with_their_kind_and_paper(robustkit):
    lines = {line.split()[0]: line for line in robustkit("list", "attacks").out.splitlines()}

    assert "41+40        radius   Madry et al. 2018, arXiv:1706.06083 " in lines["pgd"]
    assert "9001+9000    nearest  Carlini & Wagner 2017, arXiv:1608.04644 " in lines["cw"]
    assert "2000+0       nearest  Chen et al. 2020, arXiv:1904.02144 " in lines["hopskipjump"]
    assert "radius   Al-Dujaili & O'Reilly 2020, ICLR " in lines["signhunter"]
    assert "radius   -  " in lines["guided_square"]


def test_autoattack_is_listed_with_its_members_in_l1(robustkit):
    (line,) = (each for each in robustkit("list", "attacks").out.splitlines() if each.split()[0] == "autoattack")

    assert "fab-t" in line
    assert "in L1 apgd-ce:steps=100,restarts=5 -> apgd-t:steps=100,targets=5" in line


def test_autoattack_runs_from_the_command_line(robustkit):
    words = ("-a", "autoattack", "--eps", "Linf:0.2", "--eps", "L1:8", "-n", "4")
    printed = robustkit("evaluate", "-q", *MODEL, *DATA, *words)

    assert printed.status == 0
    assert all(name in printed.out for name in ("autoattack", "apgd-ce", "apgd-t", "fab-t", "square", "worst-case"))


@pytest.mark.parametrize(("kind", "names"), [("models", ["resnet18", "vgg16"]), ("datasets", ["digits", "cifar10"])])
def test_models_and_data_sets_are_listed(kind, names, robustkit):
    lines = robustkit("list", kind).out.splitlines()

    assert set(names) <= {line.split()[0] for line in lines}


def test_data_sets_are_listed_with_their_default_norms_and_radii(robustkit):
    lines = [line.split(maxsplit=1) for line in robustkit("list", "datasets").out.splitlines()]

    assert {"digits": "Linf 0.1", "cifar10": "Linf 8/255, L2 0.5", "imagenet": "Linf 4/255"}.items() <= dict(
        lines
    ).items()


def test_every_listed_attack_can_be_named(robustkit):
    lines = [line.split() for line in robustkit("list", "attacks").out.splitlines()]
    assert "path/file.py" in lines.pop()[0]
    listed = [(name, norms) for name, norms, *_ in lines if name not in ("default", "attack") and norms != "="]
    norms_of = dict(listed)
    others = {line[0]: norms_of[line[2].partition(":")[0]] for line in lines if line[1] == "="}
    for norm, eps in (("Linf", "0.1"), ("L2", "0.5"), ("L1", "5"), ("L0", "5")):
        known = [
            name for name, norms in listed if norm in norms.split("/") or (norms == "ensemble:" and norm == "Linf")
        ]
        # Two names of one attack are refused.
        for names in (known, *([name] for name, norms in others.items() if norm in norms.split("/"))):
            words = [word for name in names for word in ("-a", name)]
            assert robustkit("evaluate", *MODEL, *DATA, *words, "--norm", norm, "--eps", eps, "--plan").status == 0


def cached(place) -> Path:
    import torch

    from robustkit.models import cache

    path = cache.path_of("resnet18", "digits", {"a": 1})
    cache.store(path, {"w": torch.zeros(3)}, {"model": "resnet18", "dataset": "digits", "val_accuracy": "0.9"})
    return path


def test_the_cache_lists_what_is_in_it(robustkit, place):
    path = cached(place)
    printed = robustkit("cache", "list")

    assert str(path) in printed.out
    assert str(place.parent / "cache") in printed.out


def test_an_empty_cache_is_listed_too(robustkit):
    assert robustkit("cache", "list").status == 0


@pytest.mark.parametrize(("words", "status"), [([], 0), (["resnet18"], 0), (["vgg16"], 2)])
def test_the_cache_is_cleared_of_all_models_or_of_one(words, status, robustkit, place):
    path = cached(place)
    printed = robustkit("cache", "clear", *words)

    assert printed.status == status
    assert path.exists() == (status == 2)


def test_results_go_to_stdout_and_progress_to_stderr(robustkit, place):
    printed = robustkit(*(word for word in SMALL if word != "-q"), "--out", "run")

    assert "worst-case" in printed.out
    assert "net.factory clean: 30 images" in printed.err
    assert "images to do" not in printed.out


def test_quiet_says_nothing_on_stderr(robustkit):
    assert robustkit(*SMALL).err == ""
