from dataclasses import replace

import pytest
import torch
from robustkit.attacks import APGD, PGD
from robustkit.attacks.gradient._stages import shrinking

from robustkit import attack
from robustkit.errors import UserError
from robustkit.primitives.rows import Rows
from robustkit.testing import check_attack
from robustkit.testing.contract import batch_size_order_and_neighbours_do_not_change_a_bit
from robustkit.testing.subject import AttackUnderTest
from tests.attacks.linear import linear
from tests.problems import digits, images, problem, seen, trials

NORMS = ["Linf", "L2", "L1"]
X = torch.full((1, 3), 0.5)


def sizes(losses: list[float], steps: int = 100, eps: float = 0.1) -> list[float]:
    """Step sizes in units of eps, after each of these losses."""
    method = APGD(eps, steps=steps)
    state, found = method.init(trials(X)), []
    for loss in losses:
        state = method.step(state, seen([loss], torch.ones(1, 3)))
        found.append(round(state.step_size.item() / eps, 6))
    return found


def checks(found: list[float]) -> list[int]:
    """The number of steps made when the step size changed."""
    return [turn for turn in range(1, len(found)) if found[turn] != found[turn - 1]]


def test_checkpoints_are_at_the_papers_steps():
    # p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06); a falling loss halves at each of them.
    assert checks(sizes([-float(turn) for turn in range(100)])) == [22, 41, 57, 70, 80, 87, 93, 99]
    # With 10 steps: int(0.22 * 10) = 2, then never less than one step.
    assert checks(sizes([-float(turn) for turn in range(10)], steps=10)) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_a_loss_that_rises_keeps_the_step_size():
    assert set(sizes([float(turn) for turn in range(100)])) == {2.0}


def test_the_step_size_is_halved_at_a_checkpoint():
    found = sizes([0.0] * 60)

    assert (found[21], found[22], found[41], found[57]) == (2.0, 1.0, 0.5, 0.25)


@pytest.mark.parametrize(
    ("checkpoint", "rises", "kept"), [(22, 16, False), (22, 17, True), (57, 41 + 12, False), (57, 41 + 13, True)]
)
def test_more_than_three_quarters_of_the_steps_must_raise_the_loss(checkpoint, rises, kept):
    # Condition 1: of the first 22 steps, 0.75 * 22 = 16.5 rises are too few. Steps 41 to 57 are 16, and 12 of them
    # are too few as well: the authors' code, whose numbers are published, writes <=.
    losses = [float(min(turn, rises)) for turn in range(checkpoint + 1)]

    assert sizes(losses)[checkpoint] == (2.0 if kept else 1.0)


def test_only_rises_since_the_last_checkpoint_count():
    # 22 rises, then 19 steps without one.
    losses = [float(min(turn, 22)) for turn in range(42)]

    assert sizes(losses)[22] == 2.0
    assert sizes(losses)[41] == 1.0


@pytest.mark.parametrize(("first", "at_22"), [([float(turn) for turn in range(23)], 2.0), ([0.0] * 23, 1.0)])
def test_a_best_loss_that_stays_halves_a_step_size_that_was_not_just_halved(first, at_22):
    # Condition 2: from step 22 to step 41 the loss rises at nearly every step, from far below, and never to a new best.
    losses = [*first, *(-100.0 + turn for turn in range(19))]

    assert sizes(losses)[22] == at_22
    assert sizes(losses)[41] == 1.0


def test_after_a_halving_the_search_goes_on_from_the_best_point():
    method = APGD(0.1, steps=100)
    state = method.init(trials(X))
    states = [state]
    for turn in range(23):
        state = method.step(
            state, seen([10.0 if turn == 5 else -float(turn)], torch.ones(1, 3) * (1 if turn == 5 else -1))
        )
        states.append(state)

    assert torch.equal(state.best, states[5].query)
    assert torch.equal(state.old, states[5].query)
    assert torch.equal(state.best_grad, torch.ones(1, 3))


