import pytest
import torch
from robustkit.attacks import Noise, Square
from robustkit.attacks._planes import plane
from robustkit.attacks.score.square import sides
from robustkit.attacks.score.square_windows import Proposal, pattern
from torch import nn

from robustkit import attack
from robustkit.primitives.protocol import State
from tests.problems import digits, images, problem, seen, trials

NORMS = ["Linf", "L2", "L1"]


def driven(method: Square, x: torch.Tensor, losses: list[float]) -> list[State]:
    """The states of one attack whose every row gets these losses."""
    states = [method.init(trials(x))]
    for loss in losses:
        states.append(method.step(states[-1], seen([loss] * len(x), torch.zeros(len(x), 0))))
    return states


@pytest.mark.parametrize(
    ("query", "halvings"),
    [(0, 0), (10, 0), (11, 1), (51, 2), (201, 3), (501, 4), (1001, 5), (2001, 6), (4001, 7), (6001, 8), (8001, 9)],
)
def test_the_window_shrinks_as_published(query, halvings):
    # Andriushchenko et al. 2020, section 5: halved at 10, 50, 200, 1000, ...; as in their code, which adds 500.
    pixels = 224 * 224
    side = sides(10_000, 10_000, 0.8, pixels, False)[query].item()

    assert side == max(round((0.8 / 2**halvings * pixels) ** 0.5), 1)


def test_the_schedule_is_stretched_over_the_budget():
    whole = sides(10_000, 10_000, 0.8, 1024, False)

    assert torch.equal(sides(5000, 5000, 0.8, 1024, False), whole[::2])


def test_the_schedule_can_end_after_the_budget():
    whole = sides(10_000, 10_000, 0.8, 1024, False)

    assert torch.equal(sides(5000, 10_000, 0.8, 1024, False), whole[:5000])


def test_a_schedule_as_long_as_the_budget_is_the_usual_one():
    x = images(3, 1, 8, 8)
    losses = [0.0, -1.0, 1.0, 0.5] * 10
    usual, stretched = (driven(Square(0.1, queries=50, shrink_over=over), x, losses)[-1] for over in (None, 50))
    longer = driven(Square(0.1, queries=50, shrink_over=1000), x, losses)[-1]

    assert torch.equal(usual.query, stretched.query)
    assert not torch.equal(usual.query, longer.query)


def test_windows_with_a_pattern_have_a_middle():
    found = sides(1000, 1000, 0.8, 64, True)

    assert (found % 2 == 1).all()
    assert found.min() == 3


def test_the_linf_start_is_stripes_of_full_strength():
    x = 0.25 + images(4, 3, 8, 8) / 2
    delta = Square(0.1).init(trials(x)).query - x

    assert torch.allclose(delta.abs(), torch.tensor(0.1), atol=1e-6)
    assert torch.allclose(delta, delta[:, :, :1].expand_as(delta), atol=1e-6)


@pytest.mark.parametrize("losses", [[0.0, 1.0, 2.0, 3.0, 4.0], [0.0, -1.0, -2.0, -3.0, -4.0]])
@pytest.mark.parametrize(("norm", "eps"), [("L2", 0.5), ("L1", 3.0)])
def test_proposals_stay_on_the_surface_of_the_ball(norm, eps, losses):
    x, method = 0.4 + images(6, 3, 12, 12) / 5, Square(eps, norm, queries=50)
    for state in driven(method, x, losses):
        assert method.ball.distance(x, state.query).tolist() == pytest.approx([eps] * 6, rel=1e-4)


@pytest.mark.parametrize("losses", [[0.0, 1.0, 2.0, 3.0, 4.0], [0.0, -1.0, -2.0, -3.0, -4.0]])
def test_linf_proposals_move_every_value_by_eps(losses):
    x = 0.4 + images(6, 3, 12, 12) / 5
    for state in driven(Square(0.1, queries=50), x, losses):
        assert torch.allclose((state.query - x).abs(), torch.tensor(0.1), atol=1e-6)


