import numpy as np
import pytest
import torch
from torch import nn

from robustkit.nethook import leftover_hooks
from robustkit.testing.problems import SmallConvNet
from robustkit.tracing import Album, Traced, album, trace
from tests.problems import problem
from tests.tracing.nets import Twice, built


@pytest.fixture(scope="module")
def traced() -> tuple[nn.Module, Traced, Album]:
    chosen = problem("cnn", 1, 8, 8, count=24)
    found = trace(chosen.model, chosen.x, chosen.y, attack="pgd:steps=5", eps=0.03)
    return chosen.model, found, album(chosen.model, found)


def test_broken_images_come_first_and_those_that_moved_most_among_them(traced):
    _, found, pictures = traced
    broken = [shot.broken for shot in pictures.entries]
    perturbed = [shot.margin_change for shot in pictures.entries if shot.broken]

    assert broken == [True] * 4 + [False] * 2
    assert perturbed == sorted(perturbed, reverse=True)
    assert perturbed[0] == found.margin_change[found.pairs.broken].max()


def test_an_entry_holds_the_images_of_its_number(traced):
    _, found, pictures = traced
    for shot in pictures.entries:
        place = found.pairs.number.tolist().index(shot.number)

        assert np.array_equal(shot.x, found.pairs.x[place].numpy())
        assert np.array_equal(shot.x_adv, found.pairs.x_adv[place].numpy())


def test_gradients_are_those_of_the_margin_in_the_pixels(traced):
    model, _, pictures = traced
    shot = pictures.entries[0]
    for image, drawn in ((shot.x, shot.clean_grad), (shot.x_adv, shot.perturbed_grad)):
        point = torch.from_numpy(image)[None].requires_grad_()
        logits = model(point)[0]
        (grad,) = torch.autograd.grad(logits[shot.prediction] - logits[shot.label], point)

        assert np.allclose(drawn, grad[0].numpy(), atol=1e-6)


def test_the_channels_shown_are_those_that_changed_most(traced):
    model, _, pictures = traced
    shot = pictures.entries[1]
    layer = shot.layers[0]
    with torch.no_grad():
        before, after = (model.body[0](torch.from_numpy(image)[None])[0] for image in (shot.x, shot.x_adv))
    change = (after - before).flatten(1).norm(dim=1)

    assert layer.name == "body.0"
    assert [one.number for one in layer.channels] == change.argsort(descending=True).tolist()[:4]
    assert np.allclose(layer.channels[0].clean, before[layer.channels[0].number].numpy(), atol=1e-6)


def test_layers_are_taken_at_even_steps_from_the_first_to_the_last(traced):
    assert [layer.name for layer in traced[2].entries[0].layers] == ["body.0", "body.2", "body.3", "body.5"]


def test_named_layers_are_shown_and_the_last_of_them_is_used_for_grad_cam(traced):
    model, found, _ = traced
    pictures = album(model, found, layers=["body.[02]", "head"], images=2, channels=3)

    assert [layer.name for layer in pictures.entries[0].layers] == ["body.0", "body.2"]
    assert [len(layer.channels) for layer in pictures.entries[0].layers] == [3, 3]
    assert pictures.focus is not None
    assert pictures.focus.name == "body.2"
    assert len(pictures.entries) == 2


def test_a_network_without_feature_maps_has_an_album_of_its_inputs():
    model, x, x_adv, y = built(Twice(), 1, 2, 3)
    pictures = album(model, trace(model, x, y, x_adv=x_adv))

    assert pictures.focus is None
    assert all(not shot.layers and shot.clean_grad.any() for shot in pictures.entries)


def test_an_album_restores_the_model():
    model, x, x_adv, y = built(SmallConvNet((1, 8, 8), 3), 1, 8, 8)
    found = trace(model, x, y, x_adv=x_adv)
    model.train()
    weights = [weight.clone() for weight in model.parameters()]
    album(model, found)

    assert all(module.training for module in model.modules())
    assert all(torch.equal(*pair) for pair in zip(weights, model.parameters(), strict=True))
    assert all(weight.grad is None for weight in model.parameters())
    assert not leftover_hooks(model)
