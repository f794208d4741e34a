"""What lies in a run's folder beside its evidence stands on its page."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from robustkit.reports import write_report
from safetensors.torch import save_file
from torch import Tensor, nn

from robustkit.diagnosis import diagnose
from robustkit.diagnosis.reading import read_diagnosis
from robustkit.errors import UserError
from tests.reports.pages import Page
from tests.small import data, evaluated, linear


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x * 4) / 4


@pytest.fixture(scope="module")
def found():
    x, y = data(16)
    return diagnose(nn.Sequential(Rounds(), linear()), x, y, eps=0.2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return evaluated(linear(), tmp_path_factory.mktemp("run"), dataset=data(16), attacks="fgsm", eps=0.1, norm="Linf")


@pytest.fixture
def run(finished, tmp_path):
    """The finished run in a folder of the test's own."""
    return replace(finished, folder=Path(shutil.copytree(finished.folder, tmp_path / "run")))


def test_a_diagnosis_comes_back_from_its_file(found, tmp_path):
    (tmp_path / "diagnosis.json").write_text(found.to_json(), encoding="utf-8")

    assert read_diagnosis(tmp_path / "diagnosis.json").to_json() == found.to_json()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rows": 3}'])
def test_a_file_that_is_no_diagnosis_is_refused(text, tmp_path):
    (tmp_path / "diagnosis.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="no diagnosis"):
        read_diagnosis(tmp_path / "diagnosis.json")


def test_the_report_of_a_run_shows_the_diagnosis_in_its_folder(found, run):
    write_report([run], run.folder / "report.html")
    before = (run.folder / "report.html").read_text(encoding="utf-8")
    (run.folder / "diagnosis.json").write_text(found.to_json(), encoding="utf-8")
    write_report([run], run.folder / "report.html")
    page = (run.folder / "report.html").read_text(encoding="utf-8")

    assert "Gradients are masked" not in before
    assert "Gradients are masked" in page
    Page(page).check_safe()


def test_the_report_draws_the_history_of_a_training(run):
    rows = [(1, 0.5, 0.2, 0.1, False), (2, 0.8, 0.5, 0.4, True), (3, 0.9, 0.4, 0.3, False)]
    columns = ["epoch", "val_clean", "val_ce", "val_worst", "best"]
    pd.DataFrame(rows, columns=columns).to_csv(run.folder / "history.csv", index=False)
    write_report([run], run.folder / "report.html")
    page = (run.folder / "report.html").read_text(encoding="utf-8")

    assert "epoch 2 was kept" in page
    assert "clean 90.0 %" in page


@pytest.mark.parametrize("notes", [["<b>bold</b>"], ["<b>bold</b>", 3], "<b>bold</b>", None])
def test_the_notes_of_a_training_cannot_write_into_the_page(notes, run):
    columns = ["epoch", "val_clean", "val_ce", "val_worst", "best"]
    pd.DataFrame([(1, 0.5, 0.2, 0.1, True)], columns=columns).to_csv(run.folder / "history.csv", index=False)
    save_file({"w": torch.ones(1)}, run.folder / "model.safetensors", {"robustkit": json.dumps({"notes": notes})})
    write_report([run], run.folder / "report.html")
    page = (run.folder / "report.html").read_text(encoding="utf-8")

    assert "<b>bold" not in page
    assert ("&lt;b&gt;bold" in page) == (notes == ["<b>bold</b>"])


FOREIGN = {
    "another table": b"date,price\n1,2\n",
    "nothing": b"",
    "a header": b"epoch,val_clean,val_ce,val_worst,best\n",
    "texts": b"epoch,val_clean,val_ce,val_worst,best\none,x,x,x,True\n",
    "no truth": b"epoch,val_clean,val_ce,val_worst,best\n1,1,1,1,maybe\n",
    "infinity": b"epoch,val_clean,val_ce,val_worst,best\n1,inf,1,1,True\n",
    "bytes": bytes(range(256)),
    "ragged lines": b"a,b\n1,2,3\n4\n",
    "an open quote": b'epoch,"val_clean\n1,2',
    "valid JSON": b'{"rows": [], "causes": 3}',
    "rows of another kind": b'{"rows": [{"layer": 3}], "causes": []}',
}


@pytest.mark.parametrize("content", FOREIGN)
def test_foreign_files_beside_the_evidence_do_not_cost_the_page(content, run):
    names = ("history.csv", "diagnosis.json")
    for name in names:
        (run.folder / name).write_bytes(FOREIGN[content])
    write_report([run], run.folder / "report.html")
    page = (run.folder / "report.html").read_text(encoding="utf-8")

    assert all(f"{name} in the folder of the run was not written by robustkit" in page for name in names)


def test_a_diagnosis_with_other_values_does_not_cost_the_page(found, run):
    text = json.loads(found.to_json())
    text |= {"eps": "x", "notes": 3, "verdict": None, "whole": dict.fromkeys(text["whole"], "x")}
    (run.folder / "diagnosis.json").write_text(json.dumps(text), encoding="utf-8")
    write_report([run], run.folder / "report.html")

    assert (run.folder / "report.html").is_file()


def test_the_marks_of_two_trainings_do_not_share_an_id(run, tmp_path):
    frame = pd.DataFrame([(1, 0.5, 0.2, 0.1, True)], columns=["epoch", "val_clean", "val_ce", "val_worst", "best"])
    other = replace(run, folder=tmp_path / "other")
    other.folder.mkdir()
    for each in (run, other):
        frame.to_csv(each.folder / "history.csv", index=False)
    write_report([run, other], tmp_path / "both.html")
    ids = re.findall(r'\bid="([^"]+)"', (tmp_path / "both.html").read_text(encoding="utf-8"))

    assert len(ids) == len(set(ids))


def test_a_layers_name_cannot_write_into_the_page(found, run):
    text = found.to_json().replace('"kind": "Rounds"', '"kind": "<b>Rounds"')
    (run.folder / "diagnosis.json").write_text(text, encoding="utf-8")
    write_report([run], run.folder / "report.html")

    assert "<b>Rounds" not in (run.folder / "report.html").read_text(encoding="utf-8").split("robustkit-results")[0]
