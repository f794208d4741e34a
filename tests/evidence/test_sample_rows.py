"""Rows per image as parts: a data frame only where somebody asks for it, and samples.csv without one."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch
from robustkit.reports import write_csv
from robustkit.reports.evaluation import sample_lines
from robustkit.reports.shared.csv import csv_text

from robustkit import UserError, evaluate, load_run
from robustkit.evidence.certificates import certified_samples
from robustkit.evidence.run import SAMPLE_COLUMNS
from robustkit.evidence.sample_rows import SampleRows
from robustkit.evidence.selection import selected
from tests.small import cnn, data, evaluated, linear


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An ensemble, an attack whose queries are counted, images that are wrong without an attack, and two radii."""
    folder, attacks = tmp_path_factory.mktemp("run"), ["fgsm", "rk-1", "square:queries=20"]
    x, y = data(20)
    y = torch.where(torch.arange(20) % 5 == 0, (y + 1) % 3, y)
    evaluated(cnn(), folder, dataset=(x, y), attacks=attacks, eps=["0.05", "0.1"])
    return load_run(folder)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 14])
def test_the_file_has_the_bytes_of_the_data_frame(chunk, run, monkeypatch, tmp_path):
    monkeypatch.setattr(sample_lines, "CHUNK", chunk)
    write_csv(run, tmp_path)

    assert (tmp_path / "samples.csv").read_text() == csv_text(run.samples, SAMPLE_COLUMNS)
    assert {"clean-wrong", "broken"} <= set(run.samples["verdict"])


def test_files_and_pages_are_made_without_the_data_frame(run, tmp_path):
    again = load_run(run.folder)
    again.write(tmp_path)

    assert "frame" not in vars(again.sample_rows)
    assert len(again.sample_rows) == len(run.samples)


def test_a_part_of_a_run_has_the_rows_of_its_data_frame(run):
    chosen = selected(run, attacks=["fgsm"], radii=["0.1"]).samples
    own = run.samples[(run.samples["attack"] == "fgsm") & (run.samples["eps_text"] == "0.1")]

    assert len(chosen)
    assert chosen.equals(own.reset_index(drop=True))


def test_an_image_that_was_never_broken_has_no_queries_to_break(run):
    rows, broken = run.samples, run.samples["verdict"] == "broken"

    for name in ("queries_to_break", "restart", "target"):
        assert rows[name].dtype == "Int64"
        assert (rows[name].notna() == broken).all()
    assert {"fgsm", "rk-1", "rk-1/first"} <= set(rows["attack"][broken])
    assert {"fgsm", "rk-1", "rk-1/first"} <= set(rows["attack"][rows["verdict"] == "robust"])


def test_the_evidence_of_an_image_that_was_not_broken_keeps_its_queries(run):
    opened = sqlite3.connect(run.folder / "run.sqlite")
    rows = opened.execute("SELECT DISTINCT queries_to_break FROM attacked WHERE success = 0 AND attack = 'fgsm'")
    queries = rows.fetchall()
    opened.close()

    assert queries == [(1,)]


def test_a_radius_with_fewer_digits_is_found_unless_another_is_exact():
    run = evaluate(linear(), dataset=data(10), attacks="fgsm", eps=["2/255", "0.1", "0.10000001"])
    radii_of = {text: set(selected(run, radii=[text]).samples["eps_text"]) for text in ("0.00784313725", "0.1")}

    assert radii_of == {"0.00784313725": {"2/255"}, "0.1": {"0.1"}}
    with pytest.raises(UserError, match=r"0\.0078"):
        selected(run, radii=["0.0078"])


def test_other_samples_take_the_place_of_those_of_the_evidence(run):
    other = replace(run, sample_rows=SampleRows.of_frame(run.samples.iloc[::-1]))

    assert other.samples["sample"].tolist() == run.samples["sample"].tolist()[::-1]
    assert len(run.samples) == len(other.samples)


def test_images_keep_whole_numbers_beside_a_smoothed_model_without_any():
    part = certified_samples({}, {}, "L2", 0.5)

    assert {part[name].dtype for name in ("sample", "label", "clean_pred")} == {np.dtype(np.int64)}
