"""The verdict on a network is what attacks show, not what a layer's numbers suggest."""

import pytest
import torch
from torch import Tensor, nn

from robustkit import Classifier, load_dataset
from robustkit.diagnosis import Proof
from robustkit.diagnosis.assessment import assess
from robustkit.diagnosis.conclusion import conclude
from robustkit.diagnosis.subject import Subject
from robustkit.diagnosis.text import note_on_remedy
from robustkit.errors import UserError
from robustkit.masked_defenses import fit
from robustkit.primitives.threat import ball
from tests.diagnosis.nets import EPS, Lambda, base, causes, diagnosed, images, remedies


class HalfBackward(torch.autograd.Function):
    """The identity, whose backward pass leaves out the left half of the pixels."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(grad[..., :4]), grad[..., 4:]], -1)


class Rounded(nn.Module):
    """Activations in four bits, with a straight-through estimator as in quantisation-aware training."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.clamp(0, 4)
        return x + (torch.round(x * 15 / 4) * 4 / 15 - x).detach()


class Reader(nn.Module):
    """An LSTM that reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(16 * x.flatten(1, 2))[0][:, -1])


def quantised() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Rounded(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        Rounded(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def sigmoid_mlp() -> nn.Module:
    return nn.Sequential(Lambda(lambda x: 16 * x.flatten(1)), nn.Linear(64, 12), nn.Sigmoid(), nn.Linear(12, 10))


def proof(missed: int, n: int) -> Proof:
    return Proof(1.0, "pgd", 0.5, "", None, "", n, "square", missed)


@pytest.mark.parametrize(
    ("remedied", "after", "gains_nothing"),
    [("pgd", 0.5, True), ("pgd", 0.4, False), ("square:queries=500", 0.5, False)],
)
def test_a_remedy_that_breaks_no_more_than_the_models_own_gradients_gains_nothing(remedied, after, gains_nothing):
    tried = proof(20, 64)._replace(attack_after=remedied, after=after)

    assert tried.remedy_gains_nothing == gains_nothing


def test_a_remedy_that_is_given_already_is_not_prescribed_again():
    model = nn.Sequential(Lambda(lambda x: (4 * x).round() / 4), base())

    assert remedies(diagnosed(model)) == {"bpda"}
    assert remedies(diagnosed(Classifier(model, bpda={"0": None}))) == {"gradient-free"}


def test_tanh_over_the_logits_is_masked_and_undone():
    diagnosis = diagnosed(nn.Sequential(base(), nn.Tanh()), 64, prove=True, eps=0.1)

    assert diagnosis.verdict == "masked"
    assert causes(diagnosis) == [("1", "saturated")]
    assert diagnosis.proof.after < diagnosis.proof.before - 0.1


def test_tanh_inside_a_forward_is_masked_although_no_layer_says_so():
    body = base()
    diagnosis = diagnosed(Lambda(lambda x: torch.tanh(body(x))), 64, prove=True, eps=0.1)

    assert diagnosis.verdict == "masked"
    assert "no layer" in diagnosis.reason
    assert diagnosis.proof.attack_search.startswith("square")


def test_a_backward_that_leaves_out_half_of_the_pixels_is_masked_and_undone():
    diagnosis = diagnosed(nn.Sequential(Lambda(HalfBackward.apply), base()), 32, prove=True, eps=0.1)

    assert diagnosis.verdict == "masked"
    assert causes(diagnosis) == [("0", "partial backward")]
    assert remedies(diagnosis) == {"bpda"}
    assert diagnosis.proof.after < diagnosis.proof.before - 0.1


@pytest.mark.parametrize(
    ("build", "epochs", "eps"), [(quantised, 4, 0.1), (Reader, 6, 0.3), (sigmoid_mlp, 15, 0.3)],
    ids=["straight-through", "LSTM", "sigmoid"],
)  # fmt: skip
def test_an_honest_network_on_which_attacks_succeed_is_clear(build, epochs, eps):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = fit(build(), epochs=epochs)
    diagnosis = diagnosed(network, 40, prove=True, eps=eps)

    assert diagnosis.verdict == "clear"
    assert diagnosis.causes == diagnosis.source == ()


def test_nothing_is_clear_before_an_attack_has_tested_it():
    diagnosis = diagnosed(base(), 32)

    assert diagnosis.verdict == "inconclusive"
    assert "no attack was run" in diagnosis.reason


class OnGrid(nn.Module):
    """The base network, which answers NaN to what is no picture in 17 grey levels, as digits are."""

    def __init__(self) -> None:
        super().__init__()
        self.base = base()

    def forward(self, x: Tensor) -> Tensor:
        off = ((16 * x).round() / 16 - x).abs().flatten(1).amax(1) > 1e-3
        return torch.where(off[:, None], torch.nan, self.base(x))


def test_an_attack_that_could_not_run_counted_as_one_that_broke_nothing():
    diagnosis = diagnosed(OnGrid(), 40, prove=True)

    assert diagnosis.proof.before is None
    assert diagnosis.proof.attack_search == ""


def test_a_network_that_no_gradient_attack_could_query_was_clear():
    measured = assess(Subject(Classifier(base()), *images(), ball("Linf", EPS), "log-odds", 0, 32), None)
    refused = proof(0, 64)._replace(before=None)

    assert conclude(measured, proof(0, 64)).verdict == "clear"
    assert conclude(measured, refused).verdict == "inconclusive"


def test_a_network_whose_answers_depend_on_their_batch_was_clear():
    centred = nn.Sequential(Lambda(lambda x: x - 0.3 * x.mean(0)), base())

    with pytest.raises(UserError, match="other images of its batch"):
        diagnosed(centred, 40, prove=True)


def test_a_defense_that_detaches_half_of_the_pixels_was_clear_at_the_radius_minimum():
    half = nn.Sequential(Lambda(lambda x: torch.cat([x[..., :4].detach(), x[..., 4:]], -1)), base())

    with pytest.raises(UserError, match="give one, such as"):
        diagnosed(half, 40, prove=True, eps="minimum")


def test_a_few_images_on_which_no_attack_is_better_show_nothing():
    diagnosis = diagnosed(base(), 16, prove=True)

    assert diagnosis.proof.missed == 0
    assert diagnosis.verdict == "inconclusive"
    assert "at least 29 images" in diagnosis.reason


def test_between_clear_and_masked_there_are_undecided_numbers_of_missed_images():
    verdicts = [(each.excludes_masking, each.shows_masking) for each in (proof(missed, 64) for missed in range(10))]

    assert verdicts == 3 * [(True, False)] + 4 * [(False, False)] + 3 * [(False, True)]


@pytest.mark.parametrize("share", [0, 1 / 64, 1 / 8, 1 / 2])
def test_more_images_never_turn_clear_into_masked_or_masked_into_clear(share):
    decided = [proof(int(share * n), n) for n in range(16, 513, 64)]

    assert not (any(each.excludes_masking for each in decided) and any(each.shows_masking for each in decided))


def test_without_an_attack_without_gradients_nothing_is_excluded():
    assert not proof(0, 64)._replace(attack_search="").excludes_masking
    assert diagnosed(base(), 32, prove=True, eps=8, norm="L0").verdict == "inconclusive"


@pytest.mark.filterwarnings("ignore:`torch.jit.script`", "ignore::DeprecationWarning")
def test_what_a_scripted_layer_does_calls_for_the_whole_proof():
    """No hook sees inside. A short search broke nothing, and the network, which retrieves images, was called clear."""

    class Retrieving(nn.Module):
        def __init__(self, images: Tensor) -> None:
            super().__init__()
            self.images = images

        def forward(self, x: Tensor) -> Tensor:
            nearest = torch.cdist(x.flatten(1), self.images).argmin(1)
            return 0.7 * self.images[nearest].view(x.shape) + 0.3 * x

    known = load_dataset("digits", "train").batch(range(400))[0].flatten(1)
    diagnosis = diagnosed(nn.Sequential(torch.jit.script(Retrieving(known)), base()), 32, prove=True, eps=0.2)

    assert diagnosis.unseen
    assert "queries=500" in diagnosis.proof.attack_search
    assert diagnosis.verdict == "masked"


@pytest.mark.parametrize(("after", "said"), [(0.5, "breaks fewer"), (0.1, ""), (0.25, "gains nothing")])
def test_a_remedy_that_is_weaker_than_the_models_own_gradients_says_so(after, said):
    # It was recommended without a word: Square left 50 % of the images where gradients left 23 %.
    missed = 0 if said == "gains nothing" else 8
    proof = Proof(1.0, "pgd", 0.25, "square:queries=500", after, "", 64, missed=missed)

    note = note_on_remedy(proof)
    assert said in note
    assert bool(said) == bool(note)
