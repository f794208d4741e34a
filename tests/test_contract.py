"""What every attack must keep, whatever it does: one suite over all classes and all their norms.

A new file in attacks/ is tested here without being named.
"""

import copy
from dataclasses import fields
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from robustkit import attack as attacked
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.session import Session
from robustkit.engine.attack_tensors import Attacked
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.models.preprocessing import Preprocessed
from robustkit.primitives.protocol import Attack, BestState, FeatureAttack, FeatureSeen, HookedAttack, Seen, State
from robustkit.primitives.registry import classes
from robustkit.primitives.rows import Rows
from tests.problems import EPS, KEYS_APART, Problem, hooks, images, jobs_of, outcomes, problem, same, seen, trials

# Small budgets for hyper-parameters of these names, whichever attack has them.
BUDGET = {"steps": 5, "queries": 20, "guide_steps": 3, "ensemble": 4}
# Attacks that bring hooks step as MI-FGSM does, which is here in all its norms.
CASES = [
    (name, norm)
    for name, attack in classes().items()
    for norm in (attack.norms[:1] if issubclass(attack, HookedAttack) else attack.norms)
]
GREY = (1, 8, 8)
FEATURES = (2, 3)  # of the layer that attacks on features are told about, where there is no model
# Networks for attacks that need layers of a kind, or show more on them.
HOMES = {
    "fia": {"cnn": "residual cnn"},
    "ghost": {"cnn": "residual cnn"},
    "sgm": {"mlp": "residual mlp", "cnn": "residual cnn"},
    "pna": {"mlp": "attentive", "cnn": "attentive"},
    "tgr": {"mlp": "attentive", "cnn": "attentive"},
}

every_attack = pytest.mark.parametrize(("name", "norm"), CASES, ids=[f"{name}-{norm}" for name, norm in CASES])
every_blind_attack = pytest.mark.parametrize(
    ("name", "norm"), [case for case in CASES if classes()[case[0]].sees != "gradients"]
)

every_sighted_attack = pytest.mark.parametrize(
    ("name", "norm"), [case for case in CASES if classes()[case[0]].sees == "gradients"]
)


def make(name: str, norm: str, eps: float | None = None, **more: object) -> Attack:
    attack = classes()[name]
    known = {field.name for field in fields(attack)}
    budget = {key: value for key, value in BUDGET.items() if key in known}
    return attack(EPS[norm] if eps is None else eps, norm, **{**budget, **more})  # type: ignore[arg-type]


def lone(name: str, norm: str, **more: object) -> Attack:
    """The attack for states that no model answers."""
    made = make(name, norm, **more)
    return made.at(FEATURES) if isinstance(made, FeatureAttack) else made


def home(name: str, kind: str, *shape: int, **more: int) -> Problem:
    """A problem that the attack can be tried on."""
    return problem(HOMES.get(name, {}).get(kind, kind), *shape, **more)


@cache
def usual(name: str, norm: str, batch_size: int = 64, seed: int = 0) -> Attacked:
    """What most tests look at: one run, computed once."""
    grey = home(name, "cnn", *GREY)
    return attacked(grey.model, grey.x, grey.y, make(name, norm, restarts=2), batch_size=batch_size, seed=seed)


def equal(one: Attacked, other: Attacked) -> bool:
    return all(torch.equal(value, vars(other)[key]) for key, value in vars(one).items())


def flat(rows: Rows) -> list[Tensor]:
    values = [getattr(rows, field.name) for field in fields(rows)]  # type: ignore[arg-type]
    return [part for value in values for part in (flat(value) if isinstance(value, Rows) else [value])]


