"""Softened kinks: values stay, gradients follow sigmoids and softmax."""

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from robustkit.nethook import soft_kinks


def gradient(function, x: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    query = x.clone().requires_grad_()
    return torch.autograd.grad((function(query * 1) * weights).sum(), query)[0]


ROWS = torch.tensor([[-4.0, -0.5, 0.25, 2.0], [-1.0, 0.0, 3.0, 8.0]])
RELUS = {
    "module": nn.ReLU(), "in place": nn.ReLU(inplace=True), "F.relu": F.relu,
    "F.relu in place": lambda x: F.relu(x, True),
    "torch.relu": torch.relu, "method": Tensor.relu, "method in place": Tensor.relu_, "torch.relu_": torch.relu_,
    "aten": torch.ops.aten.relu.default, "aten in place": torch.ops.aten.relu_.default,
}  # fmt: skip


@pytest.mark.parametrize("relu", RELUS.values(), ids=RELUS)
def test_a_relu_has_the_slope_of_a_sigmoid_as_wide_as_the_rows_largest_value_says(relu):
    width = 0.1 * torch.tensor([[4.0], [8.0]])

    with soft_kinks(activations=0.1):
        found = gradient(relu, ROWS)

    assert torch.allclose(found, torch.sigmoid(ROWS / width), atol=1e-7)


def test_rows_may_have_widths_of_their_own():
    widths = torch.tensor([0.1, 0.5])
    pool, x = nn.MaxPool2d(2), torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))

    with soft_kinks(widths, widths):
        found, pooled = gradient(F.relu, ROWS), gradient(pool, x)
        of_parts = gradient(F.relu, ROWS.reshape(4, 2))

    assert torch.allclose(found, torch.sigmoid(ROWS / (widths[:, None] * torch.tensor([[4.0], [8.0]]))), atol=1e-7)
    largest = torch.tensor([[4.0], [2.0], [1.0], [8.0]])
    expected = torch.sigmoid(ROWS.reshape(4, 2) / (widths.repeat_interleave(2)[:, None] * largest))
    assert torch.allclose(of_parts, expected, atol=1e-7)
    for row, width in enumerate(widths.tolist()):
        with soft_kinks(width, width):
            assert torch.allclose(pooled[row], gradient(pool, x[row : row + 1])[0], atol=1e-7)


def test_each_kink_of_other_activations_is_softened():
    width = 0.1 * torch.tensor([[4.0], [8.0]])
    below, above = (torch.sigmoid((ROWS - at) / width) for at in (0, 6))
    low, high = (torch.sigmoid((ROWS - at) / width) for at in (-1, 1))

    with soft_kinks(activations=0.1):
        assert torch.allclose(gradient(nn.ReLU6(), ROWS), below - above, atol=1e-7)
        assert torch.allclose(gradient(nn.Hardtanh(), ROWS), low - high, atol=1e-7)
        assert torch.allclose(gradient(nn.LeakyReLU(0.2), ROWS), 0.2 + 0.8 * below, atol=1e-7)


@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((2, 3), (1, 2), dilation=(2, 1)), nn.MaxPool2d(4, 4, 2)],
    ids=str,
)
def test_max_pooling_passes_gradients_on_as_softmax_does(pool):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 9, 8, generator=generator)
    weights = torch.rand(pool(x).shape, generator=generator)
    temperature = 0.1 * x.flatten(1).abs().amax(1).reshape(2, 1, 1, 1)

    def smooth(values: Tensor) -> Tensor:  # its gradient is the softmax over the window
        rows, columns = (pool.padding,) * 2
        padded = F.pad(values / temperature, (columns, columns, rows, rows), value=-1e4)
        windows = F.unfold(padded, pool.kernel_size, pool.dilation, 0, pool.stride)
        windows = windows.reshape(2, 3, -1, windows.shape[2])
        return (temperature[..., 0] * windows.logsumexp(2)).reshape(weights.shape)

    with soft_kinks(pooling=0.1):
        found = gradient(pool, x, weights)

    assert torch.allclose(found, gradient(smooth, x, weights), atol=1e-5)


LARGE = ("resnet18", "mobilenet_v2", "googlenet")


