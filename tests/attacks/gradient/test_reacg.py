import pytest
import torch
from robustkit.attacks import ACG, ReACG
from torch import nn

from robustkit.classifier.answers import answered
from tests.problems import filled, images, seen, trials

X = torch.full((1, 2), 0.5)


def test_checkpoints_are_at_the_papers_steps():
    # p_1 = 0.43, then periods shorter by 0.24, but never than 0.08; a falling loss halves at each of them.
    method = ReACG(0.1, steps=100)
    state, sizes = method.init(trials(X)), []
    for turn in range(100):
        state = method.step(state, seen([-float(turn)], torch.ones(1, 2)))
        sizes.append(state.step_size.item())

    assert [turn for turn in range(1, 100) if sizes[turn] != sizes[turn - 1]] == [43, 62, 70, 78, 86, 94]


def test_a_beta_that_outweighs_the_gradient_is_that_of_unit_gradients():
    # change (-1, 9), beta -(-4 - 27) / (-3 + 54) = 31 / 51, not above the mean of |4 / 3| and |3 / 6|: kept.
    method = ReACG(0.1)
    first = (torch.tensor([[3.0, 6.0]]), torch.tensor([[3.0, 6.0]]))
    assert method.beta(torch.tensor([[4.0, -3.0]]), *first).item() == pytest.approx(31 / 51)

    # change (-30, 40), beta 500 / 70 above 0.7 and 0.7. Unit gradients: (0.6, 0.8) and (0.8, 0.6), change (0.2, -0.2).
    grad, before, direction = torch.tensor([[30.0, 40.0]]), torch.tensor([[40.0, 30.0]]), torch.tensor([[100.0, 50.0]])
    plain = -(30 * 10 + 40 * -10) / (100 * 10 + 50 * -10)
    assert plain == pytest.approx(0.2)
    assert method.beta(grad, before, direction).item() == pytest.approx(0.2)  # below the mean of 0.3 and 0.8

    small = torch.tensor([[100.0, 90.0]])
    assert -(30 * 10 - 400) / (1000 - 900) == 1.0  # above the mean of 0.3 and 0.44
    assert method.beta(grad, before, small).item() == pytest.approx((0.6 * -0.2 + 0.8 * 0.2) / (100 * 0.2 - 90 * 0.2))


def test_values_without_a_direction_do_not_count():
    # The authors' code takes the mean of a NaN, and cuts no beta of an image with one value that nothing depends on.
    grad, before, direction = ([30.0, 40.0, 0.0], [40.0, 30.0, 0.0], [100.0, 90.0, 0.0])
    beta = ReACG(0.1).beta(torch.tensor([grad]), torch.tensor([before]), torch.tensor([direction]))

    assert beta.item() == pytest.approx(0.02)


def test_with_gradients_shorter_than_one_it_moves_along_the_directions_of_acg():
    ours, plain = ReACG(0.1, steps=20), ACG(0.1, steps=20)
    states = [method.init(trials(torch.full((4, 12), 0.5))) for method in (ours, plain)]
    for turn in range(4):  # before the first checkpoint of either
        answer = seen([float(turn)] * 4, 0.01 * (images(4, 12, seed=turn) - 0.5))
        states = [method.step(state, answer) for method, state in zip((ours, plain), states, strict=True)]

    assert torch.equal(states[0].direction, states[1].direction)


def test_it_begins_at_the_image_and_restarts_at_random():
    made = trials(images(2, 9))
    start = ReACG(0.1).init(type(made)(**{**vars(made), "restart": torch.tensor([0, 1])})).query

    assert torch.equal(start[0], made.x[0])
    assert not torch.equal(start[1], made.x[1])


@pytest.mark.parametrize(("kind", "first", "shorter", "least"), [(ACG, 0.22, 0.03, 0.06), (ReACG, 0.43, 0.24, 0.08)])
@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_it_queries_the_points_of_a_plain_loop_over_one_image(kind, first, shorter, least, variant):
    # Written from the papers, with a list of all losses, for one image at a time.
    model = filled(nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))).double()
    x = images(3, 12).double()
    y = model(x).argmax(1)
    method = kind(0.2, steps=40, variant=variant)
    state, asked = method.init(trials(x, y)), []
    for _ in range(40):
        asked.append(state.query)
        state = method.step(state, answered(method, state, model))

    for row in range(3):
        rescales = kind is ReACG
        points = loop(model, x[row], y[row], asked[0][row], (first, shorter, least), rescales, variant)
        assert torch.allclose(torch.stack(asked)[:, row], points, atol=1e-12)


def loop(model, x, y, start, shares, rescales, variant, eps=0.2, steps=40):
    def asked(point):
        point = point.clone().requires_grad_()
        z = model(point.unsqueeze(0))[0]
        value = torch.cat([z[:y], z[y + 1 :]]).max() - z[y]
        return value.item(), torch.autograd.grad(value, point)[0]

    def beta_of(g, g_before, s):
        change = g_before - g
        value = -(g @ change) / (s @ change)
        return value if variant == "paper" else -value

    first, shorter, least = (int(share * steps) for share in shares)
    points, losses, size, period, begun = [start], [], 2 * eps, first, 0
    value, g = asked(start)
    losses.append(value)
    here, g_before, s_before = start, None, None
    best, at_check, reduced = (value, start, g, None, None), value, True
    while len(points) < steps:
        s = g
        if s_before is not None:
            beta = beta_of(g, g_before, s_before)
            if rescales and beta.abs() > (g / s_before).abs().mean():
                cut = beta_of(g / g.norm(), g_before / g_before.norm(), s_before)
                beta = cut if cut.abs() < beta.abs() else beta
            changes = (s_before @ (g_before - g)).abs() > 1e-6 * s_before.norm() * g.norm()
            s = g + beta * s_before if changes else g
        point = (here + size * s.sign()).clamp(x - eps, x + eps).clamp(0, 1)
        points.append(point)
        here = point
        g_before, s_before = g, s
        value, g = asked(point)
        losses.append(value)
        if value > best[0]:
            best = (value, point, g, g_before, s_before)
        if len(points) - 1 == begun + period:
            rises = sum(losses[k + 1] > losses[k] for k in range(begun, begun + period))
            stuck = rises <= 0.75 * period or (not reduced and at_check >= best[0])
            if stuck:
                size /= 2
                _, here, g, g_before, s_before = best
            reduced, at_check = stuck, best[0]
            begun, period = begun + period, max(period - shorter, least)
    return torch.stack(points)
