"""The table of attacks in docs/attacks.md is made from the registry."""

import sys
from pathlib import Path

import pytest

from robustkit.primitives import ensembles, registry

FOLDER = Path(__file__).parents[2] / "docs" / "extensions"


@pytest.fixture
def attack_table(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    import attack_table

    yield attack_table
    del sys.modules["attack_table"]


def test_the_table_is_that_of_todays_attacks(attack_table):
    page = attack_table.PAGE.read_text("utf-8")

    assert attack_table.page_with_table(page) == page, "run: python docs/extensions/attack_table.py"


def test_the_table_names_every_attack_and_every_variant(attack_table):
    names = {*registry.names(), *registry.universal_classes(), *ensembles.names()}

    assert {name for name in names if f"`{name}`" not in attack_table.whole_table()} == set()
