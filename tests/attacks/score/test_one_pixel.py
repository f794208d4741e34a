import pytest
import torch
from robustkit.attacks import OnePixel

from robustkit import attack
from robustkit.errors import UserError
from tests.attacks.linear import sparse_linear
from tests.attacks.score.driven import states
from tests.problems import images, trials


def test_images_of_a_linear_classifier_that_one_value_breaks_are_broken():
    made = sparse_linear(2, count=20)
    result = attack(made.model, made.x, made.y, OnePixel(1, "L0", queries=600))
    breakable = made.fewest == 1

    assert breakable.any()
    assert not result.success[~breakable].any()
    assert result.success[breakable].float().mean() >= 0.9


def test_no_more_pixels_change_than_the_radius_pays_for():
    x = images(4, 3, 6, 5)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(90, 4))
    most = 0
    for state in states(OnePixel(8, "L0", queries=40, population=10), model, trials(x)):
        changed = (state.query != x).any(1).flatten(1).sum(1)
        most = max(most, int(changed.max()))
        assert (changed <= 2).all()

    assert most == 2


def test_less_than_one_pixel_changes_some_of_its_channels():
    x = images(4, 3, 6, 5)
    method = OnePixel(1, "L0")
    query = method.init(trials(x)).query

    assert ((query != x).flatten(1).sum(1) == 1).all()


def test_a_child_is_one_member_and_half_the_difference_of_two_others():
    method = OnePixel(1, "L0", population=6)
    members = torch.linspace(0.2, 0.7, 6).square().reshape(1, 6, 1, 1).expand(3, 6, 1, 3)
    draw = torch.tensor([6, 9, 11])  # of the parents 0, 3 and 5
    born = method._born(torch.tensor([1, 2, 3]), draw, members)
    values = members[0, :, 0, 0]
    for row, parent in enumerate([0, 3, 5]):
        others = [number for number in range(6) if number != parent]
        possible = {
            round(float(values[a] + 0.5 * (values[b] - values[c])), 5)
            for a in others for b in others for c in others if len({a, b, c}) == 3
        }  # fmt: skip
        assert round(float(born[row, 0, 0]), 5) in possible


def test_a_child_replaces_its_parent_only_if_it_is_no_worse():
    made = sparse_linear(3)
    before = None
    for state in states(OnePixel(2, "L0", queries=60, population=8), made.model, trials(made.x, made.y)):
        if before is not None:
            assert (state.fitness >= before.fitness).all()
            assert ((state.members != before.members).flatten(2).any(2).sum(1) <= 1).all()
        before = state

    assert torch.equal(before.fitness.amax(1), before.best_loss)


def test_a_radius_of_many_values_names_the_better_attack():
    with pytest.raises(UserError, match="sparse_rs"):
        OnePixel(301, "L0")
