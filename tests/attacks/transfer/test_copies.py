from dataclasses import replace

import pytest
import torch
from robustkit.attacks import BSR, DIFGSM, MIFGSM, NIFGSM, PGN, SINIFGSM, SSA, TIFGSM, VMIFGSM, VNIFGSM, Admix
from torch import nn

from robustkit import UserError, attack
from robustkit.classifier.answers import answered
from tests.attacks.transfer.copies import small
from tests.problems import images, trials

IDENTITIES = [
    Admix(0.1, copies=1, scales=1, portion=0), DIFGSM(0.1, diversity=0), TIFGSM(0.1, kernel=1),
    SSA(0.1, copies=1, sigma=0, rho=0),
    BSR(0.1, copies=1, blocks=1, angle=0), PGN(0.1, copies=1, neighborhood=0, balance=0), VMIFGSM(0.1, copies=0),
]  # fmt: skip
NESTEROV = [SINIFGSM(0.1, scales=1), VNIFGSM(0.1, copies=0)]
RANDOM = [Admix(0.1), DIFGSM(0.1, diversity=1, resize=0.2), SSA(0.1), BSR(0.1), PGN(0.1), VMIFGSM(0.1)]


def named(method):
    return type(method).__name__


@pytest.mark.parametrize("method", IDENTITIES + NESTEROV, ids=named)
@pytest.mark.parametrize("norm", ["Linf", pytest.param("L2", marks=pytest.mark.slow)])
def test_without_its_transformation_it_is_the_momentum_attack_bit_for_bit(method, norm):
    made = small()
    plain = (NIFGSM if method in NESTEROV else MIFGSM)(0.1, norm)
    points = [
        attack(made.model, made.x, made.y, each, surrogate=made.model).x_adv
        for each in (replace(method, norm=norm), plain)
    ]

    assert not torch.equal(points[1], made.x)
    assert torch.equal(*points)


@pytest.mark.parametrize(
    "method",
    [DIFGSM(0.1, diversity=1), SINIFGSM(0.1), SSA(0.1), Admix(0.1), BSR(0.1, diversity=0.5), SSA(0.1, diversity=0.5)],
    ids=named,
)
@pytest.mark.parametrize("shape", [(3, 9, 6), (4, 5), (7,)])
def test_the_gradient_is_that_of_the_network_after_the_transformation(method, shape):
    made = small(*shape, count=5)
    state = method.init(trials(made.x))
    state = method.with_query(replace(state, queries=torch.arange(5)), torch.zeros_like(made.x))
    source = state.source.clone().requires_grad_()
    logits = made.model(method.transformed(source, state.trial, state.queries))
    whole = torch.autograd.grad(method.objective(logits, state.trial).sum(), source)[0]

    assert torch.equal(method.taken_back(state, answered(method, state, made.model).grad), whole)


@pytest.mark.parametrize("method", RANDOM, ids=named)
def test_no_two_images_of_a_batch_share_a_draw(method):
    # torchattacks draws one size, one padding and one coin for a whole batch.
    x = images(1, 3, 32, 32).expand(6, -1, -1, -1)
    queries = method.with_query(
        replace(method.init(trials(x)), queries=torch.full((6,), 1 if isinstance(method, VMIFGSM) else 2)),
        torch.zeros_like(x),
    ).query

    assert len({tuple(query.flatten().tolist()) for query in queries}) == 6


def test_the_iterate_is_judged_and_not_a_copy():
    method = SINIFGSM(0.1, steps=1, scales=2)
    state, x = method.init(trials(images(2, 1, 4, 4))), images(2, 1, 4, 4)
    assert torch.equal(state.query, x)
    state = method.step(state, answered(method, state, nn.Flatten()))
    assert torch.equal(state.query, x / 2)
    state = method.step(state, answered(method, state, nn.Flatten()))

    assert state.done.all()
    assert torch.equal(state.query, state.point)
    assert (method.ball.distance(x, state.query) > 0.09).all()


def test_a_misclassified_copy_outside_of_the_ball_is_no_success():
    made = small()
    # An image at half its contrast or less gets another class.
    model = nn.Sequential(nn.Flatten(), nn.Linear(84, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([torch.ones(84), torch.zeros(84)]))
        model[1].bias.copy_(torch.tensor([0.0, 25.0]))
    result = attack(model, made.x, torch.zeros(4, dtype=torch.int64), SINIFGSM(0.01))

    assert result.clean_correct.all()
    assert not result.success.any()


def test_an_even_kernel_is_refused_because_it_has_no_middle():
    with pytest.raises(UserError, match="odd"):
        TIFGSM(0.1, kernel=4)