def test_the_move_is_three_quarters_gradient_and_one_quarter_momentum():
    method = APGD(0.3, steps=100)
    first = method.init(trials(X))
    second = method.step(first, seen([0.0], torch.ones(1, 3)))
    third = method.step(second, seen([1.0], -torch.ones(1, 3)))
    low = torch.full_like(X, 0.2)

    assert torch.allclose(second.query, torch.full_like(X, 0.8))
    assert torch.allclose(
        third.query, second.query + 0.75 * (low - second.query) + 0.25 * (second.query - first.query), atol=1e-6
    )


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.5)])
def test_it_starts_on_the_surface(norm, eps):
    x = 0.3 + problem("mlp", 3, 8, 8).x * 0.4
    method = APGD(eps, norm)

    assert method.ball.distance(x, method.init(trials(x)).query).tolist() == pytest.approx([eps] * 12, rel=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_exactly_the_images_nearer_than_eps_break(norm):
    made = linear(5, count=40)
    eps = made.distance[norm].quantile(0.5).item()
    clear = (made.distance[norm] / eps - 1).abs() > 0.02
    result = attack(made.model, made.x, made.y, APGD(eps, norm, steps=60, loss="margin", targets=4))

    assert clear.sum() > 33
    assert torch.equal(result.success[clear], (made.distance[norm] < eps)[clear])


def test_shifted_and_scaled_logits_give_the_same_verdicts_with_dlr():
    # Powers of two scale without rounding; the shift costs a place or two.
    made = problem("cnn", 1, 8, 8, count=40)
    plain, changed = (
        attack(model, made.x, made.y, APGD(0.02, steps=15, loss="dlr")) for model in (made.model, Affine(made.model))
    )

    assert torch.equal(changed.success, plain.success)
    assert 0 < plain.robust_accuracy < 1


class Affine(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x) * 64 + 1


def test_a_survivor_wastes_no_pass():
    # auto-attack needs 111 forwards and 101 backwards for 100 steps.
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, APGD(0.00001, steps=100))

    assert set(result.forwards.tolist()) == {1 + 101}
    assert set(result.backwards.tolist()) == {100}


@pytest.mark.parametrize(("norm", "eps", "steps", "count"), [("Linf", 0.1, 20, 80), ("L1", 3.0, 40, 60)])
def test_it_is_as_strong_as_pgd_on_real_images_without_tuning(norm, eps, steps, count):
    made = digits()
    x, y = made.x[:count], made.y[:count]
    ours, pgd = (attack(made.model, x, y, method(eps, norm, steps=steps)) for method in (APGD, PGD))

    assert ours.robust_accuracy <= pgd.robust_accuracy + 0.02


@pytest.mark.parametrize(
    ("steps", "start_radius", "expected"),
    [
        (20, 1.0, [(1.0, 20)]),
        (40, 4.0, [(4.0, 10), (2.0, 10), (1.0, 20)]),
        (50, 8.0, [(8.0, 10), (4.0, 10), (2.0, 10), (1.0, 20)]),
        (7, 3.0, [(3.0, 1), (3.0**0.5, 1), (1.0, 5)]),
        (3, 8.0, [(1.0, 3)]),  # too few steps for as many balls
    ],
)
def test_balls_are_about_halved_down_to_the_true_one(steps, start_radius, expected):
    assert [(pytest.approx(radius), count) for radius, count in shrinking(steps, start_radius)] == expected


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_each_stage_keeps_to_its_ball_and_begins_at_the_best_point_of_the_one_before(norm):
    method, x = APGD(0.1, norm, steps=8, start_radius=4.0), 0.4 + images(2, 400) / 5
    states = [method.init(trials(x))]
    while not states[-1].done.all():
        turn = len(states)
        losses = [9.0 if turn == 2 else -float(turn)] * 2
        states.append(method.step(states[-1], seen(losses, images(2, 400, seed=turn) - 0.5)))
    distances = torch.stack([method.ball.distance(x, state.query) for state in states])
    radii = torch.tensor([4.0] * 2 + [2.0] * 2 + [1.0] * 5)

    assert len(states) == len(radii) == method.cost.forwards
    assert (distances <= 0.1 * radii.unsqueeze(1) * (1 + 1e-5)).all()
    assert (distances[:2] > 0.2).all()  # the room is used
    assert torch.equal(states[2].query, replace(method, eps=0.2).ball.project(x, states[1].query))


