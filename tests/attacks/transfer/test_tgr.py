import pytest
import torch
from robustkit.attacks import TGR
from robustkit.attacks.transfer.tgr import without_extreme_pairs, without_extreme_tokens
from torch import Tensor, nn

from robustkit import UserError, attack
from robustkit.models.hub.classifier import HubClassifier
from robustkit.nethook import UnfiredLayerError
from robustkit.testing.problems import SmallTransformer
from tests.attacks.queries import gradient, logits_and_gradient, plain_gradient
from tests.problems import hooks, images, problem, trials


def test_each_channel_of_each_image_loses_its_extreme_tokens():
    grad = torch.tensor(
        [[[1.0, 5.0], [-2.0, 4.0], [3.0, -1.0], [0.5, 2.0]], [[9.0, 0.1], [8.0, 0.2], [7.0, 0.3], [6.0, 0.4]]]
    )

    expected = torch.tensor(
        [[[1.0, 0.0], [0.0, 4.0], [0.0, 0.0], [0.5, 2.0]], [[0.0, 0.0], [8.0, 0.2], [7.0, 0.3], [0.0, 0.0]]]
    )
    assert torch.equal(without_extreme_tokens(grad), expected)


def test_each_head_of_each_image_loses_the_rows_and_columns_of_its_extremes():
    grad = images(2, 3, 4, 5) - 0.5
    expected = grad.clone()
    for image in range(2):
        for head in range(3):
            for extreme in (grad[image, head].argmax(), grad[image, head].argmin()):
                expected[image, head, extreme // 5, :] = 0
                expected[image, head, :, extreme % 5] = 0

    assert torch.equal(without_extreme_pairs(grad), expected)


class ByHand(nn.Module):
    """The same transformer with its attention written out, and edited gradients where TGR edits them."""

    def __init__(self, network: SmallTransformer, variant: str) -> None:
        super().__init__()
        self.network, self.variant = network, variant

    def forward(self, x: Tensor) -> Tensor:
        net = self.network
        x = net.body(x)
        attention, tokens = net.attention, net.norm(x)
        parts = nn.functional.linear(tokens, attention.in_proj_weight, attention.in_proj_bias).chunk(3, 2)
        parts = [edited(part, lambda grad: 0.75 * without_extreme_tokens(grad)) for part in parts]
        query, key, value = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in parts)
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        if self.variant == "reference":
            scores = edited(scores, lambda grad: 0.25 * without_extreme_pairs(grad))
        weights = scores.softmax(3)
        if self.variant == "paper":
            weights = edited(weights, lambda grad: 0.25 * without_extreme_pairs(grad))
        x = x + attention.out_proj((weights @ value).transpose(1, 2).flatten(2))
        mlp = edited(net.mlp(net.norm(x)), lambda grad: 0.5 * without_extreme_tokens(grad))
        return net.head((x + mlp).mean(1))


def edited(value: Tensor, change: object) -> Tensor:
    value = value.clone()
    value.register_hook(change)
    return value


def lively(count: int = 6) -> tuple[SmallTransformer, Tensor]:
    """A transformer whose head tells tokens and channels apart, so that gradients have extremes."""
    made = problem("attentive", 12, count=count)
    made.model.head = nn.Sequential(nn.Tanh(), made.model.head)
    return made.model, made.x


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_gradients_are_edited_at_attention_projections_and_mlp(variant):
    network, x = lively()
    method = TGR(0.1, variant=variant)
    logits, found = logits_and_gradient(method, network, method.init(trials(x)))

    assert torch.allclose(logits, network(x), atol=1e-5)
    assert torch.allclose(found, plain_gradient(method, ByHand(network, variant), x), atol=1e-6)
    assert not torch.allclose(found, plain_gradient(method, network, x), atol=1e-4)


def test_the_variants_differ():
    network, x = lively()

    assert not torch.allclose(*(gradient(TGR(0.1, variant=name), network, x) for name in ("paper", "reference")))


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_extremes_are_those_of_each_image(variant):
    # Other codes take the first image's for all of them.
    network, x = lively(8)
    method, some = TGR(0.1, variant=variant), torch.tensor([5, 0, 3])

    assert torch.allclose(gradient(method, network, x[some]), gradient(method, network, x)[some], atol=1e-6)


def test_the_network_is_restored_after_an_error():
    network, x = lively()
    before, method = list(network.modules()), TGR(0.1)
    with pytest.raises(ZeroDivisionError), method.hooks(network, method.init(trials(x))):
        raise ZeroDivisionError

    assert list(network.modules()) == before
    assert hooks(network) == 0


class Idle(nn.Module):
    """A transformer beside a second one that it never calls."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.idle = network, problem("attentive", 12).model

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_attention_that_never_runs_is_ignored_unless_it_was_chosen(variant):
    network, x = lively()
    beside = Idle(network)

    assert torch.equal(gradient(TGR(0.1, variant=variant), beside, x), gradient(TGR(0.1, variant=variant), network, x))
    with pytest.raises(UnfiredLayerError, match="idle"):
        gradient(TGR(0.1, layers="idle*", variant=variant), beside, x)


def test_the_layers_of_timm_are_found():
    timm = pytest.importorskip("timm")
    network = timm.models.VisionTransformer(16, 8, num_classes=4, embed_dim=16, depth=2, num_heads=2).eval()
    made = problem("linear", 3, 16, 16)
    found = [gradient(TGR(0.1, variant=name), network, made.x) for name in ("paper", "reference")]

    assert not torch.equal(*found)
    assert not torch.equal(found[0], plain_gradient(TGR(0.1), network, made.x))
    assert network.blocks[0].attn.fused_attn


def test_the_layers_of_transformers_are_found():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    network, made = (
        HubClassifier(transformers.ViTForImageClassification(config), None).eval(),
        problem("linear", 3, 16, 16),
    )
    nn.init.normal_(network.network.classifier.weight, generator=torch.Generator().manual_seed(0))
    found = [gradient(TGR(0.1, variant=name), network, made.x) for name in ("paper", "reference")]

    assert not torch.equal(*found)
    assert not torch.equal(found[0], plain_gradient(TGR(0.1), network, made.x))


def test_a_network_without_the_needed_layers_is_an_error():
    with pytest.raises(UserError, match="no attention that can be opened"):
        gradient(TGR(0.1), problem("cnn", 1, 8, 8).model, images(2, 1, 8, 8))

    made = problem("attentive", 12)
    made.model.feed, made.model.mlp = made.model.mlp, None
    with pytest.raises(UserError, match="no layer called mlp beside attention 'attention'"):
        attack(Renamed(made.model), made.x, made.y, TGR(0.03))
    assert hooks(made.model) == 0


class Renamed(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.body, self.head = network.body, network.head

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head(self.attention(x, x, x)[0].mean(1))