def test_the_best_point_is_kept_and_a_worse_one_dropped():
    states = driven(Square(0.1, queries=50), images(1, 1, 8, 8), [1.0, 0.5, 2.0])

    assert torch.equal(states[1].best, states[0].query)
    assert torch.equal(states[2].best, states[0].query)
    assert torch.equal(states[3].best, states[2].query)
    assert states[3].best_loss.item() == 2


def test_a_linf_proposal_changes_one_window_of_the_best_point():
    x, side = 0.4 + images(40, 2, 10, 10) / 5, 4
    best = plane(x) + 0.0
    made = Proposal(plane(x), best, torch.arange(40) * 31, torch.ones(40, dtype=torch.int64), torch.full((40,), side))
    changed = (made.of(Square(0.1).ball) != best).any(1)

    for mask in changed:
        rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
        assert len(rows) == len(columns) == side
        assert mask.sum() == side * side


def times_changed(norm: str, eps: float) -> torch.Tensor:
    """`[6, 6]` how many of 400 rows change a pixel, windows of side 3 in L2 and L1 and 2 in Linf."""
    x, side = torch.full((400, 1, 6, 6), 0.5), 2 if norm == "Linf" else 3
    made = Proposal(x, x, torch.arange(400) * 31, torch.ones(400, dtype=torch.int64), torch.full((400,), side))
    return (made.of(Square(eps, norm).ball) != x).sum(0)[0]


def test_windows_reach_every_pixel():
    # The authors' code never touches the last row and column.
    changed = times_changed("Linf", 0.1)

    # A corner lies in one of the 25 windows, so in 16 of 400.
    assert changed.min() >= 5
    assert changed[2, 2] > changed[0, 0]


