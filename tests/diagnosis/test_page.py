import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console
from robustkit.reports.diagnosis.page import DiagnosisContext, page, section, write_diagnosis
from robustkit.reports.diagnosis.terminal import print_diagnosis
from torch import nn

from robustkit.diagnosis import diagnose
from tests.diagnosis.nets import EPS, base, defended, images

HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def found():
    x, y = images(12)
    return diagnose(defended("quantised"), x, y, eps=EPS)


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
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "wbr", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags(text):
    parser = Tags()
    parser.feed(text)
    assert not parser.open
    return parser.seen


def test_the_page_asks_nothing_from_anywhere_and_runs_nothing(found):
    seen = tags(page(found, DiagnosisContext("digits test", "robustkit diagnose")))

    assert not [attrs for _, attrs in seen if {"src", "href", "onclick", "onload"} & set(attrs)]
    assert [attrs.get("type") for tag, attrs in seen if tag == "script"] == ["application/json"]


def test_the_page_has_the_finding_the_line_the_remedy_and_the_proof(found):
    text = re.sub(r"<[^>]+>|\s+", " ", page(found, DiagnosisContext()))

    for part in ("Gradients are masked", "torch.round(x * self.levels)", "--bpda quantise", "0 %", "does not prove"):
        assert part in text


def test_strange_names_and_lines_stay_text():
    x, y = images(6)
    found = diagnose(Hostile(), x, y, eps=EPS)
    text = page(found, DiagnosisContext(HOSTILE, HOSTILE))

    assert "img" not in {tag for tag, _ in tags(text)}
    assert "<script>alert" not in text
    assert "\x1b" not in text


def test_the_numbers_in_the_page_are_those_of_the_file(found, tmp_path):
    write_diagnosis(found, tmp_path)
    stored = json.loads((tmp_path / "diagnosis.json").read_text())
    inside = re.search(r'id="robustkit-diagnosis">(.*?)</script>', (tmp_path / "diagnosis.html").read_text(), re.DOTALL)

    assert inside is not None
    assert json.loads(inside[1]) == stored == json.loads(found.to_json())


def test_the_section_stands_alone_for_other_pages(found):
    seen = [tag for tag, _ in tags(section(found))]

    assert seen[0] == "section"
    assert "html" not in seen


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_terminal_keeps_layer_fidelity_and_verdict_at_any_width(found, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    print_diagnosis(found, console)
    lines = console.export_text().splitlines()
    console.file.close()

    assert all(len(line) <= width for line in lines)
    assert any("quantise" in line and "0.00" in line and "step" in line for line in lines)
