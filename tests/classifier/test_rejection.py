"""Models that reject images: an attack succeeds where an image is misclassified and not rejected."""

import pytest
import torch
from torch import Tensor, nn

import robustkit
from robustkit import Classifier, Smoothing
from robustkit.classifier import rejection
from robustkit.data import from_tensors
from robustkit.errors import UserError


class Gap(nn.Module):
    """Class 0 below `low`, class 1 above `high`, by the mean of the image; rejected between."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high, self.weight = low, high, nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight * x.flatten(1).mean(1)
        nothing = torch.zeros_like(mean)
        return torch.stack([self.low - mean, mean - self.high, nothing], 1)


class Appended(nn.Module):
    """A network whose further output is a constant."""

    def __init__(self, network: nn.Module, value: float) -> None:
        super().__init__()
        self.network, self.value = network, value

    def forward(self, x: Tensor) -> Tensor:
        logits = self.network(x)
        return torch.cat([logits, torch.full_like(logits[:, :1], self.value)], 1)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4)).eval()


def test_the_true_class_takes_the_logit_of_the_rejection_where_that_is_larger() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 0.0]])

    assert rejection.for_attacker(logits, torch.tensor([0, 0]), 1.0).tolist() == [[3.0, 2.0], [1.0, 2.0]]
    assert rejection.labels(logits).tolist() == [-1, 1]


@pytest.mark.parametrize("method", ["pgd:steps=40", "apgd", "fab", "square:queries=300"])
def test_an_attack_must_cross_the_whole_gap_of_rejected_images(method: str) -> None:
    x, y = torch.full((3, 1, 2, 2), 0.2), torch.zeros(3, dtype=torch.int64)
    model = Classifier(Gap(0.3, 0.5), rejects=True)

    into_the_gap = robustkit.attack(model, x, y, method, eps=0.25)
    across = robustkit.attack(model, x, y, method, eps=0.35)

    assert into_the_gap.clean_correct.all()
    assert not into_the_gap.success.any()
    assert across.success.all()
    assert (across.prediction == 1).all()


def test_a_model_that_never_rejects_is_attacked_as_one_without_a_rejection() -> None:
    network, x = _network(), torch.rand(24, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    y = network(x).argmax(1)

    plain = robustkit.attack(network, x, y, "apgd-t", eps=0.2)
    rejecting = robustkit.attack(Classifier(Appended(network, -1e3), rejects=True), x, y, "apgd-t", eps=0.2)

    assert 0 < int(plain.success.sum()) < len(x)
    assert torch.equal(plain.success, rejecting.success)
    assert torch.equal(plain.queries, rejecting.queries)


def test_no_rejected_image_counts_as_broken() -> None:
    network, x = _network(), torch.rand(64, 3, 2, 2, generator=torch.Generator().manual_seed(2))
    y, model = network(x).argmax(1), Appended(_network(), 0.06)

    found = robustkit.attack(Classifier(model, rejects=True), x, y, "pgd:steps=40,restarts=3", eps=0.4)
    after, before = model(found.x_adv).argmax(1), model(x).argmax(1)

    assert torch.equal(found.clean_correct, before == y)
    assert 4 in before
    assert 4 in after
    assert int(found.success.sum()) > 5
    assert bool(((after != y) & (after != 4))[found.success].all())
    assert (found.prediction[found.clean_correct & (after == 4)] == -1).all()


class Bent(nn.Module):
    """A network with a detector of images far from grey, whose score has some unit."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.network, self.unit = _network(), unit

    def forward(self, x: Tensor) -> Tensor:
        logits = 20 * self.network(x)
        score = 12 * (x - 0.5).square().flatten(1).sum(1) - 18
        return torch.cat([logits, (logits.amax(1) + self.unit * score).unsqueeze(1)], 1)


