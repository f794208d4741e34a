"""The GitHub action: its shell is run as it stands, and no input of it becomes a command."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from robustkit.cli import main

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
EXAMPLE = yaml.safe_load(
    (ROOT / "docs" / "ci-gate.md").read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
)

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action's steps are for bash")


def test_every_input_is_used_and_every_use_is_an_input():
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))

    assert used == set(ACTION["inputs"])
    assert not any("${{" in step["run"] for step in STEPS)


def test_the_example_of_the_documentation_uses_inputs_and_outputs_that_exist():
    steps = EXAMPLE["jobs"]["robustness"]["steps"]
    (own,) = (step for step in steps if step.get("id") == "robustkit")
    required = {name for name, each in ACTION["inputs"].items() if each.get("required")}

    assert required <= set(own["with"]) <= set(ACTION["inputs"])
    assert "outputs.run" in steps[-1]["with"]["path"]
    assert "run" in ACTION["outputs"]


def called(step, tmp_path, **inputs):
    """The commands that a step gives to robustkit, which is replaced by a program that writes down its arguments."""
    fake = tmp_path / "bin" / "robustkit"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text(
        f'#!{sys.executable}\nimport sys\nopen({str(tmp_path / "calls")!r}, "a").write(repr(sys.argv[1:]) + "\\n")\n'
    )
    fake.chmod(0o755)
    values = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()} | inputs
    names = {key: re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", text).group(1) for key, text in step["env"].items()}
    environment = {key: values[name] for key, name in names.items()}
    files = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    search = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    # As GitHub starts bash.
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    subprocess.run(shell, check=True, env={"PATH": search, **environment, **files}, cwd=tmp_path)
    return [eval(line) for line in (tmp_path / "calls").read_text().splitlines()]


HOSTILE = "net.py:$(touch hacked);`touch hacked` \"'"


def test_the_commands_have_real_options_and_inputs_stay_texts(tmp_path):
    _, evaluate, gate = STEPS
    options = f"--image-size=32\n--name={HOSTILE}"
    calls = called(evaluate, tmp_path, models=f"{HOSTILE}\nother", eps="8/255\n\n0.1", norms="", options=options)
    calls = called(gate, tmp_path, baseline="old run", **{"fail-under": "Linf@8/255>=0.40\nclean>=90%"})

    assert [call[0] for call in calls] == ["evaluate", "show", "gate"]
    for name, *arguments in calls:
        parsed = main.commands[name].make_context(name, list(arguments), resilient_parsing=False).params
        if name == "evaluate":
            assert parsed["models"] == (HOSTILE, "other")
            assert parsed["radii"] == ("8/255", "0.1")
            assert (parsed["image_size"], parsed["names"]) == (32, (HOSTILE,))
        if name == "gate":
            assert parsed["fail_under"] == ("Linf@8/255>=0.40", "clean>=90%")
            assert parsed["baseline"] == Path("old run")
    assert not (tmp_path / "hacked").exists()
    assert "run=robustkit-run" in (tmp_path / "output").read_text()


def test_a_run_folder_that_looks_like_an_option_is_a_folder(tmp_path):
    _, evaluate, gate = STEPS
    called(evaluate, tmp_path, models="net.py:make", out="-run")
    calls = called(gate, tmp_path, out="-run", **{"fail-under": "clean>=90%"})

    for name, *arguments in calls[1:]:
        assert main.commands[name].make_context(name, arguments).params["run"] == Path("-run")
