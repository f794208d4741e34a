"""A gate as JUnit XML, which continuous integration shows as tests."""

from xml.etree import ElementTree as ET

from robustkit.host.files import MARK
from robustkit.host.text import printable

from .gate import Gate


def junit(gate: Gate) -> str:
    """The XML of a gate: one test case for each check."""
    failed = [check for check in gate.checks if not check.passed]
    suite = ET.Element(
        "testsuite", name="robustkit gate", tests=str(len(gate.checks)), failures=str(len(failed)), errors="0"
    )
    for check in gate.checks:
        case = ET.SubElement(
            suite, "testcase", classname=printable(check.model), name=printable(f"{check.threat}: {check.reason}")
        )
        if not check.passed:
            ET.SubElement(case, "failure", message=printable(check.reason))
    if gate.note:
        ET.SubElement(suite, "system-out").text = gate.note
    return _text(suite)


def junit_of_error(sentence: str) -> str:
    """The XML of a gate that could not be judged, so that no earlier file stands for it."""
    suite = ET.Element("testsuite", name="robustkit gate", tests="1", failures="0", errors="1")
    case = ET.SubElement(suite, "testcase", classname="robustkit", name="the gate can be judged")
    ET.SubElement(case, "error", message=printable(sentence))
    return _text(suite)


def _text(suite: ET.Element) -> str:
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n{ET.tostring(suite, encoding="unicode")}\n'
