import pytest
import torch
from robustkit.attacks import MIFGSM, PNA
from torch import Tensor, nn

from robustkit import UserError, attack
from robustkit.models.hub.classifier import HubClassifier
from robustkit.nethook import UnfiredLayerError
from robustkit.testing.problems import SmallTransformer
from tests.attacks.queries import gradient, logits_and_gradient, plain_gradient
from tests.problems import hooks, images, problem, seen, trials


class ByHand(nn.Module):
    """The same transformer with its attention written out, and probabilities that are constants."""

    def __init__(self, network: SmallTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        net = self.network
        x = net.body(x)
        attention, tokens = net.attention, net.norm(x)
        parts = nn.functional.linear(tokens, attention.in_proj_weight, attention.in_proj_bias).chunk(3, 2)
        query, key, value = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in parts)
        probabilities = (query @ key.transpose(2, 3) / query.shape[3] ** 0.5).softmax(3).detach()
        x = x + attention.out_proj((probabilities @ value).transpose(1, 2).flatten(2))
        return net.head((x + net.mlp(net.norm(x))).mean(1))


def test_gradients_pass_values_and_never_probabilities():
    made = problem("attentive", 12)
    method, hand = PNA(0.1), ByHand(made.model)
    logits, found = logits_and_gradient(method, made.model, method.init(trials(made.x, made.y)))

    assert torch.allclose(logits, hand(made.x), atol=1e-5)
    assert torch.allclose(found, plain_gradient(method, hand, made.x, made.y), atol=1e-5)
    assert not torch.allclose(found, plain_gradient(method, made.model, made.x, made.y), atol=1e-3)


def test_the_network_is_restored_after_an_error():
    made = problem("attentive", 12)
    before, method = list(made.model.modules()), PNA(0.1)
    with pytest.raises(ZeroDivisionError), method.hooks(made.model, method.init(trials(made.x))):
        raise ZeroDivisionError

    assert list(made.model.modules()) == before
    assert hooks(made.model) == 0


def test_attention_layers_can_be_chosen_by_name():
    made = problem("attentive", 12)

    assert torch.equal(*(gradient(PNA(0.1, layers=layers), made.model, made.x) for layers in (None, "att*")))
    with pytest.raises(UserError, match="No attention layer fits 'blocks'; there are attention"):
        gradient(PNA(0.1, layers="blocks"), made.model, made.x)


class Idle(nn.Module):
    """A network beside attention that it never calls."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.idle = network, nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


def test_attention_that_never_runs_is_ignored_unless_it_was_chosen():
    """It was an error that advised to open attention, which the attack does itself."""
    made = problem("attentive", 12)
    network = Idle(made.model)

    assert torch.equal(gradient(PNA(0.1), network, made.x), gradient(PNA(0.1), made.model, made.x))
    with pytest.raises(UnfiredLayerError, match="idle"):
        gradient(PNA(0.1, layers="*idle"), network, made.x)


def test_a_network_of_which_no_attention_runs_is_an_error():
    made = problem("cnn", 3, 8, 8)

    with pytest.raises(UnfiredLayerError, match="idle"):
        gradient(PNA(0.1), Idle(made.model), made.x)


def test_a_network_without_attention_is_an_error():
    made = problem("cnn", 1, 8, 8)

    with pytest.raises(UserError, match="no attention that can be opened"):
        attack(made.model, made.x, made.y, PNA(0.03))


def test_the_fused_attention_of_torchvision_is_opened():
    from torchvision.models import VisionTransformer

    made = problem("linear", 3, 16, 16)
    network = VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=4).eval()
    nn.init.normal_(network.heads.head.weight, generator=torch.Generator().manual_seed(0))
    method = PNA(0.1)

    assert not torch.allclose(gradient(method, network, made.x), plain_gradient(method, network, made.x), rtol=0.01)


def test_the_fused_attention_of_timm_is_opened():
    timm = pytest.importorskip("timm")
    network = timm.models.VisionTransformer(16, 8, num_classes=4, embed_dim=16, depth=2, num_heads=2).eval()
    made, method = problem("linear", 3, 16, 16), PNA(0.1)
    assert network.blocks[0].attn.fused_attn

    assert not torch.allclose(gradient(method, network, made.x), plain_gradient(method, network, made.x), rtol=0.01)
    assert network.blocks[0].attn.fused_attn


def test_the_attention_of_transformers_is_opened(monkeypatch):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=8,
        initializer_range=0.3,
    )
    network, made, method = (
        HubClassifier(transformers.ViTForImageClassification(config), None).eval(),
        problem("linear", 3, 16, 16),
        PNA(0.1),
    )
    found, plain = gradient(method, network, made.x), plain_gradient(method, network, made.x)
    softmax = nn.functional.softmax
    network.network.set_attn_implementation("eager")
    monkeypatch.setattr(nn.functional, "softmax", lambda *args, **more: softmax(*args, **more).detach())

    assert torch.allclose(found, plain_gradient(method, network, made.x), atol=1e-6)
    assert not torch.allclose(found, plain, rtol=0.01)


def test_a_query_contains_the_perturbation_of_some_patches_only():
    method, x = PNA(0.1, patches=0.5, patch=2), 0.5 * images(5, 3, 4, 5) + 0.2
    state = method.init(trials(x))
    shown = []
    for _ in range(3):
        state = method.step(state, seen([0.0] * 5, images(5, 3, 4, 5) - 0.5))
        changed = (state.query != x).any(1)
        shown.append(changed)

        # Two by three patches, the last column of them one pixel wide.
        wide = nn.functional.pad(changed, (0, 1)).unflatten(2, (3, 2)).unflatten(1, (2, 2)).float().amax((2, 4))
        assert (wide.sum((1, 2)) == 3).all()
        assert torch.equal(torch.where(changed.unsqueeze(1), state.point, x), state.query)
    assert not torch.equal(shown[0], shown[1])
    assert len(shown[0].flatten(1).unique(dim=0)) > 1


def test_the_whole_perturbation_is_judged():
    method, x = PNA(0.1, patches=0.5, patch=2, steps=1), images(5, 3, 4, 5)
    state = method.step(method.init(trials(x)), seen([0.0] * 5, images(5, 3, 4, 5) - 0.5))

    assert state.done.all()
    assert torch.equal(state.query, state.point)


def test_it_attacks_from_end_to_end():
    made = problem("attentive", 1, 8, 8)
    paying, not_paying = (attack(made.model, made.x, made.y, method) for method in (MIFGSM(0.03), PNA(0.03)))

    assert not torch.equal(paying.x_adv, not_paying.x_adv)
    assert torch.equal(made.model(not_paying.x_adv).argmax(1) != made.y, not_paying.success)
