"""What every attack guarantees: one function per guarantee, which raises an AssertionError where it does not hold."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.classifier.batch_layout import BatchLayout
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.session import Session
from robustkit.engine.attack_tensors import Attacked
from robustkit.engine.attack_tensors import attack as attack_tensors
from robustkit.engine.jobs import Job, Outcome
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.primitives.ball import NORMS
from robustkit.primitives.mask import Mask
from robustkit.primitives.protocol import Attack, HookedAttack

from .doubles import Counting, DoubleLogits, FailingLater, NanGradients, RefusingGradients, ScalingInput
from .problems import Problem
from .rows import (
    a_trial_does_not_depend_on_its_neighbours,
    an_idle_row_can_be_stepped_for_ever,
    each_step_counts_one_query,
    gradients_that_it_does_not_read_change_nothing,
    it_keeps_its_best_point_if_it_declares_so,
    it_keeps_the_nearest_error_if_it_declares_so,
    its_objective_depends_on_the_target,
    states_depend_on_the_seed,
    step_writes_nothing_in_place,
    trials,
)
from .subject import USUAL, AttackUnderTest, confirm, fail

_ALONE = "an image attacked alone gives another result"
_REVERSED = "another order of the images gives other results"


def check_attack(attack: Attack, *, flat: str = "mlp", spatial: str = "cnn") -> None:
    """Run all checks on an attack in its norm; they take a few seconds.

    The radius is replaced by one that suits the checks' small networks, and `steps` or `queries` are cut to a few.

    Args:
        attack: for example `MyAttack(eps=0.1, norm="L2")`.
        flat: the network for inputs of any shape: "mlp", "residual mlp" or "attentive".
        spatial: the network for images: "cnn", "residual cnn" or "attentive".

    Raises:
        AssertionError: the attack breaks a guarantee; the sentence begins with its name.
    """
    subject = AttackUnderTest(attack, flat, spatial)
    for check in CHECKS:
        try:
            check(subject)
        except (AssertionError, UserError) as error:  # the engine names some mistakes itself
            raise AssertionError(f"{check.__name__.replace('_', ' ')}: {error}") from error


def every_point_lies_in_the_ball_and_in_the_box(subject: AttackUnderTest) -> None:
    """Each returned point is at most eps away and in [0, 1]."""
    _confirm_in_ball(subject.made(), subject.images(count=USUAL), subject.usual)


def pixels_outside_of_a_mask_stay_as_they_are(subject: AttackUnderTest) -> None:
    """In the norms, pixels inside a mask change and no others."""
    if subject.attack.ball.norm not in NORMS:
        return
    inside = torch.zeros(8, 8, dtype=torch.bool, device="cpu")
    inside[3:5] = inside[:, 2] = True
    made, attack = subject.images(), subject.made(mask=Mask.of(inside))
    result = attack_tensors(_unfolded(made), made.x, made.y, attack)
    moved = (result.x_adv != made.x).any(1)
    confirm((moved & inside).any(), "no pixel inside of the mask is changed")
    confirm(not (moved & ~inside).any(), "a pixel outside of the mask is changed")
    _confirm_in_ball(attack, made, result)
    _confirm_successes(made, result)


def every_success_is_confirmed_by_a_fresh_forward(subject: AttackUnderTest) -> None:
    """The unmodified model misclassifies each success, and no other point."""
    _confirm_successes(subject.images(count=USUAL), subject.usual)


def batch_size_order_and_neighbours_do_not_change_a_bit(subject: AttackUnderTest) -> None:
    """Batches of 1 and 3, the reverse order and a lone image give the same bits."""
    made = subject.images()
    jobs, classifier, attack = _jobs(made), Classifier(made.model), subject.made(restarts=2)
    with classifier.session(made.x) as session:
        together = _outcomes(session, attack, jobs)
        confirm(_same(together[1:2], _outcomes(session, attack, jobs[1:2], slots=1)), _ALONE)
        confirm(_same(together, _outcomes(session, attack, jobs[::-1], slots=3)), _REVERSED)


def the_same_seed_gives_the_same_bits(subject: AttackUnderTest) -> None:
    """Also after the global generator was used, and where the default device holds no data: a tensor that the attack
    creates without a device would land there.
    """
    made, attack, first = subject.images(count=USUAL), subject.made(restarts=2), subject.usual
    torch.manual_seed(99)
    with torch.device("meta"):
        second = attack_tensors(made.model, made.x[:3], made.y[:3], attack, batch_size=3)
    confirm(_equal(second, first), "a second run gives other results")


def another_seed_gives_other_noise_where_there_is_noise(subject: AttackUnderTest) -> None:
    """Results differ between two seeds exactly if the attack draws noise."""
    noisy = states_depend_on_the_seed(subject) or _hooks_depend_on_the_seed(subject)
    # All images: an attack whose first restart draws nothing shows its noise on those that it does not break, so the
    # radius must not break them all.
    eps = subject.eps / 2 if subject.usual.success.all() else subject.eps
    first = subject.usual if eps == subject.eps else subject.run(eps=eps)
    differs = not torch.equal(first.x_adv, subject.run(seed=1, eps=eps).x_adv)
    confirm(noisy == differs, "the seed changes the results and not the noise, or the noise and not the results")


def inputs_of_any_shape_are_attacked(subject: AttackUnderTest) -> None:
    """Vectors, images that are not square, and volumes."""
    for shape in filter(subject.takes, ((12,), (3, 9, 5), (2, 3, 3, 4))):
        _confirm_moves(subject.made(), subject.inputs(*shape))


def it_queries_exactly_as_often_as_it_counts(subject: AttackUnderTest) -> None:
    """Forwards and backwards of the outcomes are those that the network saw."""
    made = subject.images()
    model = Counting(made.model)
    classifier = Classifier(model, fold=False)
    with classifier.session(made.x) as session:
        attack = session.prepared(subject.made(restarts=2), made.x)
        _send_each_row_once(session)
        object.__setattr__(attack, "guesses", False)  # what was guessed wrong is sent and not counted
        model.forwards = 0
        ended = list(run(session, attack, _jobs(made), slots=3))
    forwards, backwards = (sum(getattr(each, name) for each in ended) for name in ("forwards", "backwards"))
    confirm(forwards == model.forwards == session.passes.forwards, "forwards are miscounted")
    confirm(backwards == model.backwards == session.passes.backwards, "backwards are miscounted")


def the_machine_never_does_less_than_what_is_counted(subject: AttackUnderTest) -> None:
    """With padding, the passes that are computed are at least those that are counted."""
    made = subject.images()
    classifier = Classifier(made.model)
    with classifier.session(made.x) as session:
        ended = _outcomes(session, subject.made(), _jobs(made))
    confirm(sum(each.forwards for each in ended) <= session.passes.forwards, "forwards are counted that never ran")
    confirm(sum(each.backwards for each in ended) <= session.passes.backwards, "backwards are counted that never ran")


def no_image_costs_more_than_the_attack_declares(subject: AttackUnderTest) -> None:
    """`cost` is an upper bound for a trial, here of two restarts that aim at a class."""
    made, attack = subject.images(), subject.made(eps=0, restarts=2)
    with _unfolded(made).session(made.x) as session:
        jobs = _jobs(made, loss_targets=(1,))
        ended = _outcomes(session, attack, jobs)
    confirm(not any(each.success for each in ended), "an image is broken in a ball of radius 0")
    confirm(
        max(each.forwards for each in ended) <= 2 * attack.cost.forwards,
        "a trial needs more forwards than its cost declares",
    )
    confirm(
        max(each.backwards for each in ended) <= 2 * attack.cost.backwards,
        "a trial needs more backwards than its cost declares",
    )


def a_success_cancels_the_restarts(subject: AttackUnderTest) -> None:
    """What one restart breaks costs the same with three."""
    made = subject.images(count=USUAL)
    with _unfolded(made).session(made.x) as session:
        once, thrice = (
            _outcomes(session, subject.made(2 * subject.eps, restarts=restarts), _jobs(made)) for restarts in (1, 3)
        )
    broken = [pair for pair in zip(once, thrice, strict=True) if pair[0].success]
    confirm(bool(broken), "no image is broken")
    confirm(_same(*zip(*broken, strict=True)), "a further restart changes the result of a broken image")


def images_without_room_stay_as_they_are(subject: AttackUnderTest) -> None:
    """A ball of radius 0 holds the image alone."""
    made = subject.images()
    result = attack_tensors(_unfolded(made), made.x, made.y, subject.made(eps=0))
    confirm(torch.equal(result.x_adv, made.x), "an image is changed in a ball of radius 0")
    confirm(result.robust_accuracy == result.clean_accuracy == 1, "an unchanged image counts as broken")


def a_target_is_reached_by_that_class_alone(subject: AttackUnderTest) -> None:
    """With `target=`, another wrong class is no success."""
    made = subject.images()
    target = (made.y + 1) % 4
    result = attack_tensors(_unfolded(made), made.x, made.y, subject.made(eps=2 * subject.eps), target=target)
    confirm(torch.equal(result.success, result.prediction == target), "a success has not the target class")


def another_target_leads_to_another_point(subject: AttackUnderTest) -> None:
    """An attack that sees more than labels goes elsewhere for another class, also where it reaches neither.

    The noise of a trial is another one for another class, so that this says little about an attack that draws noise.
    """
    if subject.attack.sees == "labels":
        return
    made, attack = subject.images(), subject.made(_small(subject))
    one, other = (
        attack_tensors(_unfolded(made), made.x, made.y, attack, target=(made.y + further) % 4) for further in (1, 2)
    )
    # An attack that aims at nothing still ends at another point where it comes upon one of the two classes.
    neither = ~(one.success | other.success)
    differ = (one.x_adv != other.x_adv).flatten(1).any(1)
    confirm((neither & differ).any(), "two target classes lead to one point")


def a_flip_to_another_class_counts_in_a_targeted_trial(subject: AttackUnderTest) -> None:
    """Any wrong class is a success of a trial whose loss aims at one."""
    made = subject.images()
    result = attack_tensors(_unfolded(made), made.x, made.y, subject.made(eps=2 * subject.eps, targets=3))
    confirm(torch.equal(result.success, result.prediction != made.y), "a wrong class is not a success")


def any_number_of_classes_will_do(subject: AttackUnderTest) -> None:
    """Two and three classes, also with losses and numbers of targets that need more, and a thousand."""
    loss: dict[str, Any] = {"loss": "dlr"} if subject.has("loss") else {}
    for classes, targets in ((2, 0), (3, 9), (1000, 2)):
        made = subject.images(count=2, classes=classes)
        result = _confirm_moves(subject.made(targets=targets, **loss), made)
        _confirm_successes(made, result)


def the_caller_gets_everything_back_as_it_was(subject: AttackUnderTest) -> None:
    """The model, the images and the global random state are untouched by a run."""
    made = subject.images()
    made.model.train()
    next(made.model.children()).eval()
    weight, bias = list(made.model.parameters())[-2:]
    bias.requires_grad_(False)
    weight.grad = torch.ones_like(weight)
    # An expanded tensor refuses most writes, a copy shows the others.
    x, y = made.x[:1].expand(4, *subject.shape), made.y[:1].expand(4)
    before, images, generator = _traits(made.model), x.clone(), torch.random.get_rng_state()
    attack_tensors(made.model, x, y, subject.made())
    confirm(_traits(made.model) == before, "the model comes back changed")
    confirm(torch.equal(x, images), "the caller's images are overwritten")
    confirm(torch.equal(torch.random.get_rng_state(), generator), "the global random state is changed")


def the_model_comes_back_as_it_was_when_it_fails(subject: AttackUnderTest) -> None:
    """Also after an error of the model in the middle of a run."""
    made = subject.images()
    model = FailingLater(made.model.train(), after=8)
    before, generator = _traits(model), torch.random.get_rng_state()
    try:
        attack_tensors(model, made.x, made.y, subject.made(eps=0, restarts=9))
    except RuntimeError as error:
        confirm("no more forwards" in str(error), f"the model's error is replaced by {error}")
    else:
        fail("the model's error is lost")
    confirm(_traits(model) == before, "the model comes back changed")
    confirm(torch.equal(torch.random.get_rng_state(), generator), "the global random state is changed")


def a_black_box_attack_needs_no_gradient(subject: AttackUnderTest) -> None:
    """An attack that sees labels or logits breaks a model without gradients all the same."""
    if subject.attack.sees != "gradients":
        made = subject.images(count=USUAL)
        result = attack_tensors(RefusingGradients(made.model), made.x, made.y, subject.made(restarts=2))
        confirm(_equal(result, subject.usual), "without gradients the results differ")


def a_gradient_that_is_not_a_number_is_an_error(subject: AttackUnderTest) -> None:
    """The sign of NaN is 0 in torch: an attack that does not move would look like a robust model."""
    if subject.attack.sees == "gradients":
        made, attack = subject.images(count=2), subject.made(_small(subject))
        try:
            attack_tensors(NanGradients(made.model), made.x, made.y, attack)
        except UserError as error:
            confirm("not finite" in str(error), f"the error says something else: {error}")
        else:
            fail("a gradient of NaN passes unseen")


def a_double_precision_model_is_attacked_within_the_ball(subject: AttackUnderTest) -> None:
    """Points of a float64 model are float64 and in the ball."""
    made, attack = subject.images(), subject.made()
    double = Problem(made.model.double(), made.x.double(), made.y)
    result = attack_tensors(_unfolded(double), double.x, double.y, attack)
    confirm(result.x_adv.dtype == torch.float64, "the points are not in the precision of the images")
    _confirm_in_ball(attack, double, result)


def pixels_of_any_range_are_attacked_alike(subject: AttackUnderTest) -> None:
    """Pixels in [0, 256] give the same points times 256."""
    made, attack = subject.images(), subject.made()
    plain = attack_tensors(made.model, made.x, made.y, attack)
    # Powers of two scale without rounding.
    wide = attack_tensors(ScalingInput(made.model, 1 / 256), made.x * 256, made.y, attack, bounds=(0, 256))
    confirm(torch.equal(wide.x_adv, plain.x_adv * 256), "the points differ by more than the scale")
    confirm(torch.equal(wide.success, plain.success), "the successes differ")


def logits_of_any_float_type_will_do(subject: AttackUnderTest) -> None:
    """Logits in double precision of images in single precision."""
    made = subject.images()
    model = _unfolded(made._replace(model=DoubleLogits(made.model)))
    result = attack_tensors(model, made.x, made.y, subject.made(), batch_size=5)
    confirm(result.x_adv.dtype == torch.float32, "the points are not in the precision of the images")
    confirm(result.clean_accuracy == 1, "images are misclassified before the attack")


# What the attack's states guarantee without a model.
STATE_CHECKS = (
    a_trial_does_not_depend_on_its_neighbours,
    step_writes_nothing_in_place,
    an_idle_row_can_be_stepped_for_ever,
    each_step_counts_one_query,
    gradients_that_it_does_not_read_change_nothing,
    it_keeps_its_best_point_if_it_declares_so,
    it_keeps_the_nearest_error_if_it_declares_so,
)
CHECKS: tuple[Callable[[AttackUnderTest], None], ...] = (
    every_point_lies_in_the_ball_and_in_the_box,
    pixels_outside_of_a_mask_stay_as_they_are,
    every_success_is_confirmed_by_a_fresh_forward,
    batch_size_order_and_neighbours_do_not_change_a_bit,
    the_same_seed_gives_the_same_bits,
    another_seed_gives_other_noise_where_there_is_noise,
    inputs_of_any_shape_are_attacked,
    it_queries_exactly_as_often_as_it_counts,
    the_machine_never_does_less_than_what_is_counted,
    no_image_costs_more_than_the_attack_declares,
    a_success_cancels_the_restarts,
    images_without_room_stay_as_they_are,
    a_target_is_reached_by_that_class_alone,
    its_objective_depends_on_the_target,
    another_target_leads_to_another_point,
    a_flip_to_another_class_counts_in_a_targeted_trial,
    any_number_of_classes_will_do,
    the_caller_gets_everything_back_as_it_was,
    the_model_comes_back_as_it_was_when_it_fails,
    a_black_box_attack_needs_no_gradient,
    a_gradient_that_is_not_a_number_is_an_error,
    a_double_precision_model_is_attacked_within_the_ball,
    pixels_of_any_range_are_attacked_alike,
    logits_of_any_float_type_will_do,
    *STATE_CHECKS,
)


def _send_each_row_once(session: Session) -> None:
    """No padding and no comparison of batch sizes from here on; the passes so far are forgotten."""
    sizes = session.sizes
    sizes.compact = True
    sizes.layout = lambda kind, probe, size=None: BatchLayout.full(sizes.tile)  # type: ignore[method-assign]
    sizes.answer = lambda ask, rows, *_: ask(torch.arange(rows, device="cpu"))  # type: ignore[method-assign]
    session.passes.forwards = session.passes.backwards = 0


def _unfolded(made: Problem) -> Classifier:
    """The network without the folding of BatchNorm, which costs more than most of these runs."""
    return Classifier(made.model, fold=False)


def _confirm_in_ball(attack: Attack, made: Problem, result: Attacked) -> None:
    with _unfolded(made).session(made.x) if attack.ball.needs_network else nullcontext() as session:
        measured = attack if session is None else session.prepared(attack, made.x)
        distance = measured.ball.distance(made.x, result.parameters)
    confirm((distance <= attack.ball.eps).all(), "a point lies outside of the ball")
    rendered = attack.ball.render(made.x, result.parameters)
    confirm(torch.equal(rendered, result.x_adv), "a point is not what its parameters render")
    confirm(result.x_adv.min() >= 0 and result.x_adv.max() <= 1, "a point lies outside of [0, 1]")


def _confirm_moves(attack: Attack, made: Problem) -> Attacked:
    result = attack_tensors(_unfolded(made), made.x, made.y, attack)
    _confirm_in_ball(attack, made, result)
    confirm(not torch.equal(result.x_adv, made.x), f"images of shape {list(made.x.shape[1:])} are not changed")
    return result


def _confirm_successes(made: Problem, result: Attacked) -> None:
    with torch.no_grad():
        label = made.model(result.x_adv).argmax(1)
    confirm(torch.equal(label, result.prediction), "the model's prediction is another one")
    confirm(
        torch.equal(label != made.y, result.success),
        "a success is not an error of the model, or an error is not a success",
    )


def _small(subject: AttackUnderTest) -> float:
    """A radius in which few images are broken."""
    return 1 if subject.attack.ball.norm in ("L0", "patch", "frame") else subject.eps / 10


def _hooks_depend_on_the_seed(subject: AttackUnderTest) -> bool:
    """Whether two noise keys lead to different logits at one query under the attack's hooks."""
    attack, made = subject.made(), subject.images()
    if not isinstance(attack, HookedAttack):
        return False
    logits = []
    for key in (7, 8):
        with torch.no_grad(), attack.hooks(made.model, attack.init(trials(made.x, key))):
            logits.append(made.model(made.x))
    return not torch.equal(*logits)


