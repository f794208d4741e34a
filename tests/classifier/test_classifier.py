import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from robustkit.attacks import APGD, PGD, Noise, Square
from torch import Tensor, nn

from robustkit import attack
from robustkit.classifier.classifier import Classifier
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.primitives import losses
from robustkit.primitives.protocol import begin
from tests.networks import Changed, Recording
from tests.problems import Problem, images, jobs_of, outcomes, problem, same, trials


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def judged(classifier: Classifier, x: Tensor) -> Tensor:
    with classifier.session(x) as session:
        return session.judge(x)


def test_judging_returns_the_models_logits():
    grey = problem("cnn", 1, 8, 8)

    # One size of batch against another.
    assert torch.allclose(judged(Classifier(grey.model), grey.x), grey.model(grey.x).detach(), atol=1e-5)


def test_judging_does_not_depend_on_the_number_of_points():
    grey = problem("cnn", 1, 8, 8, count=40)
    classifier = Classifier(grey.model)
    with classifier.session(grey.x) as session:
        whole = session.judge(grey.x)
        parts = [session.judge(part) for size in (1, 7, 32) for part in grey.x[:32].split(size)]

    assert torch.equal(torch.cat(parts), whole[:32].repeat(3, 1))


@pytest.mark.parametrize("bounds", [(0, 255), (-1, 1), (-2.5, 0.5)])
def test_a_model_receives_pixels_in_its_own_range(bounds):
    low, high = bounds
    model = Recording(problem("linear", 1, 4, 4).model)
    x = low + (high - low) * images(20, 1, 4, 4)
    result = attack(model, x, model(x).argmax(1), Noise(1.0, queries=20), bounds=bounds)

    seen = torch.cat(model.inputs)
    assert seen.min() >= low
    assert seen.max() <= high
    assert seen.max() - seen.min() > 0.9 * (high - low)
    assert result.x_adv.min() >= low
    assert result.x_adv.max() <= high


@pytest.mark.parametrize("bounds", [(0, 255), (-1, 1)])
def test_a_witness_in_any_range_of_pixels_has_its_judged_prediction(bounds):
    low, high = bounds
    grey = problem("mlp", 1, 8, 8)
    x = low + (high - low) * grey.x
    y = grey.model(x).argmax(1)
    result = attack(grey.model, x, y, PGD(0.03, steps=5), bounds=bounds)

    assert torch.equal(grey.model(result.x_adv).argmax(1), result.prediction)
    # The conversion to [0, 1] and back rounds.
    assert (result.x_adv - x).abs().max() <= 0.03 * (high - low) * (1 + 1e-5)


def test_normalisation_is_applied_inside():
    colour = problem("cnn", 3, 8, 8)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    normal = (colour.x - torch.tensor(mean).reshape(3, 1, 1)) / torch.tensor(std).reshape(3, 1, 1)

    logits = judged(Classifier(colour.model, mean=mean, std=std), colour.x)
    assert torch.allclose(logits, colour.model(normal).detach(), atol=1e-5)


@pytest.mark.parametrize(
    "more", [{"mean": [0.5]}, {"std": [0.5]}, {"mean": [0.5], "std": [0]}, {"mean": [0.5], "std": [1, 1]}]
)
def test_half_a_normalisation_is_refused(more):
    with pytest.raises(UserError, match=r"mean and std|mean has|std must be positive"):
        Classifier(nn.Flatten(), **more)


def test_a_normalisation_of_texts_says_that_it_takes_numbers():
    """It was a TypeError of Python's math module."""
    with pytest.raises(UserError, match="lists with one number per channel"):
        Classifier(nn.Flatten(), mean=["0.5"], std=[0.5])


@pytest.mark.parametrize(
    ("shape", "channels", "sentence"),
    [((1, 8, 8), 3, "3 numbers, but flat gets images of one channel"),
     ((3, 8, 8), 4, "4 numbers, but flat gets images of 3 channels"),
     ((64,), 1, r"three axes, channels first, but flat gets \[64\]")],
)  # fmt: skip
def test_a_normalisation_of_other_channels_is_an_error(shape, channels, sentence):
    # Images of one channel became images of three, and were evaluated.
    class Flat(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :10]

    classifier = Classifier(Flat(), mean=[0.5] * channels, std=[0.5] * channels)

    with pytest.raises(UserError, match=sentence):
        attack(classifier, torch.rand(4, *shape), torch.arange(4), "fgsm", eps=0.1)


