"""`robustkit evaluate` and `robustkit report`: folders, files and bytes."""

import json
import shutil

import pandas as pd
import pytest
import torch

from tests.cli.conftest import DATA, MODEL, SMALL
from tests.cli.test_bad_input import refused
from tests.small import data, evidence, linear, save

FILES = {"report.html", "results.csv", "samples.csv", "run.sqlite"}


def test_a_run_folder_holds_four_files_and_nothing_else(robustkit, place):
    said = robustkit(*SMALL, "--out", "run")

    assert said.status == 0
    assert {file.name for file in (place / "run").iterdir()} == FILES
    assert "run" in said.out.splitlines()[-1]


def test_without_out_the_same_command_finds_its_folder(robustkit, place):
    robustkit(*SMALL)
    robustkit(*SMALL)
    robustkit(*SMALL, "--seed", "1")

    assert len(list((place / "robustkit-runs").iterdir())) == 2


def test_two_runs_give_equal_bytes(robustkit, place):
    for out in ("a", "b"):
        robustkit(*SMALL, "-a", "pgd:steps=4", "-a", "noise:queries=3", "--out", out)

    for name in ("results.csv", "samples.csv"):
        assert (place / "a" / name).read_bytes() == (place / "b" / name).read_bytes()


def test_the_batch_size_does_not_change_a_byte(robustkit, place):
    for size in ("1", "7", "64", "auto"):
        robustkit(*SMALL, "-a", "pgd:steps=4", "-b", size, "--out", size)
    first, *others = [(place / size / "samples.csv").read_bytes() for size in ("1", "7", "64", "auto")]

    assert all(other == first for other in others)


def test_pandas_reads_the_tables_back(robustkit, place):
    robustkit(*SMALL, "--out", "run")
    results, samples = (pd.read_csv(place / "run" / name) for name in ("results.csv", "samples.csv"))

    assert results.role.tolist() == ["clean", "attack", "worst-case"]
    assert len(samples) == 30
    assert (samples.verdict == "robust").sum() == results.correct[1]


def test_a_finished_run_is_only_printed(robustkit, place):
    first = robustkit(*SMALL, "--out", "run")
    before = evidence(place / "run")
    again = robustkit(*SMALL, "--out", "run")

    assert again == first
    assert {name: rows for name, rows in evidence(place / "run").items() if name != "run"} == {
        name: rows for name, rows in before.items() if name != "run"
    }


@pytest.mark.parametrize(
    "more",
    [["-n", "20"], ["-a", "pgd:steps=3"], ["-m", "net.py:other"], ["-n", "9999", "-a", "noise", "-m", "net.py:sure"]],
    ids=["samples", "attack", "model", "all"],
)  # fmt: skip
def test_a_run_grows_to_the_bytes_of_a_fresh_one(more, robustkit, place):
    robustkit(*SMALL, "-n", "10", "--out", "grown")
    robustkit(*SMALL, "-n", "10", *more, "--out", "grown")
    robustkit(*SMALL, "-n", "10", *more, "--out", "fresh")

    for name in ("results.csv", "samples.csv"):
        assert (place / "grown" / name).read_bytes() == (place / "fresh" / name).read_bytes()


def other_data(place) -> None:
    x, y = data(30)
    save(place / "digits.npz", x.flip(2), y)


def other_constant(place) -> None:
    text = (place / "net.py").read_text()
    (place / "net.py").write_text(text.replace("return small.linear()", "return nn.Sequential(Half(), small.linear())"))
    (place / "net.py").write_text((place / "net.py").read_text() + "GAIN = 0.5\n" + HALF)