@pytest.mark.parametrize("shape", [(3, 12), (12, 3)], ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_autoattack_95_windows_reach_every_pixel_of_an_image_that_is_not_square(norm, shape):
    # Its windows lie where both sides of the image are as long as one of them.
    x = torch.full((600, 1, *shape), 0.5)
    made = Proposal(x, x, torch.arange(600) * 31, torch.ones(600, dtype=torch.int64), torch.full((600,), 3))
    changed = (made.of(Square(0.1, norm).ball) != x).sum(0)

    assert changed.min() > 0


@pytest.mark.parametrize(("norm", "eps"), [("L2", 0.5), ("L1", 3.0)])
def test_windows_with_a_pattern_reach_the_end_of_a_side_seldom(norm, eps):
    changed = times_changed(norm, eps)

    # Of 3.25 places in each direction, the first column lies in one and the last in a quarter.
    assert changed[:, 0].max().item() == pytest.approx(400 / 3.25, rel=0.25)
    assert changed[:, 5].max().item() == pytest.approx(400 / 3.25 / 4, rel=0.5)
    assert changed[5].max().item() == pytest.approx(400 / 3.25 / 4, rel=0.5)


def test_every_image_draws_windows_of_its_own():
    x = torch.full((8, 1, 8, 8), 0.5)
    queries = driven(Square(0.1, queries=500), x, [0.0, 1.0, 2.0])[-1].query

    assert len({tuple(query.flatten().tolist()) for query in queries}) == 8


@pytest.mark.parametrize("shape", [(3, 5, 9), (3, 9, 5), (1, 2, 30), (7, 3), (12,), (1,), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_square_takes_non_square_images(norm, shape):
    # auto-attack's issue 95.
    x, method = images(3, *shape), Square({"Linf": 0.1}.get(norm, 0.5), norm, queries=40)
    for state in driven(method, x, [float(turn % 3) for turn in range(39)]):
        assert state.query.shape == x.shape
        assert method.ball.contains(x, state.query).all()


@pytest.mark.parametrize(("norm", "order"), [("L2", 2), ("L1", 1)])
@pytest.mark.parametrize(("tall", "wide"), [(1, 1), (1, 7), (3, 3), (5, 5), (4, 9), (45, 45)])
def test_a_pattern_has_length_one_and_two_signs(tall, wide, norm, order):
    made = pattern(tall, wide, norm)

    assert made.norm(p=order).item() == pytest.approx(1, abs=1e-5)
    assert (made != 0).all()
    assert made.shape == (tall, wide)
    if tall > 1:
        assert made[0, 0] > 0 > made[-1, 0]


@pytest.mark.parametrize(("norm", "fall"), [("L2", 2), ("L1", 4)])
def test_a_pattern_falls_off_as_published(norm, fall):
    # In L1 as 1 / n^4 with absolute values that sum to 1 (the authors' code); it was as in L2.
    steps = [1 / ring**fall for ring in (1, 2, 3, 4)]
    half = pattern(7, 7, norm)[3:]
    ring = [sum(steps[max(abs(row), abs(column)) :]) for row in range(-2, 2) for column in range(-3, 4)]
    levels = torch.tensor(ring).reshape(4, 7)

    assert torch.allclose(half / half.abs().max(), -levels / levels.max(), atol=1e-6)


@pytest.mark.parametrize(("norm", "power", "factor"), [("L2", 2, 1), ("L1", 1, 3)])
def test_each_channel_of_a_new_window_gets_what_its_own_windows_had(norm, power, factor):
    # Each of three channels got what all three had. In L1 the authors multiply by the channels before they project.
    x, side = torch.full((1, 3, 5, 5), 0.5), torch.tensor([5])
    delta = images(1, 3, 5, 5) * torch.tensor([1.0, 2.0, 4.0]).reshape(1, 3, 1, 1) / 100
    eps = 2 * delta.norm(p=power).item()
    made = Proposal(x, x + delta, torch.tensor([5]), torch.tensor([1]), side)
    everywhere = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    had = delta.abs().pow(power).sum((2, 3))
    budget = made._budget(delta, everywhere, Square(eps, norm).ball).flatten(1)

    assert torch.allclose((budget / factor).pow(power), had + (eps**power - had.sum()) / 3, rtol=1e-4)


@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_a_window_that_is_cut_by_a_short_side_holds_a_whole_pattern(norm):
    # It held the edge of a larger pattern, of one sign.
    x = torch.full((50, 1, 3, 30), 0.5)
    made = Proposal(x, x, torch.arange(50) * 31, torch.ones(50, dtype=torch.int64), torch.full((50,), 9))
    delta = made.of(Square(0.1, norm).ball) - x

    assert (delta.flatten(1).amax(1) > 0).all()
    assert (delta.flatten(1).amin(1) < 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_survivor_costs_exactly_its_queries(norm):
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, Square(0.0001, norm, queries=30))

    assert set(result.forwards.tolist()) == {1 + 30}


class Brittle(nn.Module):
    """Class 0 at some images, class 1 everywhere else."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("x", x)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        known = (points.flatten(1).unsqueeze(1) == self.x.flatten(1)).all(2).any(1)
        return torch.stack([2.0 * known, 3.0 * ~known], 1)


@pytest.mark.parametrize("norm", NORMS)
def test_autoattack_81_starts_that_break_every_image_end_the_attack(norm):
    # It then queries a batch without images, which fails on a GPU.
    x = images(4, 1, 8, 8)
    result = attack(Brittle(x), x, torch.zeros(4, dtype=torch.int64), Square(0.1, norm, queries=50))

    assert result.success.all()
    assert result.queries.tolist() == [1] * 4


def test_search_beats_noise_on_real_images():
    made = digits()
    x, y = made.x[:60], made.y[:60]
    ours, noise = (attack(made.model, x, y, method) for method in (Square(0.2, queries=50), Noise(0.2, queries=50)))

    assert ours.robust_accuracy < noise.robust_accuracy - 0.1