@pytest.mark.parametrize(
    "name", ["shufflenet_v2_x0_5", "squeezenet1_1", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
)
def test_networks_keep_their_values_and_with_no_width_their_gradients(name):
    torch.manual_seed(0)
    options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    net = torchvision.models.get_model(name, num_classes=5, **options).eval().double()
    x, query = torch.rand(2, 3, 64, 64).double(), torch.rand(2, 3, 64, 64).double().requires_grad_()
    true = gradient(net, x)

    with soft_kinks():
        softened, soft_logits = gradient(net, x), net(query)
    with soft_kinks(1e-12, 1e-12):
        sharp = gradient(net, x)

    assert torch.equal(soft_logits, net(query))
    assert torch.allclose(sharp, true, rtol=1e-6, atol=1e-9 * float(true.abs().max()))
    assert (softened - true).norm() > 0.05 * true.norm()
    assert torch.equal(gradient(net, x), true), "something was left behind"


def test_a_row_feels_neither_its_neighbours_nor_the_scale_of_a_layer():
    with soft_kinks():
        together, alone = gradient(F.relu, ROWS), gradient(F.relu, ROWS[:1])
        larger = gradient(F.relu, 1024 * ROWS)

    assert torch.equal(together[:1], alone)
    assert torch.equal(larger, together)


def test_a_gradient_arrives_behind_relus_that_are_all_off():
    off = torch.full((2, 3), -1.0)

    assert not gradient(F.relu, off).any()
    with soft_kinks(activations=0.5):
        assert torch.allclose(gradient(F.relu, off), torch.sigmoid(torch.tensor(-2.0)).expand(2, 3))


def test_pooling_whose_windows_leave_the_image_keeps_its_gradient():
    x = torch.rand(1, 1, 5, 5)

    with soft_kinks():
        found = gradient(nn.MaxPool2d(2, ceil_mode=True), x)

    assert torch.equal(found, gradient(nn.MaxPool2d(2, ceil_mode=True), x))


class Blocks(nn.Module):
    """Kinks of all kinds between convolutions, in two blocks."""

    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        convs = [nn.Conv2d(2 if number == 0 else 4, 4, 3, padding=1) for number in range(5)]
        self.first = nn.Sequential(
            convs[0], nn.ReLU(), convs[1], nn.ReLU(inplace=True), nn.MaxPool2d(2, ceil_mode=True)
        )
        self.second = nn.Sequential(
            convs[2], nn.ReLU6(inplace=True), nn.MaxPool2d(3, 2, 1), convs[3], nn.LeakyReLU(), convs[4],
            nn.LeakyReLU(inplace=True), nn.Hardtanh(),
        )  # fmt: skip
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for block in (self.first, self.second):
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x.square().sum((1, 2, 3))


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward after it"])
def test_what_a_checkpoint_computes_again_is_softened(inside):
    """`soft_apgd` left 47 % of a checkpointed network for 28 %, and `default` died where it pooled."""
    torch.manual_seed(0)
    plain, checkpointed = Blocks(False), Blocks(True)
    checkpointed.load_state_dict(plain.state_dict())
    x = torch.rand(3, 2, 12, 12)

    def softened(net: nn.Module) -> Tensor:
        query = x.clone().requires_grad_()
        with soft_kinks(0.2, 0.1):
            loss = net(query).sum()
            found = torch.autograd.grad(loss, query)[0] if inside else None
        return torch.autograd.grad(loss, query)[0] if found is None else found

    assert torch.equal(softened(checkpointed), softened(plain))
    assert not torch.allclose(softened(plain), gradient(plain, x))
    assert torch.equal(gradient(checkpointed, x), gradient(plain, x))


@pytest.mark.parametrize("length", [3, 5, 7])
def test_images_along_the_second_axis_of_a_sequence_have_widths_of_their_own(length):
    """Its rows are places of the sequence: the width at a kink followed the largest value of all images."""
    x, widths = (
        torch.randn(4, length, 6, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0.1, 0.3, 0.02, 0.5]),
    )
    grads = []
    for axis in (0, 1):
        points = x.clone().requires_grad_()
        with soft_kinks(widths):
            points.transpose(0, axis).relu().pow(2).sum().backward()
        grads.append(points.grad)

    assert torch.equal(*grads)