def answer(state: State, turn: int, attack: Attack) -> Seen:
    """Made-up answers that belong to a trial, neither to its place nor to the seed."""
    count, shape = len(state), state.query.shape
    wave = ((state.trial.key // KEYS_APART).double() * 0.37 + turn).reshape(-1, *[1] * (len(shape) - 1))
    position = torch.arange(state.query[0].numel()).reshape(1, *shape[1:])
    grad = (wave + position).sin().float() if attack.sees == "gradients" else torch.zeros(count, 0)
    loss = wave.flatten().mul(5).cos().float() if attack.sees != "labels" else torch.zeros(count)
    told = seen(loss, grad)
    if not isinstance(attack, FeatureAttack):
        return told
    features = (wave.reshape(-1, 1, 1) * 3 + torch.arange(6).reshape(FEATURES)).sin().float()
    return FeatureSeen(**vars(told), features=features, feature_grad=features.flip(1))


def without_comparisons(session: Session) -> None:
    """Let a session send every row once and nothing else; what it has sent so far is forgotten."""
    session.sizes.fit = lambda rows, slots, kind: rows  # type: ignore[method-assign]
    session.sizes.answer = lambda ask, rows, kind, device: ask(torch.arange(rows))  # type: ignore[method-assign]
    session.passes.forwards = session.passes.backwards = 0


class Counted(nn.Module):
    """Counts the rows that go forwards through a model, and backwards to its input."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.forwards, self.backwards = model, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        if x.requires_grad:
            x = x * 1
            x.register_hook(self._returned)
        return self.model(x)

    def _returned(self, grad: Tensor) -> None:
        self.backwards += len(grad)


class _NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        raise RuntimeError("a gradient was asked for")


class Opaque(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(_NoWayBack.apply(x))


@every_attack
def test_every_point_lies_in_the_ball_and_in_the_box(name, norm):
    result, ball = usual(name, norm), make(name, norm).ball

    assert (ball.distance(home(name, "cnn", *GREY).x, result.x_adv) <= ball.eps).all()
    assert result.x_adv.min() >= 0
    assert result.x_adv.max() <= 1


@every_attack
def test_it_keeps_its_best_point_if_it_says_so(name, norm):
    attack, state = lone(name, norm), None
    for turn in range(4):
        state = (
            attack.init(trials(images(3, *GREY))) if state is None else attack.step(state, answer(state, turn, attack))
        )

    assert isinstance(state, BestState) == attack.keeps_best


@every_attack
def test_every_success_is_confirmed_by_a_fresh_forward(name, norm):
    result, grey = usual(name, norm), home(name, "cnn", *GREY)
    with torch.no_grad():
        label = grey.model(result.x_adv).argmax(1)

    assert torch.equal(label, result.prediction)
    assert torch.equal(label != grey.y, result.success)


@every_attack
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_batch_size_does_not_change_a_bit(name, norm, batch_size):
    assert equal(usual(name, norm, batch_size), usual(name, norm))


@every_attack
def test_order_and_company_do_not_change_a_bit(name, norm):
    grey, attack = home(name, "cnn", *GREY, count=6), make(name, norm, restarts=2)
    jobs, classifier = jobs_of(grey), Classifier(grey.model)
    together = outcomes(classifier, attack, jobs)
    backwards = outcomes(classifier, attack, jobs[::-1], slots=4)
    alone = [outcomes(classifier, attack, [job])[0] for job in jobs]

    assert all(same(*pair) for pair in zip(together, backwards, strict=True))
    assert all(same(*pair) for pair in zip(together, alone, strict=True))


@every_attack
def test_the_same_seed_gives_the_same_bits(name, norm):
    grey = home(name, "cnn", *GREY)
    torch.manual_seed(99)

    again = attacked(grey.model, grey.x, grey.y, make(name, norm, restarts=2))
    assert equal(again, usual(name, norm))


@every_attack
def test_another_seed_gives_other_noise_where_there_is_noise(name, norm):
    # The noise of ghost networks is in the network, and made-up answers do not show it.
    attack, noisy = lone(name, norm), name == "ghost"
    states = [attack.init(trials(images(4, *GREY), key=key)) for key in (7, 8)]
    for turn in range(4):
        noisy |= not torch.equal(states[0].query, states[1].query)
        states = [attack.step(state, answer(state, turn, attack)) for state in states]

    assert noisy != torch.equal(usual(name, norm).x_adv, usual(name, norm, seed=1).x_adv)


@every_attack
@pytest.mark.parametrize("shape", [(12,), (1, 5, 9), (3, 9, 5), (2, 3, 3, 4)], ids=str)
def test_inputs_of_any_shape_are_attacked(name, norm, shape):
    made, attack = home(name, "mlp", *shape, count=6), make(name, norm)
    result = attacked(made.model, made.x, made.y, attack)

    assert (attack.ball.distance(made.x, result.x_adv) <= attack.ball.eps).all()
    assert not torch.equal(result.x_adv, made.x)


@every_attack
def test_colour_images_are_attacked(name, norm):
    colour, attack = home(name, "cnn", 3, 8, 8, count=6), make(name, norm)
    result = attacked(colour.model, colour.x, colour.y, attack)

    assert (attack.ball.distance(colour.x, result.x_adv) <= attack.ball.eps).all()
    assert not torch.equal(result.x_adv, colour.x)


@every_attack
def test_it_asks_exactly_as_often_as_it_counts(name, norm):
    grey = home(name, "cnn", *GREY)
    model = Counted(grey.model)
    classifier = Classifier(model, fold=False)
    with classifier.session(grey.x) as session:
        attack = session.prepared(make(name, norm, restarts=2), grey.x)
        without_comparisons(session)
        model.forwards = 0
        ended = list(run(session, attack, jobs_of(grey), slots=5))

    assert sum(outcome.forwards for outcome in ended) == model.forwards == session.passes.forwards
    assert sum(outcome.backwards for outcome in ended) == model.backwards == session.passes.backwards


@every_attack
def test_the_machine_never_does_less_than_what_is_counted(name, norm):
    grey = home(name, "cnn", *GREY)
    with Classifier(grey.model).session(grey.x) as session:
        ended = list(run(session, make(name, norm), jobs_of(grey), slots=64))

    assert sum(outcome.forwards for outcome in ended) <= session.passes.forwards
    assert sum(outcome.backwards for outcome in ended) <= session.passes.backwards


@every_attack
def test_no_image_costs_more_than_the_attack_says(name, norm):
    grey, attack = home(name, "cnn", *GREY), make(name, norm, eps=0, restarts=2)
    ended = outcomes(Classifier(grey.model), attack, jobs_of(grey, loss_targets=(1, 2)))

    assert not any(outcome.success for outcome in ended)
    assert max(outcome.forwards for outcome in ended) <= 4 * attack.cost.forwards
    assert max(outcome.backwards for outcome in ended) <= 4 * attack.cost.backwards


@every_attack
def test_a_success_cancels_the_restarts(name, norm):
    grey = home(name, "cnn", *GREY)
    once, thrice = (
        outcomes(Classifier(grey.model), make(name, norm, restarts=restarts), jobs_of(grey)) for restarts in (1, 3)
    )

    assert any(outcome.success for outcome in once)
    assert all(same(*pair) for pair in zip(once, thrice, strict=True) if pair[0].success)


@every_attack
def test_images_without_room_stay_as_they_are(name, norm):
    grey = home(name, "cnn", *GREY)
    result = attacked(grey.model, grey.x, grey.y, make(name, norm, eps=0))

    assert torch.equal(result.x_adv, grey.x)
    assert result.robust_accuracy == result.clean_accuracy == 1


@every_attack
def test_a_goal_is_reached_by_that_class_alone(name, norm):
    grey = home(name, "cnn", *GREY)
    goal = (grey.y + 1) % 4
    result = attacked(grey.model, grey.x, grey.y, make(name, norm, eps=2 * EPS[norm]), target=goal)

    assert torch.equal(result.success, result.prediction == goal)


@every_attack
def test_a_flip_to_another_class_counts_in_a_targeted_trial(name, norm):
    # adv-lib's apgd_targeted keeps such an image as robust.
    grey = home(name, "cnn", *GREY)
    result = attacked(grey.model, grey.x, grey.y, make(name, norm, eps=2 * EPS[norm], targets=3))

    assert torch.equal(result.success, result.prediction != grey.y)


@every_attack
@pytest.mark.parametrize("classes_", [2, 3])
def test_few_classes_are_enough(name, norm, classes_):
    few = home(name, "cnn", *GREY, classes=classes_, count=4)
    losses = ["dlr"] if "loss" in {field.name for field in fields(classes()[name])} else [None]
    for loss in losses:
        more = {"loss": loss} if loss else {}
        result = attacked(few.model, few.x, few.y, make(name, norm, targets=9, **more))

        assert result.clean_accuracy == 1


@every_attack
def test_the_model_comes_back_as_it_was(name, norm):
    grey = home(name, "cnn", *GREY, count=4)
    grey.model.train()
    grey.model.body[0].eval()
    grey.model.head.bias.requires_grad_(False)
    grey.model.head.weight.grad = torch.ones_like(grey.model.head.weight)
    before = _traits(grey.model)
    attacked(grey.model, grey.x, grey.y, make(name, norm))

    assert _traits(grey.model) == before


@every_attack
def test_the_model_comes_back_as_it_was_when_it_fails_midway(name, norm):
    grey = home(name, "cnn", *GREY, count=4)
    model = Failing(grey.model.train(), after=8)
    before, state = _traits(model), torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="no more"):
        attacked(model, grey.x, grey.y, make(name, norm, eps=0, restarts=9))

    assert _traits(model) == before
    assert torch.equal(torch.random.get_rng_state(), state)


@every_attack
def test_the_global_random_state_is_left_alone(name, norm):
    grey, state = home(name, "cnn", *GREY, count=4), torch.random.get_rng_state()
    attacked(grey.model, grey.x, grey.y, make(name, norm))

    assert torch.equal(torch.random.get_rng_state(), state)


@every_attack
def test_the_callers_images_are_never_written_to(name, norm):
    grey = home(name, "cnn", *GREY, count=4)
    # An expanded tensor refuses most writes, a copy shows the others.
    x, y = grey.x[:1].expand(4, *GREY), grey.y[:1].expand(4)
    before = x.clone()
    attacked(grey.model, x, y, make(name, norm))

    assert torch.equal(x, before)


@every_blind_attack
def test_a_black_box_attack_needs_no_gradient(name, norm):
    grey = home(name, "cnn", *GREY)
    result = attacked(Opaque(grey.model), grey.x, grey.y, make(name, norm, restarts=2))

    assert equal(result, usual(name, norm))


@every_attack
def test_a_trial_does_not_feel_its_neighbours(name, norm):
    attack = lone(name, norm)
    together = attack.init(trials(images(8, *GREY)))
    some = torch.tensor([5, 0, 3])
    few = together.take(some)
    for turn in range(attack.cost.forwards):
        together = attack.step(together, answer(together, turn, attack))
        few = attack.step(few, answer(few, turn, attack))

        assert all(torch.equal(*pair) for pair in zip(flat(together.take(some)), flat(few), strict=True))


@every_attack
def test_step_writes_nothing_in_place(name, norm):
    attack = lone(name, norm)
    state = attack.init(trials(images(3, *GREY)))
    for turn in range(4):
        told = answer(state, turn, attack)
        before = copy.deepcopy(flat(state)), copy.deepcopy(flat(told))
        after = attack.step(state, told)

        assert all(
            torch.equal(*pair) for pair in zip((*before[0], *before[1]), (*flat(state), *flat(told)), strict=True)
        )
        state = after


@every_attack
def test_an_idle_row_can_be_stepped_for_ever(name, norm):
    # Slots without a trial repeat an old row, whose counters run past its budget.
    attack = lone(name, norm)
    state = attack.init(trials(images(2, *GREY)))
    for turn in range(2 * attack.cost.forwards + 10):
        state = attack.step(state, answer(state, turn, attack))

    assert state.done.all()
    assert state.query.isfinite().all()


@every_attack
def test_no_tensor_lands_on_another_device(name, norm):
    # Whatever is made without a device is made on this one, which holds no data.
    made = home(name, "mlp", 1, 6, 7, count=4)
    with torch.device("meta"):
        result = attacked(made.model, made.x, made.y, make(name, norm), batch_size=3)

    assert {value.device.type for value in vars(result).values()} == {"cpu"}


@every_attack
def test_a_double_precision_model_is_attacked_within_the_ball(name, norm):
    grey, attack = home(name, "cnn", *GREY, count=6), make(name, norm, eps={"Linf": 0.03}.get(norm))
    double = Problem(grey.model.double(), grey.x.double(), grey.y)
    result = attacked(double.model, double.x, double.y, attack)

    assert result.x_adv.dtype == torch.float64
    assert (attack.ball.distance(double.x, result.x_adv) <= attack.ball.eps).all()


@every_attack
def test_pixels_of_any_range_are_attacked_alike(name, norm):
    grey, attack = home(name, "cnn", *GREY, count=6), make(name, norm)
    wide = Problem(Scaled(grey.model, 1 / 256), grey.x * 256, grey.y)
    plain, scaled = (
        attacked(each.model, each.x, each.y, attack, bounds=(0, top)) for each, top in ((grey, 1), (wide, 256))
    )

    # Powers of two scale without rounding.
    assert torch.equal(scaled.x_adv, plain.x_adv * 256)
    assert torch.equal(scaled.success, plain.success)


@every_attack
def test_logits_of_any_float_type_will_do(name, norm):
    grey = home(name, "cnn", *GREY)
    result = attacked(Cast(grey.model), grey.x, grey.y, make(name, norm), batch_size=5)

    assert result.x_adv.dtype == torch.float32
    assert result.clean_accuracy == 1


@every_sighted_attack
def test_a_gradient_that_is_not_a_number_is_an_error(name, norm):
    # torch.sign(nan) is 0: an attack that stands still would look like a robust model.
    grey = home(name, "cnn", *GREY, count=2)

    with pytest.raises(UserError, match="not finite"):
        attacked(NoNumber(grey.model), grey.x, grey.y, make(name, norm, eps=EPS[norm] / 10 if norm != "L0" else 1))


class Scaled(Preprocessed):
    def __init__(self, network: nn.Module, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x * self.factor)


class Cast(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).double()


class NoNumber(nn.Module):
    """Finite logits, whose gradient is not a number."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) + 0 * (x - x.detach()).sqrt().flatten(1).sum(1, keepdim=True)


class Failing(nn.Module):
    """Fails after some forwards, and again in every later one."""

    def __init__(self, model: nn.Module, after: int) -> None:
        super().__init__()
        self.model, self.left = model, after
        self.train(model.training)

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no more")
        return self.model(x)


def _traits(model: nn.Module) -> list[object]:
    modes = [module.training for module in model.modules()]
    values = [(name, value.tolist()) for name, value in model.state_dict().items()]
    grads = [(weight.requires_grad, weight.grad is not None and weight.grad.tolist()) for weight in model.parameters()]
    return [modes, values, grads, hooks(model)]
