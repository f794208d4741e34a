"""The table of names in docs/other-libraries.md names attacks that there are."""

import re
from pathlib import Path

import pytest

from robustkit.primitives import ensembles, registry

PAGE = Path(__file__).parents[2] / "docs" / "other-libraries.md"
TABLE = PAGE.read_text("utf-8").partition("| here |")[2].partition("\n\n")[0]
NAMES = [name for row in TABLE.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_the_table_has_names():
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_here_under_the_name_of_the_table(name):
    known = ensembles.is_ensemble(name) or name in registry.universal_classes()

    assert known or registry.build(name, *_threat(name))


def _threat(name):
    base, _ = registry.VARIANTS.get(name, (registry.parsed(name).name, {}))
    norm = registry.classes()[base].norms[0]
    return norm, "2" if norm in ("L0", "spatial") else "0.1"
