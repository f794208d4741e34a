"""The table of hostile cases, by name."""

from tests.hostile import evidence_cases, file_cases, model_cases, output_cases, word_cases
from tests.hostile.case import Case

CASES: dict[str, Case] = {}
for _module in (word_cases, model_cases, file_cases, output_cases, evidence_cases):
    for _name, _case in _module.cases():
        assert _name not in CASES, _name
        CASES[_name] = _case
