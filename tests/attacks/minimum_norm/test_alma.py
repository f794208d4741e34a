import pytest
import torch
from robustkit.attacks import ALMA
from torch import nn

from robustkit.classifier.answers import answered
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear, scaled


@pytest.mark.parametrize("norm", ["L2", "L1"])
@pytest.mark.parametrize("factor", [10, 1e4])
def test_the_scale_of_the_logits_changes_little(norm, factor):
    # The least margin of 1e-4 logits is not scaled, in the paper's code, too.
    made = linear(5)
    plain, louder = (
        last_state(ALMA(1, norm, steps=60), model, untargeted(made.x, made.y)).distance.median().item()
        for model in (scaled(made, 10), scaled(made, 10 * factor))
    )

    assert louder == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize(("norm", "distance"), [("L2", 0.1), ("L1", 0.5)])
def test_the_step_along_the_first_gradient_has_the_length_of_the_paper(norm, distance):
    made = linear(5)
    method = ALMA(1, norm)
    state = method.init(untargeted(made.x, made.y))
    seen = answered(method, state, made.model)

    after = method.step(state, seen)
    slope = seen.grad * (1 + 2 * -seen.loss - 0 + seen.loss.square() / 2).unsqueeze(1)  # of P2 where both weights are 1
    length = (after.step_size.unsqueeze(1) * slope.double()).norm(p={"L2": 2, "L1": 1}[norm], dim=1)

    assert length.tolist() == pytest.approx([distance] * len(length), rel=1e-4)


def test_the_penalty_gets_stricter_where_ten_steps_do_not_help():
    x, y = torch.full((2, 4), 0.5), torch.tensor([0, 0])
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    method = ALMA(1, "L2", steps=30)
    state = method.init(untargeted(x, y))
    bends = []
    for _ in range(20):
        state = method.step(state, answered(method, state, model))
        bends.append(state.bend[0].item())

    assert bends[8:10] == pytest.approx([1.0, 1.2])
    assert bends[18:20] == pytest.approx([1.2, 1.44])


def test_an_image_without_a_gradient_is_left_in_a_random_direction():
    x, y = torch.full((2, 4), 0.5), torch.tensor([0, 0])
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    method = ALMA(1, "L2", steps=3)
    state = method.init(untargeted(x, y))
    after = method.step(state, answered(method, state, model))

    assert (after.query != x).all()
    assert not torch.equal(after.query[0], after.query[1])


def test_a_target_is_reached_although_other_classes_are_in_front():
    # adv-lib 0.2.8 reaches 12 of these 60.
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(ALMA(1, "L2"), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).float().mean() > 0.95
