"""The settings of attacks as the methods paragraph names them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.manifest import attacks
from robustkit.reports.evaluation.methods import methods

from robustkit.evidence.run import Run
from robustkit.primitives import ensembles

MEMBER: dict[str, Any] = {
    "name": f"{ensembles.ALIASES['default']}/first", "steps": 5, "L2": {"steps": 20}, "L1": {"steps": 30},
    "reach": {"Linf": {"limits": [2.0, 2.0]}}, "measures": {"Linf": {"classes": 4}}, "targets_at_least": {"Linf": 4},
}  # fmt: skip


def run_of(make_run: Callable[..., Run], *norms: str) -> Run:
    run = make_run(n=10, models=("m",), threats=tuple((norm, 0.1, "0.1") for norm in norms))
    identity = {**run.manifest["identity"], "attacks": [MEMBER]}
    return replace(run, manifest={**run.manifest, "identity": identity})


@pytest.mark.parametrize(
    ("norms", "settings"),
    [(("Linf",), "steps = 5"), (("L2",), "steps = 20"), (("Linf", "L2"), "steps = 5, L2.steps = 20")],
)
def test_a_member_is_described_in_the_norms_of_the_run(
    norms: tuple[str, ...], settings: str, make_run: Callable[..., Run]
) -> None:
    assert attacks(run_of(make_run, *norms)) == [f"{MEMBER['name']} ({settings})"]


def test_a_page_names_where_the_choice_of_images_is_described(make_run: Callable[..., Run]) -> None:
    text = methods(boards([run_of(make_run, "Linf")])[0])

    assert "A member of an ensemble attacks the images that no member before it broke" in text
    assert "reach" not in text