HALF = """
class Half(nn.Module):
    def forward(self, x):
        return x * GAIN
"""
CHANGES = {
    "seed": (["--seed", "1"], ["seed was 0, now 1"]),
    "eps": (["--eps", "0.2"], ["0.2"]),
    "fewer samples": (["-n", "10"], ["samples was 30, now 10"]),
    "norm": (["--norm", "L2"], ["L2"]),
    "bf16": (["--bf16"], ["bf16"]),
    "fold": (["--no-fold"], ["fold"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_is_refused_and_nothing_is_touched(change, robustkit, place):
    robustkit(*SMALL, "--out", "run")
    before = evidence(place / "run"), {file: file.read_bytes() for file in (place / "run").glob("*.[ch]*")}
    words, told = CHANGES[change]

    refused(robustkit(*SMALL, *words, "--out", "run"), *told, "--out")
    assert (evidence(place / "run"), {file: file.read_bytes() for file in (place / "run").glob("*.[ch]*")}) == before


def test_changed_data_are_refused(robustkit, place):
    robustkit(*SMALL, "--out", "run")
    other_data(place)

    refused(robustkit(*SMALL, "--out", "run"), "dataset", "--out")


def test_changed_weights_are_refused(robustkit, place):
    state = linear().state_dict()
    torch.save(state, place / "w.pt")
    robustkit(*SMALL, "--weights", "w.pt", "--out", "run")
    torch.save({key: value * 1.01 for key, value in state.items()}, place / "w.pt")

    refused(robustkit(*SMALL, "--weights", "w.pt", "--out", "run"), "net.factory", "--out")


def test_a_changed_constant_in_the_models_file_is_refused(robustkit, place):
    other_constant(place)
    robustkit(*SMALL, "--out", "run")
    (place / "net.py").write_text((place / "net.py").read_text().replace("GAIN = 0.5", "GAIN = 0.1"))

    refused(robustkit(*SMALL, "--out", "run"), "net.factory", "--out")


def test_a_changed_neighbour_of_the_models_file_is_refused(robustkit, place):
    (place / "layers.py").write_text("def shown(x):\n    return x\n")
    text = (place / "net.py").read_text().replace("return self.norm(logits)", "return self.inner(layers.shown(x))")
    (place / "net.py").write_text("import layers\n" + text + "\ndef shown():\n    return Failing('no')\n")
    words = ("evaluate", "-q", "-m", "net.py:shown", *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "run")
    assert robustkit(*words).status == 0
    (place / "layers.py").write_text("def shown(x):\n    return 0.1 * x\n")

    refused(robustkit(*words), "net.shown", "--out")


def test_files_of_one_name_in_two_folders_are_two_models(robustkit, place):
    for name, gain in (("one", "1.0"), ("two", "-1.0")):
        (place / name).mkdir()
        (place / name / "layers.py").write_text(f"GAIN = {gain}\n")
        (place / name / "model.py").write_text(
            "import layers\nfrom tests import small\n\ndef make():\n    model = small.linear()\n"
            "    model[-1].weight.data *= layers.GAIN\n    return model\n"
        )
    robustkit(
        "evaluate", "-q", "-m", "one/model.py:make", "-m", "two/model.py:make", *DATA, "-a", "fgsm", "--out", "run"
    )
    table = pd.read_csv(place / "run" / "results.csv").query("role == 'clean'")

    assert table.model.tolist() == ["model.make", "model.make-2"]
    assert table.accuracy[table.index[0]] > 0.8
    assert table.accuracy[table.index[1]] < 0.2


def test_an_overshoot_of_a_rounding_is_clamped(robustkit, place):
    x, y = data(30)
    x[0, 0, 0, 0], x[1, 0, 0, 0] = 1 + 9e-7, -9e-7
    save(place / "over.npz", x, y)

    assert robustkit("evaluate", "-q", *MODEL, "-d", "over.npz", "-a", "fgsm", "--out", "run").status == 0


def test_several_eps_are_one_run(robustkit, place):
    robustkit(*SMALL, "--eps", "0.05", "--eps", "8/255", "--out", "run")
    table = pd.read_csv(place / "run" / "results.csv").query("role == 'worst-case'")

    assert table.eps_text.tolist() == ["8/255", "0.05", "0.1"]
    assert table.accuracy.is_monotonic_decreasing


def test_a_report_is_made_again_without_any_model(robustkit, place):
    robustkit(*SMALL, "--out", "run")
    before = {name: (place / "run" / name).read_bytes() for name in FILES}
    (place / "net.py").unlink()
    (place / "digits.npz").unlink()
    for name in FILES - {"run.sqlite"}:
        (place / "run" / name).unlink()
    said = robustkit("report", "run")

    assert said.status == 0
    assert {name: (place / "run" / name).read_bytes() for name in FILES} == before


def test_two_runs_are_merged_into_one_report(robustkit, place):
    robustkit(*SMALL, "--out", "a")
    robustkit("evaluate", "-q", "-m", "net.py:other", *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "b")
    before = sorted(place.glob("[ab]/*"))
    said = robustkit("report", "a", "b", "-o", "x.html")
    text = (place / "x.html").read_text()

    assert said.status == 0
    assert "net.factory" in text
    assert "net.other" in text
    assert sorted(place.glob("[ab]/*")) == before


def test_one_bad_folder_among_several_spoils_no_report(robustkit, place):
    robustkit(*SMALL, "--out", "a")

    refused(robustkit("report", "a", "nosuch", "-o", "x.html"), "nosuch")
    assert not (place / "x.html").exists()


def test_a_report_that_cannot_be_written_is_one_line(robustkit, place):
    robustkit(*SMALL, "--out", "a")
    said = robustkit("report", "a", "-o", "net.py/x.html")

    assert said.status == 2
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1


def test_an_unfinished_run_is_reported_as_one(robustkit, place, monkeypatch):
    from robustkit.cli.watch import Bars

    def stop(self, images, robust):
        if images == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Bars, "advance", stop)
        said = robustkit(*SMALL, "--out", "run")
    assert said.status == 130

    said = robustkit("report", "run")

    assert said.status == 0
    assert "unfinished" in said.out.lower()
    assert "unfinished" in (place / "run" / "report.html").read_text().lower()


def test_an_interruption_says_how_to_go_on(robustkit, place, monkeypatch):
    from robustkit.cli.watch import Bars

    def stop(self, images, robust):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Bars, "advance", stop)
        said = robustkit(*SMALL, "--out", "run")

    assert said.status == 130
    assert said.err.count("\n") == 1
    assert "run" in said.err
    assert "goes on where it stopped" in said.err
    assert {file.name for file in (place / "run").iterdir()} == {"run.sqlite"}


def test_an_interruption_while_the_report_is_written_is_one_too(robustkit, place, monkeypatch):
    from robustkit import reports

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reports, "write_report", stop)
        said = robustkit(*SMALL, "--out", "run")

    assert said.status == 130
    assert robustkit(*SMALL, "--out", "run").status == 0


def test_the_manifest_names_the_command(robustkit, place):
    robustkit(*SMALL, "--out", "run")
    manifest = {key: json.loads(value) for key, value in evidence(place / "run")["run"]}

    assert "robustkit" in manifest["command"]
    assert manifest["finished"]


def test_a_run_folder_can_be_moved(robustkit, place):
    robustkit(*SMALL, "--out", "run")
    shutil.move(place / "run", place / "moved")

    assert robustkit(*SMALL, "--out", "moved").status == 0
    assert robustkit("report", "moved").status == 0


@pytest.mark.parametrize("name", ["with space", "what?", "100%20", "#1", "ünï", "a;b'c"])
def test_a_run_folder_may_have_any_name(name, robustkit, place):
    assert robustkit(*SMALL, "--out", name).status == 0
    assert robustkit("report", name).status == 0
    assert {file.name for file in (place / name).iterdir()} == FILES
    assert {entry.name for entry in place.iterdir()} - {name, "__pycache__"} == {"net.py", "digits.npz"}
