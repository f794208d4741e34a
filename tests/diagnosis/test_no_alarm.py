"""Networks without masked gradients, and networks about which nothing can be said."""

import pytest
import torch
import torchvision
from torch import nn

from robustkit.diagnosis import diagnose
from tests.diagnosis.nets import Lambda, base, diagnosed, hardened


def random_network(build, *shape):
    """A network with random weights and random images, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(), torch.rand(*shape)


def test_an_ordinary_trained_network_raises_no_alarm_and_is_not_called_robust():
    diagnosis = diagnosed(base(), 32, prove=True)

    assert diagnosis.verdict == "clear"
    assert diagnosis.causes == diagnosis.source == diagnosis.prescription == ()
    assert diagnosis.proof.excludes_masking
    assert "does not prove robustness" in str(diagnosis)
    assert "does not prove robustness" in diagnosis.to_dict()["caveat"]


def test_an_adversarially_trained_network_raises_no_alarm():
    diagnosis = diagnosed(hardened(), 32, prove=True)

    assert diagnosis.verdict == "clear"
    assert {row.verdict for row in diagnosis.rows} == {"faithful"}


@pytest.mark.parametrize("name", ["resnet18", pytest.param("mobilenet_v3_small", marks=pytest.mark.slow)])
def test_a_stock_architecture_raises_no_alarm(name):
    # Smooth images: neighbours nearly tie in max pooling, which is then as far from linear as a layer can be.
    build = getattr(torchvision.models, name)
    model, x = random_network(lambda: build(weights=None, num_classes=10).eval(), 3, 3, 6, 6)
    x = nn.functional.interpolate(x, size=32, mode="bilinear")

    diagnosis = diagnose(model, x, torch.zeros(3, dtype=torch.int64), eps="8/255", prove=False)

    assert diagnosis.causes == ()
    assert "No layer" in diagnosis.reason


def test_a_transformer_whose_attention_takes_a_fast_path_raises_no_alarm():
    # torch.nn.TransformerEncoder takes another path when no gradient is needed.
    def build():
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        return nn.Sequential(
            nn.Flatten(2), nn.Linear(16, 16), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(64, 5)
        )

    model, x = random_network(build, 6, 4, 4, 4)

    diagnosis = diagnose(model, x, torch.zeros(6, dtype=torch.int64), eps="8/255", prove=False)

    assert diagnosis.causes == ()
    assert "No layer" in diagnosis.reason


def test_a_layer_that_already_has_a_surrogate_gradient_is_no_cause():
    straight_through = Lambda(lambda x: x + (torch.round(x * 8) / 8 - x).detach())
    diagnosis = diagnosed(nn.Sequential(straight_through, base()), 32, prove=True)

    assert diagnosis.verdict == "clear"
    assert diagnosis.rows[0].verdict == "straight-through"


def test_a_model_that_ignores_its_image_is_not_called_clear():
    diagnosis = diagnosed(Lambda(lambda x: 0 * x.flatten(1)[:, :10] + torch.arange(10.0)))

    assert diagnosis.verdict == "inconclusive"
    assert "ignores its input" in diagnosis.reason


def test_the_first_layer_that_ignores_its_input_is_named():
    diagnosis = diagnosed(nn.Sequential(Lambda(torch.zeros_like), base()), prove=True)

    assert diagnosis.verdict == "inconclusive"
    assert "stays the same is '0'" in diagnosis.reason


def test_a_network_that_is_curved_by_its_depth_raises_no_alarm_but_has_a_note():
    # Twelve layers of ReLU with weights of twice the usual size, at a radius far too large for them.
    def build():
        layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 10))

    body, _ = random_network(build, 1)
    with torch.no_grad():
        for layer in body:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(4)
    model = Lambda(body)
    diagnosis = diagnosed(model, 16, eps=1)

    assert diagnosis.causes == ()
    assert diagnosis.whole.fidelity < 0.1
    assert "does not predict a move of size eps" in diagnosis.notes[0]


class InParts(nn.Module):
    """Runs a batch in parts of one size, the last one filled up."""

    def __init__(self, network, size, *, fills):
        super().__init__()
        self.network, self.size, self.fills = network, size, fills

    def forward(self, x):
        return torch.cat([self.part(part) for part in x.split(self.size)])

    def part(self, x):
        filled = x[torch.arange(self.size) % len(x)] if self.fills else x
        return self.network(filled)[: len(x)]


@pytest.mark.parametrize(("size", "fills"), [(5, False), (7, True), (64, True)])
def test_a_network_that_runs_a_batch_in_parts_raises_no_alarm(size, fills):
    """Each layer was said to have a wrong backward pass: its rows are not those of the images."""
    diagnosis = diagnosed(InParts(base(), size, fills=fills), 32)

    assert diagnosis.causes == ()
    assert {row.verdict for row in diagnosis.rows} == {"faithful"}


def test_a_layer_that_masks_is_found_where_a_batch_runs_in_parts():
    defended = nn.Sequential(Lambda(lambda x: (x * 4).round() / 4), base())

    diagnosis = diagnosed(InParts(defended, 5, fills=False), 32)

    assert [cause.layer for cause in diagnosis.causes] == ["network.0"]


class WordsFirst(nn.Module):
    """Attention over `length` words, which stand before the images, as in torch's own layers."""

    def __init__(self, length):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embed, self.head = nn.Linear(64 // length, 16), nn.Linear(16, 10)
            self.attend = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
        self.length = length

    def forward(self, x):
        words = self.embed(x.reshape(len(x), self.length, -1)).transpose(0, 1)
        return self.head(self.attend(words).mean(0))


@pytest.mark.parametrize("images", [8, 16])
def test_words_that_stand_before_the_images_raise_no_alarm(images):
    """With 16 words and 8 or 16 images the attention was said to have a wrong backward pass."""
    x = torch.rand(images, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    diagnosis = diagnose(WordsFirst(16).eval(), x, torch.zeros(images, dtype=torch.int64), eps="8/255", prove=False)

    assert diagnosis.causes == ()
