import pytest
import torch
from torch import Tensor, nn

from robustkit import UserError
from robustkit.testing.problems import SmallConvNet
from robustkit.tracing import focus, trace
from tests.tracing.nets import Twice, built


class Pooled(nn.Module):
    """A convolution, the mean over all places, a linear layer: the network that Grad-CAM generalises."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.conv(x)).flatten(1))


def test_behind_a_mean_over_places_the_map_is_the_weighted_feature_map():
    # Zhou et al. 2016: the class activation map; Grad-CAM is the same up to the number of places.
    model, x, x_adv, y = built(Pooled(), 1, 6, 6)
    traced = trace(model, x, y, x_adv=x_adv)
    found = focus(model, traced)
    weights = model.head.weight.detach()[y]
    expected = torch.einsum("bc,bchw->bhw", weights, model.conv(x).detach()).relu() / 16

    assert found.name == "conv"
    assert torch.allclose(found.aims["true"].clean.double(), expected, rtol=1e-5, atol=1e-7)


def test_the_map_of_the_predicted_class_is_that_of_the_class_after_the_attack():
    model, x, x_adv, y = built(Pooled(), 1, 6, 6)
    traced = trace(model, x, y, x_adv=x_adv)
    predicted = model(x_adv).argmax(1)
    maps = focus(model, traced).aims["predicted"]
    expected = torch.einsum("bc,bchw->bhw", model.head.weight.detach()[predicted], model.conv(x_adv).detach()).relu()

    assert torch.equal(maps.label, predicted)
    assert torch.allclose(maps.perturbed.double(), expected / 16, rtol=1e-5, atol=1e-7)


def test_maps_of_unchanged_images_agree_in_full():
    model, x, _, y = built(Pooled(), 1, 6, 6)
    maps = focus(model, trace(model, x, y, x_adv=x.clone())).aims["true"]
    drawn = (maps.clean > 0).flatten(1).any(1)

    assert drawn.any()
    assert maps.correlation[drawn].tolist() == pytest.approx([1] * int(drawn.sum()))
    assert maps.overlap[drawn].tolist() == [1] * int(drawn.sum())


def test_the_last_map_with_several_places_is_taken_unless_one_is_named():
    model, x, x_adv, y = built(SmallConvNet((1, 8, 8), 3), 1, 8, 8)
    traced = trace(model, x, y, x_adv=x_adv, layers=["head"])

    # The Sequential that ends with the last convolution's ReLU ends last.
    assert focus(model, traced).name == "body"
    assert focus(model, traced, layer="body.0").aims["true"].clean.shape == (len(x), 8, 8)


class Tokens(nn.Module):
    """Patches and a class token, of which the head reads the class token alone, as in a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.last, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.unfold(2, 2, 2).unfold(3, 2, 2).reshape(len(x), 9, 4)
        tokens = self.mix(self.embed(torch.cat([torch.zeros_like(patches[:, :1]), patches], 1)))
        weights = torch.linspace(1, 2, 10, dtype=x.dtype)[:, None]
        return self.head(self.last(torch.cat([(weights * tokens).sum(1, keepdim=True), tokens[:, 1:]], 1))[:, 0])


def test_in_a_transformer_the_last_tokens_with_a_gradient_are_used():
    model, x, x_adv, y = built(Tokens(), 1, 6, 6)
    found = focus(model, trace(model, x, y, x_adv=x_adv))
    weights = (model.last.weight.T @ model.head.weight.T).T.detach()[y] * torch.linspace(1, 2, 10)[1:].mean()
    tokens = []
    with torch.no_grad():
        hook = model.mix.register_forward_hook(lambda *_: tokens.append(_[2]))
        model(x)
        hook.remove()
    expected = torch.einsum("bc,bnc->bn", weights, tokens[0][:, 1:]).relu().reshape(-1, 3, 3)

    assert found.name == "mix"
    assert torch.allclose(found.aims["true"].clean.double(), expected, rtol=1e-5, atol=1e-7)


def test_a_map_does_not_depend_on_other_images():
    model, x, x_adv, y = built(SmallConvNet((1, 8, 8), 3), 1, 8, 8, count=40)
    whole = focus(model, trace(model, x, y, x_adv=x_adv)).aims["true"]
    part = focus(model, trace(model, x[17:20], y[17:20], x_adv=x_adv[17:20])).aims["true"]

    assert torch.equal(whole.clean[17:20], part.clean)
    assert torch.equal(whole.perturbed[17:20], part.perturbed)


def test_without_a_feature_map_there_is_no_grad_cam():
    model, x, x_adv, y = built(Twice(), 6)
    traced = trace(model, x, y, x_adv=x_adv)
    with pytest.raises(UserError, match="several places"):
        focus(model, traced)
    with pytest.raises(UserError, match="'head'"):
        focus(model, traced, layer="head")
