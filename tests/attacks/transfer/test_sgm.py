import pytest
import torch
from robustkit.attacks import MIFGSM, SGM
from robustkit.attacks.gradient._momentum import normalised
from torch import Tensor, nn

from robustkit import Classifier, UserError, attack
from robustkit.nethook import UnfiredLayerError
from robustkit.testing.problems import SmallResidualNet
from tests.attacks.queries import gradient, plain_gradient
from tests.attacks.transfer.test_branches import Block, Dense, Weighed
from tests.problems import filled, hooks, images, problem, trials


def test_a_gamma_of_one_is_mifgsm():
    made = problem("residual cnn", 1, 8, 8)
    # BatchNorm stays where it is under hooks, and rounding with it.
    model = Classifier(made.model, fold=False)
    skipping, plain = (attack(model, made.x, made.y, method) for method in (SGM(0.03, gamma=1), MIFGSM(0.03)))

    assert torch.equal(skipping.x_adv, plain.x_adv)
    assert torch.equal(skipping.queries, plain.queries)


def test_the_branch_keeps_its_share_of_the_gradient():
    network = filled(
        SmallResidualNet(nn.Linear(5, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 3))
    )
    network.body.bias.data += 10  # so that the ReLU behind the sum is on
    x, y = images(6, 5), torch.arange(6) % 3
    body, one, two, head = (layer.weight for layer in (network.body, *network.branch, network.head))
    method = SGM(0.1, gamma=0.3, loss="margin")
    logits = network(x)
    others = logits.scatter(1, y.unsqueeze(1), -torch.inf).argmax(1)

    expected = (head[others] - head[y]) @ (torch.eye(4) + 0.3 * two @ one) @ body
    assert torch.allclose(gradient(method, network, x, y), expected, atol=1e-5)


def test_a_gamma_of_zero_leaves_the_skip_connections_alone():
    made = problem("residual mlp", 6)

    class Skipping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            features = made.model.body(x)
            return made.model.head((features + made.model.branch(features).detach()).relu())

    found = gradient(SGM(0.1, gamma=0), made.model, made.x, made.y)
    assert torch.equal(found, plain_gradient(SGM(0.1), Skipping(), made.x, made.y))


def test_densenets_layers_are_branches():
    network, x = filled(Dense()), images(5, 4)
    one, two, head = (layer.weight for layer in (network.one, network.two, network.head))
    first = 0.5 * one  # of the first layer's output in the image
    second = 0.5 * (two[:, :4] + two[:, 4:] @ first)
    jacobian = head[:, :4] + head[:, 4:7] @ first + head[:, 7:] @ second
    others = network(x).scatter(1, torch.zeros(5, 1, dtype=torch.int64), -torch.inf).argmax(1)

    found = gradient(SGM(0.1, loss="margin"), network, x)
    assert torch.allclose(found, jacobian[others] - jacobian[0], atol=1e-6)


class Small(nn.Module):
    """Two stages of two blocks, named as torchvision's ResNets name them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.layer1 = nn.Sequential(Block(8), Block(8))
        self.layer2 = nn.Sequential(Block(8, down=True), Block(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer2(self.layer1(self.stem(x))))


def test_the_reference_variant_is_the_authors_recipe():
    # Every ReLU's gradient times gamma but in a stage's first block; at the end of a block divided by its deviation.
    network, x = filled(Small()), images(6, 6)

    def scaled(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        value = args[0].clone()
        value.register_hook(lambda grad: 0.3 * grad)
        return (value,)

    def divided(module: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        output = output.clone()
        output.register_hook(lambda grad: grad / grad.std(1, keepdim=True))
        return output

    expected_from = filled(Small())
    for stage in (expected_from.layer1, expected_from.layer2):
        stage[1].relu.register_forward_pre_hook(scaled)
        for block in stage:
            block.register_forward_hook(divided)
    expected = plain_gradient(SGM(0.1), expected_from, x)
    found, paper = (gradient(SGM(0.1, gamma=0.3, variant=variant), network, x) for variant in ("reference", "paper"))

    assert torch.allclose(normalised(found), normalised(expected), atol=1e-5)
    assert not torch.allclose(normalised(paper), normalised(expected), atol=1e-2)


def test_layers_can_be_chosen_by_name():
    network, x = filled(Small()), images(6, 6)
    every, named, one = (
        gradient(SGM(0.1, layers=layers), network, x) for layers in (None, "layer?.?.second", "layer2.1.second")
    )

    assert torch.equal(named, every)
    assert not torch.equal(one, every)


def test_a_network_without_branches_is_an_error():
    made = problem("cnn", 1, 8, 8)

    with pytest.raises(UserError, match=r"no residual branch in SmallConvNet; name the layers .* with layers="):
        attack(made.model, made.x, made.y, SGM(0.03))


def test_a_branch_that_cannot_be_hooked_is_an_error():
    with pytest.raises(UserError, match="without a last layer in Weighed"):
        gradient(SGM(0.1), Weighed(gated=True), images(2, 4))


def test_a_scaled_branch_keeps_its_share():
    network, x = filled(Weighed(gated=False)), images(6, 4)
    jacobian = torch.eye(4) + 0.3 * network.scale.unsqueeze(1) * network.one.weight
    others = network(x).scatter(1, torch.zeros(6, 1, dtype=torch.int64), -torch.inf).argmax(1)

    found = gradient(SGM(0.1, gamma=0.3, loss="margin"), network, x)
    assert torch.allclose(found, jacobian[others] - jacobian[0], atol=1e-6)


def test_a_named_layer_that_never_runs_is_an_error():
    made = problem("residual mlp", 6)
    made.model.idle = nn.Linear(2, 2)

    with pytest.raises(UnfiredLayerError, match="'idle'"):
        attack(made.model, made.x, made.y, SGM(0.03, layers="idle"))
    assert hooks(made.model) == 0


def test_no_hook_is_left_when_the_question_fails():
    made = problem("residual mlp", 6)
    method = SGM(0.03)

    with pytest.raises(ZeroDivisionError), method.hooks(made.model, method.init(trials(made.x))):
        raise ZeroDivisionError
    assert hooks(made.model) == 0
