"""`robustkit evaluate` and `robustkit report`: folders, files and bytes."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.cli.conftest import DATA, MODEL, SMALL, without
from tests.cli.test_bad_input import refused
from tests.evaluation.test_autoattack import shorter
from tests.small import data, evidence, linear, save

FILES = {"report.html", "results.csv", "samples.csv", "run.sqlite"}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def interrupted_after(images: int, monkeypatch) -> None:
    """Interrupt the run as soon as this many images of one stage are finished."""
    from robustkit.host.bars import Bars

    def stop(self, finished, robust):
        if finished >= images:
            raise KeyboardInterrupt

    monkeypatch.setattr(Bars, "advance", stop)


@pytest.fixture
def run(run_once):
    return run_once("run", *SMALL)


def test_a_run_folder_holds_four_files_which_pandas_reads(robustkit, place):
    printed = robustkit(*SMALL, "--out", "run")
    results, samples = (pd.read_csv(place / "run" / name) for name in ("results.csv", "samples.csv"))
    manifest = {key: json.loads(value) for key, value in evidence(place / "run")["run"]}

    assert printed.status == 0
    assert "run" in printed.out.splitlines()[-1]
    assert set(contents(place / "run")) == FILES
    assert results.role.tolist() == ["clean", "attack", "worst-case"]
    assert len(samples) == 30
    assert (samples.verdict == "robust").sum() == results.correct[1]
    assert "robustkit" in manifest["command"]
    assert manifest["finished"]


def test_an_audit_is_added_to_a_finished_run(robustkit, place, monkeypatch):
    shorter(monkeypatch)
    alone = robustkit(*SMALL, "--out", "run")
    audited = robustkit(*SMALL, "--audit", "5", "--out", "run")
    (row,) = pd.read_csv(place / "run" / "results.csv").query("role == 'audit'").itertuples()

    assert alone.status == audited.status == 0
    assert row.n == 5
    assert f"audit: AutoAttack broke {row.broken} of 5 survivors" in audited.out
    assert "audit" not in alone.out
    refused(robustkit(*SMALL, "--out", "run"), "audit was 5", "--out")


def test_without_out_the_same_command_finds_its_folder(robustkit, place):
    robustkit(*SMALL)
    robustkit(*SMALL)
    robustkit(*SMALL, "--seed", "1")

    assert len(list((place / "robustkit-runs").iterdir())) == 2


def test_the_batch_size_does_not_change_a_byte(robustkit, place):
    for size in ("1", "64", "auto"):
        robustkit(*SMALL, "-a", "pgd:steps=2", "-a", "noise:queries=2", "-n", "12", "-b", size, "--out", size)
    one, *others = [contents(place / size) for size in ("1", "64", "auto")]

    assert all(other[name] == one[name] for other in others for name in ("results.csv", "samples.csv"))


def test_a_finished_run_is_only_printed(robustkit, place):
    first = robustkit(*SMALL, "--out", "run")
    before = evidence(place / "run")
    again, after = robustkit(*SMALL, "--out", "run"), evidence(place / "run")

    assert again == first
    assert all(after[table] == before[table] for table in before if table != "run")


def test_a_run_grows_to_the_bytes_of_a_fresh_one(robustkit, place):
    more = ("-n", "9999", "-a", "noise:queries=3", "-m", "net.py:sure")
    robustkit(*SMALL, "-n", "10", "--out", "grown")
    for out in ("grown", "fresh"):
        robustkit(*SMALL, *more, "--out", out)

    for name in ("results.csv", "samples.csv"):
        assert (place / "grown" / name).read_bytes() == (place / "fresh" / name).read_bytes()


CHANGES = {
    "seed": (["--seed", "1"], ["seed was 0, now 1"]),
    "fewer samples": (["-n", "10"], ["samples was 30, now 10"]),
    "norm": (["--norm", "L2"], ["the radius Linf 0.1 is missing"]),
    "bf16": (["--bf16"], ["bf16"]),
    "TF32": (["--tf32"], ["tf32"]),
    "fold": (["--no-fold"], ["fold"]),
    "data": (["-d", "turned.npz"], ["dataset"]),
}


def test_a_changed_setting_is_refused_and_no_file_is_changed(robustkit, place, run):
    x, y = data(30)
    save(place / "turned.npz", x.flip(2), y)
    before = evidence(place / "run"), {file: file.read_bytes() for file in (place / "run").glob("*.[ch]*")}

    for words, expected in CHANGES.values():
        printed = robustkit(*without(SMALL, *{"-d"}.intersection(words)), *words, "--out", "run")
        refused(printed, *expected, "--out")
        assert not set('[]{}"') & set(printed.err), "JSON in a message"
        assert (
            evidence(place / "run"),
            {file: file.read_bytes() for file in (place / "run").glob("*.[ch]*")},
        ) == before


def test_changed_weights_are_refused(robustkit, place):
    state = linear().state_dict()
    torch.save(state, place / "w.pt")
    robustkit(*SMALL, "--weights", "w.pt", "--out", "run")
    torch.save({key: value * 1.01 for key, value in state.items()}, place / "w.pt")

    refused(robustkit(*SMALL, "--weights", "w.pt", "--out", "run"), "net.factory", "--out")


@pytest.mark.parametrize("changed", ["model.py", "layers.py"])
def test_changed_code_of_a_model_or_of_what_it_imports_is_refused(changed, robustkit, place):
    (place / "layers.py").write_text("def scaled(x):\n    return 0.5 * x\n")
    (place / "model.py").write_text(
        "import layers\nfrom torch import nn\nfrom tests import small\n\nGAIN = 0.5\n\nclass Half(nn.Module):\n"
        "    def forward(self, x):\n        return GAIN * layers.scaled(x)\n\n"
        "def make():\n    return nn.Sequential(Half(), small.linear())\n"
    )
    words = ("evaluate", "-q", "-m", "model.py:make", *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "run")
    assert robustkit(*words).status == 0
    (place / changed).write_text((place / changed).read_text().replace("0.5", "0.1"))

    refused(robustkit(*words), "model.make", "--out")


def test_files_of_one_name_in_two_folders_are_two_models(robustkit, place):
    for name, gain in (("one", "1.0"), ("two", "-1.0")):
        (place / name).mkdir()
        (place / name / "layers.py").write_text(f"GAIN = {gain}\n")
        (place / name / "model.py").write_text(
            "import layers\nfrom tests import small\n\ndef make():\n    model = small.linear()\n"
            "    model[-1].weight.data *= layers.GAIN\n    return model\n"
        )
    models = ("-m", "one/model.py:make", "-m", "two/model.py:make")
    robustkit("evaluate", "-q", *models, *DATA, "-a", "fgsm", "--out", "run")
    table = pd.read_csv(place / "run" / "results.csv").query("role == 'clean'")

    assert table.model.tolist() == ["model.make", "model.make-two"]
    assert table.accuracy[table.index[0]] > 0.8
    assert table.accuracy[table.index[1]] < 0.2


def test_pixels_that_rounding_moved_out_of_range_are_clamped(robustkit, place):
    x, y = data(30)
    x[0, 0, 0, 0], x[1, 0, 0, 0] = 1 + 9e-7, -9e-7
    save(place / "over.npz", x, y)

    assert robustkit("evaluate", "-q", *MODEL, "-d", "over.npz", "-a", "fgsm", "--out", "run").status == 0


def test_several_eps_are_one_run(robustkit, place):
    robustkit(*SMALL, "--eps", "0.05", "--eps", "8/255", "--out", "run")
    table = pd.read_csv(place / "run" / "results.csv").query("role == 'worst-case'")

    assert table.eps_text.tolist() == ["8/255", "0.05", "0.1"]
    assert table.accuracy.is_monotonic_decreasing


def test_an_eps_and_a_norm_are_added_to_a_finished_run(robustkit, place, run):
    run.rename(place / "grown")
    for out in ("grown", "fresh"):
        printed = robustkit(*SMALL[:-2], "--eps", "Linf:0.1", "--eps", "Linf:0.03", "--eps", "L2:0.4", "--out", out)
        assert printed.status == 0, printed.err

    for name in ("results.csv", "samples.csv"):
        assert (place / "grown" / name).read_bytes() == (place / "fresh" / name).read_bytes()


def test_a_report_is_made_again_without_the_model_and_to_the_same_bytes(robustkit, place, run):
    before = contents(place / "run")
    for file in (place / "net.py", place / "digits.npz", *(place / "run" / name for name in FILES - {"run.sqlite"})):
        file.unlink()

    assert robustkit("report", "run").status == 0
    assert contents(place / "run") == before


def test_a_run_folder_can_be_moved(robustkit, place, run):
    shutil.move(place / "run", place / "moved")

    assert robustkit(*SMALL, "--out", "moved").status == 0
    assert robustkit("report", "moved").status == 0


def test_two_runs_are_merged_into_one_report(robustkit, place, run):
    run.rename(place / "a")
    robustkit("evaluate", "-q", "-m", "net.py:other", *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "b")
    before = sorted(place.glob("[ab]/*"))
    printed = robustkit("report", "a", "b", "-o", "x.html")
    text = (place / "x.html").read_text()

    assert printed.status == 0
    assert all(name in text for name in ("net.factory", "net.other"))
    assert sorted(place.glob("[ab]/*")) == before


def test_a_report_that_cannot_be_made_is_refused_in_one_line(robustkit, place, run):
    written = robustkit("report", "run", "-o", "net.py/x.html")

    refused(robustkit("report", "run", "nosuch", "-o", "x.html"), "nosuch")
    assert not (place / "x.html").exists()
    assert (written.status, written.err.count("\n")) == (2, 1)
    assert written.err.startswith("Error: ")


@pytest.mark.parametrize("out", [(), ("-o", "x.html")])
def test_a_report_is_written_before_its_reader_can_leave(out, robustkit, place, monkeypatch, run):
    from robustkit import reports

    def leave(*_):
        raise KeyboardInterrupt

    files = [run / "report.html", run / "results.csv", run / "samples.csv"]
    for file in files:
        file.unlink()
    monkeypatch.setattr(reports, "print_tables", leave)

    assert robustkit("report", "run", *out).status == 130
    assert all(file.exists() for file in ([place / "x.html"] if out else files))


def test_a_run_that_is_interrupted_before_its_first_image_does_not_promise_to_go_on(robustkit, place, monkeypatch):
    """During the training of its network it said that the same command goes on where it stopped."""

    def leave(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("robustkit.evaluation.resolved.resolve", leave)
    printed = robustkit(*SMALL, "--out", "run")

    assert printed.status == 130
    assert "begins again" in printed.err
    assert "where it stopped" not in printed.err


def test_an_interrupted_run_says_how_to_resume_and_is_reported_as_unfinished(robustkit, place, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_after(1, patch)
        printed = robustkit(*SMALL, "--out", "run")

    assert (printed.status, printed.err.count("\n")) == (130, 1)
    assert "run" in printed.err
    assert "goes on where it stopped" in printed.err
    assert set(contents(place / "run")) == {"run.sqlite"}
    report = robustkit("report", "run")
    assert report.status == 0
    assert "unfinished" in report.out.lower()
    assert "unfinished" in (place / "run" / "report.html").read_text().lower()


def test_a_run_interrupted_while_its_report_is_written_is_resumed(robustkit, monkeypatch):
    from robustkit.reports.evaluation import files

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_report", stop)
        printed = robustkit(*SMALL, "--out", "run")

    assert printed.status == 130
    assert robustkit(*SMALL, "--out", "run").status == 0


@pytest.mark.parametrize(
    "name",
    ["100%20", "ü; b'c", *(pytest.param(name, marks=pytest.mark.slow) for name in ("with space", "what?", "#1"))],
)
def test_a_run_folder_may_have_any_name(name, robustkit, place):
    assert robustkit(*SMALL, "-n", "5", "--out", name).status == 0
    assert robustkit("report", name).status == 0
    assert set(contents(place / name)) == FILES
    assert {entry.name for entry in place.iterdir()} - {name, "__pycache__"} == {"net.py", "digits.npz"}
