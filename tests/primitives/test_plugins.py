"""Attacks of other distributions, found by their entry points: a generated distribution on the path."""

import re
import sys
from pathlib import Path

import pytest

import robustkit
from robustkit import UserError
from robustkit.cli import main
from robustkit.host.failures import as_users_error
from robustkit.primitives import plugins, registry
from tests.small import data, evaluated, evidence, linear

ATTACK = """
from dataclasses import dataclass, replace

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import begin


@dataclass(frozen=True)
class Mine(Ascent):
    bold: float = 1.0

    def init(self, trials):
        return begin(trials, trials.x)

    def step(self, state, seen):
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.bold * self.ball.eps)
        return replace(state, query=query, queries=state.queries + 1, done=state.queries + 1 >= self.steps)
"""


def install(folder: Path, distribution: str, points: dict[str, str], code: str = ATTACK) -> None:
    """A distribution as an installer leaves it: a module, and its dist-info folder."""
    module = distribution.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[robustkit.attacks]", *lines, ""]))


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(plugins, "_LOADED", {})
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def listed(capsys) -> str:
    with pytest.raises(SystemExit) as end:
        main(["list", "attacks"], prog_name="robustkit")
    assert not end.value.code
    return capsys.readouterr().out


def test_an_attack_of_another_distribution_is_run_by_its_name(site):
    install(site, "bold-attacks", {"bold": "bold_attacks:Mine"})
    result = robustkit.attack(linear(), *data(10), "bold:steps=3,bold=0.5", eps=0.2)

    assert result.robust_accuracy < result.clean_accuracy


def test_a_run_records_distribution_and_version(site):
    install(site, "bold-attacks", {"bold": "bold_attacks:Mine"})
    folder = site / "run"
    folder.mkdir()
    run = evaluated(linear(), folder, dataset=data(8), attacks="bold:steps=2", eps=0.1)

    assert "bold:steps=2" in set(run.results.attack)
    assert "bold-attacks 1.5" in str(evidence(folder))


def test_an_attack_of_another_distribution_is_spelled_by_its_entry_point(site):
    install(site, "bold-attacks", {"Bold": "bold_attacks:Mine"})

    assert registry.spelled(registry.build("bold:steps=3", "Linf", 0.1)) == "bold:steps=3"


def test_it_is_listed_with_its_distribution(site, capsys):
    install(site, "bold-attacks", {"bold": "bold_attacks:Mine"})
    (line,) = [line for line in listed(capsys).splitlines() if line.startswith("bold ")]

    assert "bold-attacks 1.5" in line
    assert "bold=1.0" in line


@pytest.mark.parametrize(
    ("code", "target", "words"),
    [
        ("import nothing_of_this_name", "Mine", "cannot be loaded"),
        ("raise SystemExit(3)", "Mine", "cannot be loaded"),
        ("x = 1", "Mine", "cannot be loaded"),
        ("class Mine: pass", "Mine", "not derived from"),
        ("from robustkit.primitives.protocol import Attack as Mine", "Mine", "must define"),
    ],
)
def test_a_broken_one_breaks_nothing_but_itself(code, target, words, site, capsys):
    install(site, "broken", {"bold": f"broken:{target}"}, code)

    assert words in next(line for line in listed(capsys).splitlines() if line.startswith("bold "))
    assert robustkit.attack(linear(), *data(4), "fgsm", eps=0.1).queries.sum() > 0
    with pytest.raises(UserError, match=words) as error:
        registry.build("bold", "Linf", 0.1)
    assert "broken 1.5" in str(error.value)


def test_a_name_of_the_package_cannot_be_taken(site, capsys):
    install(site, "rogue", {"pgd": "rogue:Mine", "universal": "rogue:Mine", "default": "rogue:Mine"})
    lines = listed(capsys).splitlines()

    assert type(registry.build("pgd", "Linf", 0.1)).__module__ == "robustkit.attacks.gradient.pgd"
    assert sum("refused: of rogue 1.5" in line for line in lines) == 3


def test_two_distributions_with_one_name_are_refused(site, capsys):
    install(site, "one", {"bold": "one:Mine"})
    install(site, "two", {"bold": "two:Mine"})

    with pytest.raises(UserError, match=r"(one|two) 1\.5 and (one|two) 1\.5 both have an attack called bold"):
        registry.build("bold", "Linf", 0.1)
    assert "refused" in listed(capsys)


def test_a_misspelt_name_is_told_the_right_one(site):
    install(site, "bold-attacks", {"boldest": "bold_attacks:Mine"})

    with pytest.raises(UserError, match="did you mean boldest"):
        registry.build("boldset", "Linf", 0.1)


def test_what_fails_in_an_installed_attack_is_no_bug_of_robustkit(site, monkeypatch):
    folder = site / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    install(folder, "failing", {"failing": "failing:Mine"}, ATTACK.replace("query = self", "query = state.nothing"))
    with pytest.raises(AttributeError) as error:
        robustkit.attack(linear(), *data(4), "failing", eps=0.1)

    assert re.search(r"The code of .*failing.py failed in line \d+ \(step\)", str(as_users_error(error.value)))
