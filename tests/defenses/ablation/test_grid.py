"""Axes, plans and the texts they are read from."""

import pytest
from robustkit.defenses import Recipe
from robustkit.defenses.ablation.ablation import jobs_of
from robustkit.defenses.ablation.grid import axes_of, cells_of, read_grid

from robustkit.errors import UserError

GRID = {"freeze": ["none", "prefix:layer1", "bn-only"], "bn": ["batch", "frozen"], "lr": [0.05, 0.01]}


@pytest.mark.parametrize(
    ("texts", "grid"),
    [
        (["freeze=none,prefix:layer1", "label-smoothing=0,0.1", "nesterov=true,false", "clip=none,1"],
         {"freeze": ["none", "prefix:layer1"], "label_smoothing": [0, 0.1], "nesterov": [True, False],
          "clip": [None, 1]}),
        ([r"attack=pgd:steps=7,pgd:steps=2\,step_size=0.1", r"freeze=none,conv1.*\,bn1.*"],
         {"attack": ["pgd:steps=7", "pgd:steps=2,step_size=0.1"], "freeze": ["none", "conv1.*,bn1.*"]}),
        ([r"freeze=a\b,c\\"], {"freeze": [r"a\b", "c\\\\"]}),
        (["freeze=none", "freeze=bn-only"], {"freeze": ["none", "bn-only"]}),
    ],
    ids=["types of the recipe", "escaped commas", "other backslashes", "several texts of one key"],
)  # fmt: skip
def test_a_grid_is_read_from_texts(texts, grid):
    assert read_grid(texts) == grid


def test_joined_choices_change_together():
    (axis,) = axes_of(read_grid(["bn+lr=batch+0.05,frozen+0.01"]))
    cells = cells_of([axis], "full")

    recipes = [cell.recipe(Recipe()) for cell in cells]
    assert [(recipe.bn, recipe.lr) for recipe in recipes] == [("batch", 0.05), ("frozen", 0.01)]
    assert cells[1].name == "bn+lr=frozen+0.01"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["freeze"], "not an axis"), (["=none,all"], "not an axis"), (["freeze=none,,bn-only"], "not a value"),
        (["bn+lr=batch,frozen"], "not a value"), (["freze=none,bn-only"], "did you mean freeze"),
        (["seed=0,1"], "--seeds"), (["freeze=none"], "at least two values"),
        (["freeze=none,none"], "all different"), ([], "empty"),
        (["bn=batch,frozen", "bn+lr=batch+0.05,frozen+0.01"], "varies bn twice"),
    ],
)  # fmt: skip
def test_an_invalid_grid_is_refused(texts, words):
    with pytest.raises(UserError, match=words):
        axes_of(read_grid(texts))


def test_main_effects_change_one_axis_at_a_time():
    names = [cell.name for cell in cells_of(axes_of(GRID), "main-effects")]

    assert names == ["baseline", "freeze=prefix:layer1", "freeze=bn-only", "bn=frozen", "lr=0.01"]


def test_a_full_plan_has_all_combinations_fewest_changes_first():
    cells = cells_of(axes_of(GRID), "full")

    assert len({cell.levels for cell in cells}) == len(cells) == 3 * 2 * 2
    changes = [len(cell.changed) for cell in cells]
    assert changes == sorted(changes)


def test_main_effects_of_all_seeds_come_before_interactions():
    jobs = jobs_of(cells_of(axes_of(GRID), "full"), seeds=2)

    cells = ["baseline", "freeze=prefix:layer1", "freeze=bn-only", "bn=frozen", "lr=0.01"]
    assert [job.name for job in jobs[:6]] == [*(f"{cell}, seed 0" for cell in cells), "baseline, seed 1"]
    assert all(len(job.cell.changed) > 1 for job in jobs[10:])
    assert len(set(jobs)) == len(jobs) == 24


def test_a_choice_out_of_range_names_its_cell():
    cells = cells_of(axes_of({"momentum": [0.9, 0.0]}), "main-effects")

    with pytest.raises(UserError, match=r"In the cell momentum=0: Nesterov"):
        cells[1].recipe(Recipe())
