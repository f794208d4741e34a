"""The forms of a diagnosis: JSON, data frame, Markdown and text."""

import json

import pytest
from torch import nn

from tests.diagnosis.nets import Rounding, base, defended, diagnosed


def test_the_json_is_strict_and_the_frame_has_a_row_per_call():
    diagnosis = diagnosed(defended("detached"), prove=True)
    data = json.loads(diagnosis.to_json(), parse_constant=pytest.fail)

    layers = [row.layer for row in diagnosis.rows]
    assert data["verdict"] == "masked"
    assert [row["layer"] for row in data["rows"]] == layers == list(diagnosis.to_frame().layer)
    assert data["proof"]["before"] is None
    assert data["prescription"][0]["option"] == "--bpda relu1.detach"


def test_markdown_escapes_bars_in_names():
    model = nn.Sequential(base())
    model.add_module("a|b", nn.Identity())
    lines = diagnosed(model).to_markdown().splitlines()

    assert len({line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}) == 1


def test_a_long_table_leaves_out_faithful_calls_and_says_so():
    chain = nn.Sequential(*(nn.Identity() for _ in range(30)), Rounding(), *(nn.Identity() for _ in range(30)), base())
    text = str(diagnosed(chain)).splitlines()
    table = text[: text.index("")]

    assert len(table) < 30
    assert sum(line.strip() == "..." for line in table) == 2
    assert any("Rounding" in line and "step" in line for line in table)
    assert "more calls, none of them masking" in table[-1]
