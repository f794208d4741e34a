"""Axes, plans and the texts they are read from."""

import pytest
from robustkit.defenses import Recipe
from robustkit.defenses.ablation.ablation import jobs_of
from robustkit.defenses.ablation.grid import axes_of, cells_of, read_grid

from robustkit.errors import UserError

GRID = {"freeze": ["none", "prefix:layer1", "bn-only"], "bn": ["batch", "frozen"], "lr": [0.05, 0.01]}


def test_a_grid_is_read_as_a_recipe_holds_it():
    read = read_grid(["freeze=none,prefix:layer1", "label-smoothing=0,0.1", "nesterov=true,false", "clip=none,1"])

    assert read == {
        "freeze": ["none", "prefix:layer1"],
        "label_smoothing": [0, 0.1],
        "nesterov": [True, False],
        "clip": [None, 1],
    }


def test_a_value_may_hold_colons_equal_signs_and_escaped_commas():
    read = read_grid([r"attack=pgd:steps=7,pgd:steps=2\,step_size=0.1", r"freeze=none,conv1.*\,bn1.*"])

    assert read == {"attack": ["pgd:steps=7", "pgd:steps=2,step_size=0.1"], "freeze": ["none", "conv1.*,bn1.*"]}


def test_a_backslash_before_anything_else_stays():
    assert read_grid([r"freeze=a\b,c\\"]) == {"freeze": [r"a\b", "c\\\\"]}


def test_joined_choices_change_together():
    (axis,) = axes_of(read_grid(["bn+lr=batch+0.05,frozen+0.01"]))
    cells = cells_of([axis], "full")

    recipes = [cell.recipe(Recipe()) for cell in cells]
    assert [(recipe.bn, recipe.lr) for recipe in recipes] == [("batch", 0.05), ("frozen", 0.01)]
    assert cells[1].name == "bn+lr=frozen+0.01"


def test_texts_of_one_key_follow_each_other():
    assert read_grid(["freeze=none", "freeze=bn-only"]) == {"freeze": ["none", "bn-only"]}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["freeze"], "no axis"),
        (["=none,all"], "no axis"),
        (["freeze=none,,bn-only"], "no value"),
        (["bn+lr=batch,frozen"], "no value"),
        (["freze=none,bn-only"], "did you mean freeze"),
        (["seed=0,1"], "no choice of the recipe called 'seed'"),
        (["freeze=none"], "at least two values"),
        (["freeze=none,none"], "all different"),
        (["bn=batch,frozen", "bn+lr=batch+0.05,frozen+0.01"], "varies bn twice"),
        ([], "empty"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(texts, words):
    with pytest.raises(UserError, match=words):
        axes_of(read_grid(texts))


def test_main_effects_change_one_axis_at_a_time():
    names = [cell.name for cell in cells_of(axes_of(GRID), "main-effects")]

    assert names == ["baseline", "freeze=prefix:layer1", "freeze=bn-only", "bn=frozen", "lr=0.01"]


def test_a_full_plan_goes_on_to_all_combinations_fewest_changes_first():
    cells = cells_of(axes_of(GRID), "full")

    assert len({cell.levels for cell in cells}) == len(cells) == 3 * 2 * 2
    changes = [len(cell.changed) for cell in cells]
    assert changes == sorted(changes)


def test_main_effects_of_all_seeds_come_before_interactions():
    jobs = jobs_of(cells_of(axes_of(GRID), "full"), seeds=2)

    assert [job.name for job in jobs[:6]] == [
        "baseline, seed 0",
        "freeze=prefix:layer1, seed 0",
        "freeze=bn-only, seed 0",
        "bn=frozen, seed 0",
        "lr=0.01, seed 0",
        "baseline, seed 1",
    ]
    assert all(len(job.cell.changed) > 1 for job in jobs[10:])
    assert len(set(jobs)) == len(jobs) == 24


def test_a_choice_out_of_range_names_its_cell():
    cells = cells_of(axes_of({"momentum": [0.9, 0.0]}), "main-effects")

    with pytest.raises(UserError, match=r"In the cell momentum=0: Nesterov"):
        cells[1].recipe(Recipe())
