import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console
from robustkit.reports.diagnosis.page import DiagnosisContext, page, section, write_diagnosis
from robustkit.reports.diagnosis.terminal import print_diagnosis
from torch import nn

from tests.diagnosis.nets import base, defended, diagnosed

HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def diagnosis():
    return diagnosed(defended("quantised"), 12, prove=True)


class Hostile(nn.Module):
    name = HOSTILE

    def __init__(self) -> None:
        super().__init__()
        self.add_module("<img src=x>", base())

    def forward(self, x):
        return next(self.children())(x.round())  # </pre><b>


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "wbr", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(text):
    parser = Tags()
    parser.feed(text)
    assert not parser.open
    return parser.tags


def test_the_page_loads_nothing_and_runs_only_the_script_of_all_pages(diagnosis):
    tags = tags_of(page(diagnosis, DiagnosisContext("digits test", "robustkit diagnose")))

    assert not [attrs for _, attrs in tags if {"src", "href", "onclick", "onload"} & set(attrs)]
    assert [attrs.get("type") for tag, attrs in tags if tag == "script"] == ["application/json", None]


def test_the_page_has_the_verdict_the_line_the_remedy_and_the_proof(diagnosis):
    text = re.sub(r"<[^>]+>|\s+", " ", page(diagnosis, DiagnosisContext()))

    for part in ("Gradients are masked", "torch.round(x * self.levels)", "--bpda quantise", "0 %", "does not prove"):
        assert part in text


def test_names_and_lines_with_markup_stay_text():
    text = page(diagnosed(Hostile(), 6, prove=True), DiagnosisContext(HOSTILE, HOSTILE))

    assert "img" not in {tag for tag, _ in tags_of(text)}
    assert "<script>alert" not in text
    assert "\x1b" not in text


def test_the_numbers_in_the_page_are_those_of_the_file(diagnosis, tmp_path):
    write_diagnosis(diagnosis, tmp_path)
    stored = json.loads((tmp_path / "diagnosis.json").read_text())
    inside = re.search(r'id="robustkit-diagnosis">(.*?)</script>', (tmp_path / "diagnosis.html").read_text(), re.DOTALL)

    assert inside is not None
    assert json.loads(inside[1]) == stored == json.loads(diagnosis.to_json())


def test_the_section_can_be_put_into_other_pages(diagnosis):
    tags = [tag for tag, _ in tags_of(section(diagnosis))]

    assert tags[0] == "section"
    assert "html" not in tags


def test_a_terminal_of_80_columns_has_a_layer_of_a_resnet_on_one_line(diagnosis):
    name, console = (
        "model.network.layer4.0.downsample.0",
        Console(width=80, record=True, file=io.StringIO(), force_terminal=True),
    )
    print_diagnosis(replace(diagnosis, rows=(replace(diagnosis.rows[0], layer=name),)), console)

    assert name in console.export_text()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_terminal_keeps_layer_fidelity_and_verdict_at_any_width(diagnosis, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    print_diagnosis(diagnosis, console)
    lines = console.export_text().splitlines()
    console.file.close()

    assert all(len(line) <= width for line in lines)
    assert any("quantise" in line and "0.00" in line and "step" in line for line in lines)