@pytest.mark.parametrize("bounds", [(1, 0), (0.5, 0.5)])
def test_bounds_must_ascend(bounds):
    with pytest.raises(UserError, match="lower and a higher"):
        Classifier(nn.Flatten(), bounds=bounds)


def test_a_lazy_layer_without_a_shape_is_an_error_that_says_what_to_do():
    """It was torch's ValueError about an uninitialized parameter."""
    with pytest.raises(UserError, match=r"The weight 1\.weight of a lazy layer has no shape yet; call the model once"):
        Classifier(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)))


def test_a_network_without_values_is_an_error_that_says_what_to_do():
    """It was torch's NotImplementedError about the operator equal."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, device="meta"))

    with pytest.raises(UserError, match=r"The weight 1\.weight has no values"):
        attack(network, torch.rand(4, 1, 8, 8), torch.arange(4), "fgsm", eps=0.1)


def test_a_search_has_one_arithmetic():
    with pytest.raises(UserError, match="leave one of the two out"):
        Classifier(nn.Flatten(), bf16=True, tf32=True)


def test_verdicts_of_a_bf16_search_are_fp32():
    grey = problem("mlp", 1, 8, 8)
    model = Recording(grey.model)
    classifier = Classifier(model, bf16=True)
    with classifier.session(grey.x) as session:
        session.judge(grey.x)
        assert set(model.types) == {torch.float32}

    result = attack(classifier, grey.x, grey.y, PGD(0.03, steps=5))
    assert torch.bfloat16 in model.types
    assert torch.equal(grey.model(result.x_adv).argmax(1), result.prediction)


def test_verdicts_are_fp32_under_the_callers_autocast():
    grey = problem("mlp", 1, 8, 8)
    model = Recording(grey.model)
    with torch.autocast("cpu", torch.bfloat16):
        attack(model, grey.x, grey.y, PGD(0.03, steps=5))

    assert set(model.types) == {torch.float32}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_callers_grad_mode_does_not_matter(mode):
    grey = problem("cnn", 1, 8, 8)
    plain = attack(grey.model, grey.x, grey.y, PGD(0.03, steps=5))
    with mode():
        other = attack(grey.model, grey.x, grey.y, PGD(0.03, steps=5))

    assert torch.equal(other.x_adv, plain.x_adv)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("method", [PGD(0.03, steps=5), APGD(0.03, steps=5), Square(0.03, queries=20)])
def test_a_bf16_model_is_attacked_within_the_ball(method, normalised):
    grey = problem("mlp", 1, 8, 8)
    model = grey.model.bfloat16()
    more = {"mean": [0.5], "std": [0.5]} if normalised else {}
    fed = (grey.x - 0.5) / 0.5 if normalised else grey.x
    result = attack(Classifier(model, **more), grey.x, model(fed.bfloat16()).argmax(1), method, batch_size=5)

    assert (method.ball.distance(grey.x, result.x_adv) <= method.ball.eps).all()
    assert result.clean_accuracy == 1


def test_a_first_weight_of_whole_numbers_does_not_round_the_images():
    grey = problem("mlp", 1, 8, 8)
    model = Wrapped(grey.model)
    model.register_parameter("number", nn.Parameter(torch.tensor(3), requires_grad=False))

    assert attack(model, grey.x, grey.y, PGD(0.03, steps=5)).clean_accuracy == 1


def test_a_model_without_weights_is_attacked():
    x = images(6, 4)

    assert attack(nn.Identity(), x, x.argmax(1), PGD(0.5, steps=9)).robust_accuracy < 1


@pytest.mark.parametrize("method", [PGD(0.03, steps=5), Square(0.03, queries=20)])
def test_a_model_that_writes_into_its_input_changes_no_image(method):
    grey = problem("cnn", 1, 8, 8)
    model = Changed(grey.model, before=lambda x: x.sub_(0.1))
    result = attack(model, grey.x, model(grey.x.clone()).argmax(1), method)

    assert result.clean_accuracy == 1
    assert (method.ball.distance(grey.x, result.x_adv) <= method.ball.eps).all()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_that_autograd_cannot_pass_is_refused_with_the_fix(frozen):
    grey = problem("mlp", 1, 8, 8)
    grey.model.requires_grad_(not frozen)

    with pytest.raises(UserError, match="autograd"):
        attack(Changed(grey.model, before=lambda x: x.detach()), grey.x, grey.y, PGD(0.03))


@pytest.mark.parametrize(
    "pack", [lambda logits: {"logits": logits, "loss": None}, lambda logits: (logits, "auxiliary")]
)
def test_dict_and_tuple_outputs(pack):
    grey = problem("cnn", 1, 8, 8)
    result, plain = (
        attack(model, grey.x, grey.y, PGD(0.03, steps=5)) for model in (Changed(grey.model, pack), grey.model)
    )

    assert torch.equal(result.success, plain.success)


def test_a_model_with_one_logit_is_a_binary_classifier():
    two = problem("linear", 1, 4, 4, classes=2)
    one = nn.Sequential(nn.Flatten(), nn.Linear(16, 1))
    with torch.no_grad():
        one[1].weight.copy_(two.model[1].weight[1:] - two.model[1].weight[:1])
        one[1].bias.copy_(two.model[1].bias[1:] - two.model[1].bias[:1])
    results = [attack(model, two.x, two.y, PGD(0.05, steps=5)) for model in (one, two.model)]

    assert torch.equal(results[0].success, results[1].success)
    assert 0 < results[0].robust_accuracy < 1


def test_folding_changes_no_verdict():
    grey = problem("cnn", 1, 8, 8, count=30)
    folded, plain = (
        attack(Classifier(grey.model, fold=fold), grey.x, grey.y, PGD(0.02, steps=10)) for fold in (True, False)
    )

    assert torch.equal(folded.success, plain.success)


def test_a_batchnorm_network_is_searched_folded_and_left_as_it_was():
    grey = problem("cnn", 1, 8, 8)
    classifier, before = Classifier(grey.model), copy.deepcopy(grey.model.state_dict())
    with classifier.session(grey.x) as session:
        assert session.search.folded
        list(run(session, PGD(0.03, steps=2), jobs_of(grey), slots=64))

    assert all(torch.equal(value, before[name]) for name, value in grey.model.state_dict().items())


def test_a_compiled_search_queries_the_compiled_network_and_verdicts_do_not(monkeypatch):
    grey = problem("mlp", 1, 8, 8, count=40)
    asked: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        def run(*values: object) -> object:
            asked.append("compiled")
            return graph(*values)

        return run

    # The tracing is torch's own; only the machine code is left out, which needs a compiler on the machine.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    method = PGD(0.03, steps=5)
    classifier = Classifier(grey.model, compile=True)
    compiled, plain = attack(classifier, grey.x, grey.y, method), attack(grey.model, grey.x, grey.y, method)

    assert len(asked) >= method.steps
    assert torch.equal(compiled.success, plain.success)
    assert torch.equal(grey.model(compiled.x_adv).argmax(1), compiled.prediction)
    with classifier.session(grey.x) as session:
        asked.clear()
        session.judge(grey.x)
    assert not asked


def test_a_classifier_on_another_device_leaves_the_callers_model_where_it_is():
    # A surrogate on the CPU was queried at points on a GPU.
    given = Classifier(problem("cnn", 1, 8, 8).model, bf16=True, name="small")
    moved = given.on(torch.device("meta"))

    assert (moved.device.type, given.device.type) == ("meta", "cpu")
    assert (moved.name, moved.bf16, moved.on(moved.device)) == ("small", True, moved)


class Moody(Wrapped):
    """Takes one path when it is traced and another when it runs, so its trace is wrong."""

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) if isinstance(x, Tensor) else -self.model(x)


def test_a_folded_copy_with_other_logits_is_not_used():
    grey = problem("cnn", 1, 8, 8)
    with Classifier(Moody(grey.model)).session(grey.x) as session:
        assert not session.search.folded


def test_channels_last_changes_no_verdict_and_no_weight():
    large = problem("cnn", 3, 16, 16, count=8)
    strides = large.model.body[0].weight.stride()
    results = [
        attack(Classifier(large.model, channels_last=last), large.x, large.y, PGD(0.01, steps=5))
        for last in (True, False)
    ]

    assert torch.equal(results[0].success, results[1].success)
    assert large.model.body[0].weight.stride() == strides


@pytest.mark.parametrize("batch_size", [3, 70])
def test_convolutions_with_channels_last_give_the_same_bits_in_any_batch(batch_size):
    large = problem("cnn", 3, 16, 16, count=80)
    results = [attack(large.model, large.x, large.y, PGD(0.01, steps=3), batch_size=size) for size in (batch_size, 64)]

    assert torch.equal(results[0].x_adv, results[1].x_adv)


def test_a_gradient_is_that_of_its_row_alone():
    # A mean over the batch, or over its padding, would scale it.
    made = problem("mlp", 1, 8, 8)
    method, classifier = PGD(0.03), Classifier(made.model)
    with classifier.session(made.x) as session:
        told = session.query(method, begin(trials(made.x, made.y), made.x))
    x = made.x[:1].clone().requires_grad_()
    loss = losses.loss("log-odds")(made.model(x), made.y[:1], torch.tensor([-1]))

    assert torch.allclose(told.loss[:1], loss, atol=1e-5)
    assert torch.allclose(told.grad[:1], torch.autograd.grad(loss.sum(), x)[0], atol=1e-5)


@pytest.mark.parametrize(("method", "logits", "grad"), [(PGD(0.03), 4, 64), (Square(0.03), 4, 0), (Noise(0.03), 0, 0)])
def test_an_attack_receives_no_more_than_it_may_see(method, logits, grad):
    made = problem("mlp", 1, 8, 8)
    classifier = Classifier(made.model)
    with classifier.session(made.x) as session:
        told = session.query(method, begin(trials(made.x, made.y), made.x))

    assert told.logits.numel() == 12 * logits
    assert told.grad.numel() == 12 * grad
    assert bool(told.loss.any()) == bool(logits)
    assert torch.equal(told.label, made.y)


def test_passes_count_rows_of_both_networks():
    grey = problem("mlp", 1, 8, 8)
    model = Recording(grey.model)
    with Classifier(model).session(grey.x) as session:
        list(run(session, PGD(0.001, steps=4), jobs_of(grey), slots=64))

    assert session.passes.forwards == sum(len(x) for x in model.inputs)


def test_two_sessions_give_the_same_outcomes():
    grey = problem("cnn", 1, 8, 8)
    classifier = Classifier(grey.model)
    first, second = (outcomes(classifier, APGD(0.02, steps=5), jobs_of(grey)) for _ in range(2))

    assert all(same(*pair) for pair in zip(first, second, strict=True))


def test_a_session_opens_in_the_precision_that_the_model_has_then():
    grey = problem("mlp", 1, 8, 8)
    classifier = Classifier(grey.model)
    with classifier.session(grey.x) as session:
        assert session.input.dtype == torch.float32
    grey.model.double()
    with classifier.session(grey.x.double()) as session:
        assert session.judge(grey.x.double()).dtype == torch.float64


def test_double_precision_is_kept():
    grey = problem("mlp", 1, 8, 8)
    double = Problem(grey.model.double(), grey.x.double(), grey.y)

    assert attack(double.model, double.x, double.y, APGD(0.03, steps=5)).x_adv.dtype == torch.float64


def test_a_verdict_that_takes_too_much_memory_is_computed_in_parts():
    class Hungry(nn.Module):
        def forward(self, x):
            if len(x) > 4:
                raise torch.OutOfMemoryError
            return x.flatten(1)[:, :3] + x.sum()[None, None] * 0

    images = torch.rand(16, 1, 4, 4)
    classifier = Classifier(Hungry(), fold=False, channels_last=False)
    with classifier.session(images) as session:
        session.sizes.exact = False  # as on a GPU, where memory is short

        assert torch.equal(session.judge(images), images.flatten(1)[:, :3])
