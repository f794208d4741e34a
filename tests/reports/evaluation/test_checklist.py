from collections.abc import Callable
from dataclasses import replace

from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.checklist import ChecklistItem, checklist

from robustkit.checks import Check
from robustkit.evidence.run import Run

LINF = (("Linf", 0.1, "0.1"),)
FOUND = "a longer search broke 0 of 24 random survivors."
UNMADE = "Needs further passes: robustkit evaluate ... --checks full"


def items(run: Run, *checks: Check) -> dict[str, ChecklistItem]:
    return {each.item: each for each in checklist(boards([replace(run, checks=checks)])[0])}


def test_automatic_checks_count_as_evidence_where_they_were_made(make_run: Callable[..., Run]) -> None:
    found = items(
        make_run(n=60, models=("a",), threats=LINF),
        Check("a", "Linf 0.1", "longer_search", "More steps", "standard", "ok", "invalidating", FOUND),
        Check("a", "", "restarts", "More restarts", "full", "not_run", "invalidating", UNMADE),
    )

    assert found["Do more steps break more images?"][1:] == ("checked", f"a: {FOUND}")
    assert found["Do more restarts break more images?"][1:] == ("not checked", UNMADE)


def test_a_check_at_another_radius_is_no_evidence_at_the_headlines(make_run: Callable[..., Run]) -> None:
    other = Check("a", "Linf 0.2", "longer_search", "More steps", "standard", "ok", "invalidating", FOUND)
    found = items(make_run(n=60, models=("a",), threats=LINF), other)

    assert found["Do more steps break more images?"][1:] == ("not checked", "No automatic check is about Linf 0.1.")


def test_without_checks_the_items_say_that_they_were_switched_off(make_run: Callable[..., Run]) -> None:
    found = items(make_run(n=60, models=("a",), threats=LINF))

    assert found["Do more steps break more images?"].evidence == "Automatic checks were switched off."


def test_colours_and_features_are_changes_beyond_small_norms(make_run: Callable[..., Run]) -> None:
    for norm, state in (("Linf", "not checked"), ("recolor", "checked"), ("lpips", "checked")):
        found = items(make_run(n=60, models=("a",), threats=((norm, 0.1, "0.1"),)))
        assert found["Other changes than small norms"].state == state