@pytest.mark.parametrize(("method", "least"), [("pgd:steps=20", 8), ("apgd", 20), ("default", 20)])
def test_attacks_crossed_the_boundary_into_rejection_and_stayed_there(method: str, least: int) -> None:
    """Of 64 images they broke 4, 12 and 14; it depended on the unit of the detector's score how many."""
    x = torch.rand(64, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    y = _network()(x).argmax(1)
    models = [Classifier(Bent(unit), rejects=True) for unit in (1 / 64, 1.0, 64.0)]
    broken = [int(robustkit.attack(model, x, y, method, eps=0.4).success.sum()) for model in models]

    assert min(broken) >= least
    assert max(broken) - min(broken) <= 1


@pytest.mark.parametrize("method", ["apgd", "default"])
def test_a_rejection_leaves_the_bits_alone_whatever_the_batch(method: str) -> None:
    x = torch.rand(23, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    y, model = _network()(x).argmax(1), Classifier(Bent(3.0), rejects=True)
    whole, parts = (robustkit.attack(model, x, y, method, eps=0.4, batch_size=size) for size in (64, 3))

    assert 0 < int(whole.success.sum()) < len(x)
    assert torch.equal(whole.x_adv, parts.x_adv)
    assert torch.equal(whole.forwards, parts.forwards)


def test_a_rejection_along_the_gradient_looked_like_a_masked_gradient() -> None:
    x = torch.rand(64, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    data = x, _network()(x).argmax(1)
    run = robustkit.evaluate(Bent(64.0), dataset=data, eps=0.4, rejects=True, progress=False)

    assert not [check.name for check in run.checks if check.status == "failed"]
    assert run.results["broken"].max() >= 20


def test_a_model_that_rejects_everything_far_away_counted_as_masked() -> None:
    x = torch.rand(24, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    data = x, _network()(x).argmax(1)
    run = robustkit.evaluate(
        Bent(8.0), dataset=data, attacks="pgd:steps=20", eps=0.4, rejects=True, checks="standard", progress=False
    )

    assert next(check.status for check in run.checks if check.name == "unbounded") == "not_applicable"


def test_a_gradient_is_that_of_the_lead_near_its_point() -> None:
    generator = torch.Generator().manual_seed(6)
    here = torch.randn(50, 5, generator=generator, dtype=torch.float64).requires_grad_()
    step = 1e-6 * torch.randn(50, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (50,), generator=generator)

    seen = rejection.for_attacker(here, y, 2.0)
    (grad,) = torch.autograd.grad(seen.sum(), here)
    change = rejection.near(here + step, y, 2.0, here) - rejection.near(here, y, 2.0, here)

    assert torch.equal(rejection.near(here, y, 2.0, here), seen)
    assert torch.allclose(change.sum(1), (grad * step).sum(1), rtol=1e-4, atol=1e-12)


def test_a_rejected_clean_image_counts_as_wrong_and_a_rejected_example_as_robust() -> None:
    x = torch.tensor([0.2, 0.2, 0.4, 0.9]).reshape(4, 1, 1, 1).expand(4, 1, 2, 2).contiguous()
    data = x, torch.tensor([0, 0, 0, 1])

    run = robustkit.evaluate(Gap(0.3, 0.5), dataset=data, attacks="pgd:steps=20", eps=0.25, rejects=True, checks="none")
    clean, worst = (run.results[run.results["role"] == role].iloc[0] for role in ("clean", "worst-case"))

    assert (clean["correct"], clean["abstained"], worst["correct"]) == (3, 1, 3)
    assert run.samples["clean_pred"].tolist() == [0, 0, -1, 1]
    assert run.samples["verdict"].tolist() == ["robust", "robust", "clean-wrong", "robust"]


def test_the_default_attacks_a_model_that_rejects() -> None:
    x = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(3)) * 0.1 + 0.2
    y = torch.zeros(20, dtype=torch.int64)
    model = Classifier(Gap(0.35, 0.5), rejects=True)

    near, far = (robustkit.attack(model, x, y, "default", eps=eps) for eps in (0.2, 0.3))

    assert near.robust_accuracy == 1
    assert far.robust_accuracy == 0


def test_a_model_that_rejects_is_refused_where_that_means_nothing() -> None:
    gap, x, y = Gap(0.3, 0.5), torch.full((2, 1, 2, 2), 0.2), torch.zeros(2, dtype=torch.int64)

    with pytest.raises(UserError, match="leave one out"):
        Classifier(gap, rejects=True, smoothing=Smoothing(0.1))
    with pytest.raises(UserError, match="leave out rejects"):
        Classifier(robustkit.BlackBox(lambda images: images.flatten(1)), rejects=True)
    with pytest.raises(UserError, match="switch its randomness off"):
        robustkit.attack(Classifier(nn.Sequential(nn.Flatten(), _Noisy()), rejects=True), x, y, "pgd", eps=0.1)
    with pytest.raises(UserError, match="three at least"):
        robustkit.attack(Classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), rejects=True), x, y, "pgd", eps=0.1)
    with pytest.raises(UserError, match="leave out rejects"):
        robustkit.trace(Classifier(gap, rejects=True), x, y, eps=0.1)
    with pytest.raises(UserError, match="leave out rejects"):
        robustkit.diagnose(Classifier(gap, rejects=True), x, y, eps=0.1)


def test_probabilities_beside_the_score_of_a_detector_are_recognised() -> None:
    model = Appended(nn.Sequential(_network(), nn.Softmax(1)), -2.0)
    x = torch.rand(24, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    data = x, model(x).argmax(1)

    run, told = (
        robustkit.evaluate(model, dataset=data, attacks="fgsm", eps=0.1, rejects=True, probabilities=given)
        for given in (False, True)
    )
    with pytest.warns(UserWarning, match="--probabilities"):
        robustkit.attack(Classifier(model, rejects=True), *data, "fgsm", eps=0.1)
    failed = [[check.name for check in each.checks if check.status == "failed"] for each in (run, told)]

    assert failed == [["probabilities"], []]


def test_the_last_class_is_not_taken_for_a_rejection_where_no_image_is_of_it() -> None:
    x, y = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(5)), torch.tensor([0, 1, 2, 0, 1, 2])
    data = from_tensors(x, y, class_names=["a", "b", "c", "d"])

    with pytest.raises(UserError, match="3 classes beside the rejection"):
        robustkit.evaluate(_network(), dataset=data, attacks="fgsm", eps=0.1, rejects=True)


class _Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)
