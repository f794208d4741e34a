import pytest
import torch
from robustkit.attacks import MIFGSM, Ghost
from torch import Tensor, nn

from robustkit import Classifier, UserError, attack
from robustkit.primitives import noise
from robustkit.primitives.protocol import State
from tests.attacks.queries import logits_and_gradient
from tests.attacks.transfer.test_branches import Block
from tests.problems import filled, hooks, images, problem, trials


@pytest.mark.parametrize("erosion", ["skip", "dropout"])
def test_without_spread_it_is_mifgsm(erosion):
    made = problem("residual cnn", 1, 8, 8)
    model = Classifier(made.model, fold=False)
    ghost, plain = (
        attack(model, made.x, made.y, method) for method in (Ghost(0.03, erosion=erosion, spread=0), MIFGSM(0.03))
    )

    assert torch.equal(ghost.x_adv, plain.x_adv)
    assert torch.equal(ghost.queries, plain.queries)


def at(method: Ghost, x: Tensor, asked: int) -> State:
    state = method.init(trials(x))
    return type(state)(**{**vars(state), "queries": state.queries + asked})


def factors(state: State, skip: int, channels: int, spread: float) -> Tensor:
    """Numbers around 1 for the skip connection of that number, by hand."""
    return 1 + spread * (2 * noise.uniform(noise.keys(skip << 16, state.trial.key), state.queries, (channels,)) - 1)


def test_skip_connections_are_multiplied_channel_by_channel():
    network, method = filled(nn.Sequential(nn.Linear(4, 5), Block(5), Block(5, down=True))), Ghost(0.1)
    state = at(method, images(6, 4), 3)
    inner = network[0](state.query)
    one, two = network[1], network[2]

    inner = (factors(state, 0, 5, 0.22) * inner + one.second(one.first(inner).relu())).relu()
    expected = (factors(state, 1, 5, 0.22) * two.down(inner) + two.second(two.first(inner).relu())).relu()
    assert torch.allclose(logits_and_gradient(method, network, state)[0], expected, atol=1e-6)
    assert hooks(network) == 0


def test_the_maps_of_a_channel_share_a_number():
    made, method = problem("residual cnn", 1, 6, 6), Ghost(0.1, spread=0.5)
    state = at(method, made.x, 1)
    inner = made.model.body(made.x)
    mixed = factors(state, 0, 8, 0.5).reshape(-1, 8, 1, 1) * inner + made.model.branch(inner)

    expected = made.model.head(mixed.relu().flatten(1))
    assert torch.allclose(logits_and_gradient(method, made.model, state)[0], expected, atol=1e-5)


@pytest.mark.parametrize("erosion", ["skip", "dropout"])
def test_each_row_and_query_has_its_own_random_numbers(erosion):
    made, method = problem("residual mlp", 6), Ghost(0.1, erosion=erosion, spread=0.3)
    # The same image everywhere: what differs is the noise.
    state = at(method, made.x[:1].expand(8, 6), 0)
    some = torch.tensor([5, 0, 3])
    first, few, later = (
        logits_and_gradient(method, made.model, each)[0]
        for each in (state, state.take(some), at(method, state.query, 1))
    )

    assert torch.allclose(few, first[some], atol=1e-6)
    assert len(first.unique(dim=0)) == 8
    assert not (later == first).all(1).any()


def test_dropout_drops_its_share_and_scales_the_rest():
    network = nn.Sequential(nn.Identity(), nn.ReLU())
    method = Ghost(0.1, spread=0.25)
    eroded = logits_and_gradient(method, network, at(method, torch.ones(50, 200), 2))[0]

    assert eroded.unique().tolist() == pytest.approx([0, 4 / 3])
    # Four standard deviations of a mean of 10 000.
    assert (eroded == 0).float().mean().item() == pytest.approx(0.25, abs=0.018)


def test_a_network_without_skip_connections_gets_dropout():
    made, method = problem("mlp", 6), Ghost(0.1, spread=0.5)
    logits = [logits_and_gradient(method, made.model, at(method, made.x, turn))[0] for turn in (0, 1)]

    assert not torch.equal(*logits)
    with pytest.raises(UserError, match="finds no skip connections in Sequential"):
        attack(made.model, made.x, made.y, Ghost(0.1, erosion="skip"))


def test_a_network_with_nothing_to_erode_is_an_error():
    made = problem("linear", 6)

    with pytest.raises(UserError, match="layers="):
        attack(made.model, made.x, made.y, Ghost(0.1))


def test_the_verdict_is_about_the_true_network():
    made = problem("residual mlp", 6)
    result = attack(made.model, made.x, made.y, Ghost(0.0, spread=0.9, steps=5))

    assert result.robust_accuracy == 1
    assert (result.forwards <= 12).all()
