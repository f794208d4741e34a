import pytest
import torch
from robustkit.attacks import MIFGSM, LinBP
from torch import Tensor, nn

from robustkit import Classifier, UserError, attack
from tests.attacks.queries import gradient, logits_and_gradient, plain_gradient
from tests.attacks.transfer.test_branches import Block
from tests.problems import filled, hooks, images, problem, trials


def mlp(inplace: bool = False) -> nn.Sequential:
    return filled(nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace), nn.Linear(6, 6), nn.ReLU(inplace), nn.Linear(6, 3)))


def aims(network: nn.Module, x: Tensor) -> Tensor:
    """The gradient in the logits that the margin loss has against class 0."""
    logits = network(x)
    others = logits.scatter(1, torch.zeros(len(x), 1, dtype=torch.int64), -torch.inf).argmax(1)
    return (nn.functional.one_hot(others, logits.shape[1]) - torch.eye(logits.shape[1])[0]).float()


def test_the_later_relus_are_passed_linearly():
    network, x = mlp(), images(6, 5)
    one, _, two, _, three = network
    first = (one(x) > 0).float()

    expected = ((aims(network, x) @ three.weight @ two.weight) * first) @ one.weight
    assert torch.allclose(gradient(LinBP(0.1, loss="margin"), network, x), expected, atol=1e-6)


@pytest.mark.parametrize("inplace", [False, True])
def test_all_relus_can_be_passed_linearly(inplace):
    network, x = mlp(inplace), images(6, 5)
    expected = aims(network, x) @ network[4].weight @ network[2].weight @ network[0].weight

    found = gradient(LinBP(0.1, loss="margin", layers="[13]"), network, x)
    assert torch.allclose(found, expected, atol=1e-6)


def test_the_logits_stay_the_same_bits():
    made, method = problem("residual cnn", 1, 8, 8), LinBP(0.1)
    logits, grad = logits_and_gradient(method, made.model, method.init(trials(made.x, made.y)))

    assert torch.equal(logits, made.model(made.x))
    assert not torch.equal(grad, plain_gradient(method, made.model, made.x, made.y))


def test_relus_that_are_always_on_make_it_mifgsm():
    made = problem("cnn", 1, 8, 8)
    made.model.body[1].bias.data += 10
    y = made.model(made.x).argmax(1)
    model = Classifier(made.model, fold=False)
    linear, plain = (attack(model, made.x, y, method) for method in (LinBP(0.03, layers="body.2"), MIFGSM(0.03)))

    assert torch.equal(linear.x_adv, plain.x_adv)
    assert torch.equal(linear.queries, plain.queries)


class Behind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x))


def by_hand(network: Behind, x: Tensor, rescale: bool) -> Tensor:
    """Skip connection plus branch, whose linear gradient is as long as its true one."""
    first, second = network.block.first, network.block.second
    inner = first(x)
    outer = second(inner.relu()) + x
    above = (aims(network, x) @ network.head.weight) * (outer > 0)  # the ReLU behind the sum is a true one
    linear = above @ second.weight @ first.weight
    true = ((above @ second.weight) * (inner > 0)) @ first.weight
    share = true.norm(dim=1, keepdim=True) / linear.norm(dim=1, keepdim=True) if rescale else 1
    return above + share * linear


@pytest.mark.parametrize("rescale", [False, True])
def test_a_residual_branch_keeps_the_length_of_its_gradient(rescale):
    network, x = filled(Behind()), images(6, 5)

    found = gradient(LinBP(0.1, loss="margin", rescale=rescale), network, x)
    assert torch.allclose(found, by_hand(network, x, rescale), atol=1e-6)
    assert hooks(network) == 0


def test_the_length_of_a_row_does_not_depend_on_its_neighbours():
    network, x = filled(Behind()).double(), images(6, 5).double()
    loud = x.clone()
    loud[1:] *= 1000

    assert torch.equal(gradient(LinBP(0.1), network, loud)[0], gradient(LinBP(0.1), network, x)[0])


def test_a_resnet_50_is_linear_from_the_authors_layer_on():
    from torchvision.models.resnet import Bottleneck, ResNet

    with torch.device("meta"):
        network = ResNet(Bottleneck, [3, 4, 6, 3])
    chosen = LinBP(0.1)._relus(network)

    assert chosen.layers == [f"layer3.{block}.relu" for block in range(1, 6)] + [f"layer4.{n}.relu" for n in range(3)]


def test_a_network_without_relu_layers_is_an_error():
    made = problem("linear", 5)

    with pytest.raises(UserError, match=r"no nn.ReLU in Sequential; .* layers="):
        attack(made.model, made.x, made.y, LinBP(0.03))


def test_branches_that_cannot_be_followed_are_an_error():
    class Forked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.relu = nn.Linear(5, 5), nn.Linear(5, 5), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.relu(self.one(x) * self.two(x))

    network = filled(Forked())
    with pytest.raises(UserError, match="use rescale=False"):
        gradient(LinBP(0.1), network, images(3, 5))

    assert gradient(LinBP(0.1, rescale=False), network, images(3, 5)).isfinite().all()
    assert hooks(network) == 0
