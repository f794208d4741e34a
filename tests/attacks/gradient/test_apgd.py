import pytest
import torch
from robustkit.attacks import APGD, PGD

from robustkit import attack
from tests.attacks.linear import linear
from tests.problems import digits, problem, seen, trials

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
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_exactly_the_images_nearer_than_eps_break(norm, share):
    made = linear(5)
    eps = made.distance[norm].quantile(share).item()
    clear = (made.distance[norm] / eps - 1).abs() > 0.02
    result = attack(made.model, made.x, made.y, APGD(eps, norm, steps=60, loss="margin", targets=4))

    assert clear.sum() > 50
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
