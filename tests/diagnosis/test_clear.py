import pytest
import torch
import torchvision
from torch import nn

from robustkit.diagnosis import diagnose
from tests.diagnosis.nets import EPS, StraightThrough, base, hardened, images


def test_an_ordinary_trained_network_raises_no_alarm():
    x, y = images()
    found = diagnose(base(), x, y, eps=EPS)

    assert found.verdict == "clear"
    assert found.culprits == found.source == found.prescription == ()
    assert found.proof is None


def test_an_adversarially_trained_network_raises_no_alarm():
    x, y = images()
    found = diagnose(hardened(), x, y, eps=EPS)

    assert found.verdict == "clear"
    assert {row.verdict for row in found.rows} == {"faithful"}


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_a_stock_architecture_raises_no_alarm(name):
    # Smooth images: neighbours nearly tie in max pooling, which is then as far from linear as a layer can be.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(torchvision.models, name)(weights=None, num_classes=10).eval()
        x = nn.functional.interpolate(torch.rand(3, 3, 6, 6), size=32, mode="bilinear")
    found = diagnose(model, x, torch.zeros(3, dtype=torch.int64), eps="8/255", prove=False)

    assert found.verdict == "clear"


def test_a_transformer_whose_attention_takes_a_fast_path_raises_no_alarm():
    # torch.nn.TransformerEncoder computes otherwise where no gradient is asked for.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        model = nn.Sequential(
            nn.Flatten(2), nn.Linear(16, 16), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(64, 5)
        )
        x = torch.rand(6, 4, 4, 4)
    found = diagnose(model, x, torch.zeros(6, dtype=torch.int64), eps="8/255", prove=False)

    assert found.verdict == "clear"


def test_a_stand_in_that_already_passes_gradients_through_a_step_is_no_culprit():
    x, y = images()
    found = diagnose(nn.Sequential(StraightThrough(), base()), x, y, eps=EPS, prove=False)

    assert found.verdict == "clear"
    assert found.rows[0].verdict == "surrogate"


def test_a_model_that_ignores_its_image_is_not_called_clear():
    class Deaf(nn.Module):
        def forward(self, x):
            return 0 * x.flatten(1)[:, :3] + torch.tensor([1.0, 2.0, 3.0])

    x, y = images(8)
    found = diagnose(Deaf(), x, y % 3, eps=EPS, prove=False)

    assert found.verdict == "inconclusive"
    assert "zero" in found.reason


def test_a_clear_verdict_says_that_it_proves_no_robustness():
    x, y = images(8)
    found = diagnose(base(), x, y, eps=EPS)

    assert "does not prove robustness" in str(found)
    assert "does not prove robustness" in found.to_dict()["caveat"]


def test_a_network_curved_by_depth_raises_no_alarm_but_says_so():
    # Twelve layers of ReLU with weights of twice the usual size, at a radius far too large for them.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.ReLU())]
        body = nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 10))
    with torch.no_grad():
        for layer in body:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(4)

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            return self.body(x)

    x, y = images(16)
    found = diagnose(Deep(), x, y, eps=1, prove=False)

    assert found.verdict == "clear"
    assert found.whole.fidelity < 0.1
    assert "says nothing of a move of size eps" in found.notes[0]