def test_rows_in_different_stages_step_as_they_do_alone():
    method, x = APGD(0.1, "L2", steps=8, start_radius=4.0), 0.4 + images(2, 400) / 5
    grad = images(2, 400, seed=1) - 0.5
    early = method.init(trials(x))
    late = early
    for turn in range(5):
        late = method.step(late, seen([float(turn)] * 2, grad))
    mixed = Rows.cat([early.take(torch.tensor([0])), late.take(torch.tensor([1]))])
    together = method.step(mixed, seen([1.0, 1.0], grad))

    for row, state in ((0, early), (1, late)):
        alone = method.step(state.take(torch.tensor([row])), seen([1.0], grad[row : row + 1]))
        assert torch.equal(together.query[row], alone.query[0])
        assert together.queries[row] == alone.queries[0]


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_a_search_that_begins_in_the_true_ball_is_the_published_one(norm):
    made = problem("mlp", 20)
    plain, staged = (
        attack(made.model, made.x, made.y, APGD(0.05, norm, steps=10, start_radius=start)) for start in (None, 1.0)
    )

    assert torch.equal(plain.x_adv, staged.x_adv)


class Ridge(torch.nn.Module):
    """Wrong where the mean is below 0.455; from 0.49 upwards, gradients lead away from there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        depth = (0.5 - x.flatten(1).mean(1)) * 100
        rise = torch.where(depth > 1, depth - 4.5, -2.5 - 0.02 * depth)
        return torch.stack([torch.zeros_like(rise), rise], 1)


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.05), ("L2", 0.05 * 20), ("L1", 0.05 * 400)])
def test_an_error_behind_a_ridge_is_found_from_a_larger_ball(norm, eps):
    x, y = torch.full((64, 1, 20, 20), 0.5), torch.zeros(64, dtype=torch.int64)
    near, far = (attack(Ridge(), x, y, APGD(eps, norm, steps=20, start_radius=start)) for start in (1.0, 8.0))

    assert near.success.sum() <= 2
    assert far.success.sum() >= 10


@pytest.mark.parametrize("norm", NORMS)
def test_shrinking_balls_give_the_same_bits_in_any_batch(norm):
    batch_size_order_and_neighbours_do_not_change_a_bit(AttackUnderTest(APGD(1, norm, steps=4, start_radius=4.0)))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_shrinking_balls_keep_the_contract_of_every_attack(norm):
    check_attack(APGD(1, norm, steps=4, start_radius=4.0))


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.3), ("L2", 2.0), ("L1", 10.0)])
@pytest.mark.parametrize("start_radius", [6.0, 1e9])
def test_a_first_ball_may_hold_every_image(norm, eps, start_radius):
    made = problem("mlp", 20)
    done = attack(made.model, made.x, made.y, APGD(eps, norm, steps=40, start_radius=start_radius))

    assert (APGD(eps, norm).ball.distance(made.x, done.x_adv) <= eps * (1 + 1e-5)).all()


@pytest.mark.parametrize("start_radius", [0.5, float("nan"), "2", True])
def test_a_search_cannot_begin_in_a_smaller_ball(start_radius):
    with pytest.raises(UserError, match="APGD: start_radius must be a number of at least 1"):
        APGD(0.1, start_radius=start_radius)