def _jobs(made: Problem, loss_targets: tuple[int, ...] = (-1,)) -> list[Job]:
    rows = zip(made.x, made.y.tolist(), strict=True)
    return [Job(number, x, y, loss_targets) for number, (x, y) in enumerate(rows)]


def _outcomes(session: Session, attack: Attack, jobs: list[Job], slots: int = 64) -> list[Outcome]:
    """The outcomes of a run within a session, by image."""
    return sorted(run(session, attack, jobs, slots=slots), key=lambda outcome: outcome.sample)


def _equal(one: Attacked, other: Attacked) -> bool:
    """Equal in every bit; `other` may have further images."""
    return all(torch.equal(value, vars(other)[key][: len(value)]) for key, value in vars(one).items())


def _same(some: "tuple[Outcome, ...] | list[Outcome]", others: "tuple[Outcome, ...] | list[Outcome]") -> bool:
    """Equal in every bit."""
    pairs = chain.from_iterable(
        zip(vars(one).values(), vars(other).values(), strict=True) for one, other in zip(some, others, strict=True)
    )
    return all(torch.equal(*pair) if isinstance(pair[0], Tensor) else pair[0] == pair[1] for pair in pairs)


def _traits(model: nn.Module) -> list[object]:
    """Modules, modes, weights, buffers, gradients and hooks of a model."""
    modules = [id(module) for module in model.modules()]
    modes = [module.training for module in model.modules()]
    values = [(name, value.tolist()) for name, value in model.state_dict().items()]
    grads = [(weight.requires_grad, weight.grad is not None and weight.grad.tolist()) for weight in model.parameters()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    return [modules, modes, values, grads, hooks]
