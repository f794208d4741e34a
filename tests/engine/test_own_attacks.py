"""Mistakes of a user's own attack, each one sentence that names the attack."""

from dataclasses import dataclass, replace

import pytest
import torch
from robustkit.attacks import NES, PGD, DeepFool

from robustkit import UserError, attack, evaluate
from robustkit.classifier.classifier import Classifier
from robustkit.engine.scheduler import run
from robustkit.primitives.protocol import TrialCost
from robustkit.primitives.rows import along
from tests.problems import jobs_of, problem


def evaluated(model, x, y, method):
    evaluate(model, dataset=(x, y), attacks=[method], eps=[0.1])


@dataclass(frozen=True)
class Endless(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, done=after.done & False)


@dataclass(frozen=True)
class Forgetful(PGD):
    def step(self, state, seen):
        super().step(state, seen)


@dataclass(frozen=True)
class Cropping(PGD):
    def init(self, trials):
        start = super().init(trials)
        return replace(start, query=start.query[:, :, :4])


@dataclass(frozen=True)
class Doubling(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, query=after.query.double())


@dataclass(frozen=True)
class Dropping(PGD):
    def step(self, state, seen):
        return super().step(state, seen).take(torch.tensor([0]))


@dataclass(frozen=True)
class Undefined(PGD):
    """Writes NaN into the queries of one class's images: in the step `spoilt`, or in `init` where that is 0."""

    spoilt: int = 0
    sample_class: int = 0

    def init(self, trials):
        start = super().init(trials)
        return self._spoilt(start) if self.spoilt == 0 else start

    def step(self, state, seen):
        after = super().step(state, seen)
        return self._spoilt(after)

    def _spoilt(self, state):
        bad = (state.queries == self.spoilt) & (state.trial.y == self.sample_class)
        return replace(state, query=torch.where(along(bad, state.query), torch.nan, state.query))


@dataclass(frozen=True)
class UndefinedSearch(NES):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, query=torch.where(along(after.done, after.query), torch.nan, after.query))


@dataclass(frozen=True)
class Moving(PGD):
    """Moves the clean image along, so that its points leave the ball."""

    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, trial=replace(after.trial, x=after.query))


@dataclass(frozen=True)
class Starting(PGD):
    def init(self, trials):
        trials.x.add_(0.5).clamp_(0, 1)
        return super().init(trials)


@dataclass(frozen=True)
class Writing(PGD):
    def step(self, state, seen):
        seen.grad.neg_()
        return super().step(state, seen)


@dataclass(frozen=True)
class Numbering(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, done=after.done.float())


@dataclass(frozen=True)
class Whole(PGD):
    def step(self, state, seen):
        return replace(super().step(state, seen), done=False)


@dataclass(frozen=True)
class Elsewhere(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, query=after.query.to("meta"))


@dataclass(frozen=True)
class Attached(PGD):
    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, query=after.query.requires_grad_())


@dataclass(frozen=True)
class Sparse(PGD):
    """It was an error of the model, which failed on its input."""

    def step(self, state, seen):
        after = super().step(state, seen)
        return replace(after, query=after.query.to_sparse())


@dataclass(frozen=True)
class Over(PGD):
    """Ends trials before their first query, which was made all the same."""

    def init(self, trials):
        start = super().init(trials)
        return replace(start, done=~start.done)


@pytest.mark.parametrize("eps", [1e-4, "minimum"])
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Over, r"Over.init must not end a trial \(`done`\)"),
        (Moving, "Moving.step must leave `trial.x` of its State as it is"),
        (Starting, "Starting.init writes into `x`, which it was given"),
        (Writing, "Writing.step writes into `grad`, which it was given"),
        (Numbering, r"Numbering.step: `done` of its State must be \[[0-9]+\] of bool, not \[[0-9]+\] of float32"),
        (Whole, "Whole.step: `done` of its State must be a tensor of [0-9]+ rows, not bool"),
        (Elsewhere, "Elsewhere.step must return a State on cpu, not `query` on meta"),
        (Attached, r"Attached.step: `query` of its State requires a gradient; return query.detach\(\)"),
        (Sparse, r"Sparse.step: `query` of its State is not dense; return query.to_dense\(\)"),
        (Endless, "Endless has not ended after"),
        (Forgetful, "Forgetful.step must return a State, not NoneType"),
        (Cropping, r"Cropping.init must leave the query's shape and type .* not \[4, 1, 4, 8\] of float32"),
        (Doubling, "Doubling.step must leave the query's shape and type .* of float64"),
        (Dropping, "Dropping.step must return a State of [0-9]+ rows, not of 1"),
    ],
)
def test_a_mistake_names_the_attack_and_what_it_must_do(kind, sentence, eps):
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=sentence):
        attack(made.model, made.x, made.y, kind(eps, steps=3))


@dataclass(frozen=True)
class Averaging(PGD):
    def objective(self, logits, trials):
        return super().objective(logits, trials).mean()


@dataclass(frozen=True)
class Shortening(NES):
    """Its value of one image was that of every image: the accuracy depended on the batch size."""

    def objective(self, logits, trials):
        return super().objective(logits, trials)[:1]


@dataclass(frozen=True)
class Columns(PGD):
    def objective(self, logits, trials):
        return super().objective(logits, trials).unsqueeze(1)


@dataclass(frozen=True)
class Counting(NES):
    def objective(self, logits, trials):
        return logits.argmax(1)


@dataclass(frozen=True)
class Nameless(NES):
    def objective(self, logits, trials):
        return None


@dataclass(frozen=True)
class Hopeless(NES):
    """No value is larger than NaN, so the search kept its first point and the image stood."""

    def objective(self, logits, trials):
        return super().objective(logits, trials) * torch.nan


@dataclass(frozen=True)
class Summed(DeepFool):
    def objectives(self, logits, trials):
        return super().objectives(logits, trials).sum(1)


@dataclass(frozen=True)
class Emptying(PGD):
    """Its points got the label 0, whatever the network answered."""

    def objective(self, logits, trials):
        return logits.zero_()[:, 0]


@dataclass(frozen=True)
class Detached(PGD):
    """The model was to blame: "The model's logits do not depend on its input"."""

    def objective(self, logits, trials):
        return super().objective(logits.detach(), trials)


@dataclass(frozen=True)
class Excluding(NES):
    def objective(self, logits, trials):
        label = logits.gather(1, trials.y.unsqueeze(1)).squeeze(1)
        return logits.scatter_(1, trials.y.unsqueeze(1), -torch.inf).amax(1) - label


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Emptying, r"Emptying.objective writes into the logits that it was given; make a new tensor"),
        (Excluding, r"Excluding.objective writes into the logits"),
        (Detached, "Detached.objective does not depend on the logits as autograd sees it; leave out detach"),
        (Averaging, r"Averaging.objective must return \[[0-9]+\] floats, one for each image, not \[\] of float32"),
        (Shortening, r"Shortening.objective must return .*, not \[1\] of float32"),
        (Columns, r"Columns.objective must return .*, not \[[0-9]+, 1\] of float32"),
        (Counting, r"Counting.objective must return .*, not \[[0-9]+\] of int64"),
        (Nameless, "Nameless.objective must return a tensor, .*, not NoneType"),
        (Hopeless, "Hopeless.objective returned NaN for finite logits"),
        (Summed, r"Summed.objectives must return \[[0-9]+, C\] floats, .* not \[[0-9]+\] of float32"),
    ],
)
def test_an_objective_that_cannot_be_climbed_on_is_a_sentence(kind, sentence):
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=sentence):
        attack(made.model, made.x, made.y, kind(0.1))


def test_points_are_projected_around_the_image_whatever_the_state_says():
    """An array of numpy shares the memory of a tensor, so that nothing tells of what is written through it."""

    @dataclass(frozen=True)
    class Hidden(PGD):
        def step(self, state, seen):
            state.trial.x.numpy()[...] = seen.grad.sign().numpy() > 0
            return super().step(state, seen)

    made = problem("mlp", 1, 8, 8, count=4)
    result = attack(made.model, made.x, made.y, Hidden(0.1, steps=3))

    assert (result.x_adv - made.x).abs().max() <= 0.1 + 1e-7


def test_many_radii_of_one_image_are_no_trial_without_end():
    made = problem("mlp", 1, 8, 8, count=2)
    result = attack(made.model, made.x, made.y, PGD("minimum", "L2", steps=9))

    assert result.success.all()
    assert (result.forwards > 2 * 10 + 10).any()


@dataclass(frozen=True)
class Guessless(NES):
    guesses = True

    def guess(self, state, steps):
        return None


@dataclass(frozen=True)
class Halving(NES):
    guesses = True

    def guess(self, state, steps):
        return replace(state, query=state.query[:1])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Guessless, "Guessless.guess must return a State, not NoneType"),
        (Halving, r"Halving.guess must return a State of [0-9]+ rows, not of 1 in `query`"),
    ],
)
def test_a_guess_that_is_no_state_of_all_rows_is_a_sentence(kind, sentence):
    made = problem("mlp", 1, 8, 8, count=1)

    with pytest.raises(UserError, match=sentence):
        attack(made.model, made.x, made.y, kind(1e-4, queries=40))


@dataclass(frozen=True)
class Silent(PGD):
    reads_all_gradients = False


@dataclass(frozen=True)
class Owing(PGD):
    """Its negative counts went into the evidence, which could not be read afterwards."""

    reads_all_gradients = False

    def gradients_read(self, state):
        return torch.full_like(state.queries, -1)


@dataclass(frozen=True)
class Single(PGD):
    reads_all_gradients = False

    def gradients_read(self, state):
        return 1


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Silent, "Silent sets reads_all_gradients = False and does not say which it reads; define gradients_read"),
        (Owing, r"Owing.gradients_read must return \[[0-9]+\] of int64, 0 or more for each image"),
        (Single, r"Single.gradients_read must return \[[0-9]+\] of int64, 0 or more for each image"),
    ],
)
@pytest.mark.parametrize("run_by", [attack, evaluated])
def test_how_many_gradients_are_read_is_a_count_for_each_image(kind, sentence, run_by):
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=sentence):
        run_by(made.model, made.x, made.y, kind(0.1))


@pytest.mark.parametrize(("spoilt", "sentence"), [(0, "init"), (2, "step, in step 2,"), (3, "step, in step 3,")])
def test_a_query_that_is_nan_is_the_mistake_of_the_attack(spoilt, sentence):
    made = problem("mlp", 1, 8, 8, count=4)
    method = Undefined(1e-4, steps=3, spoilt=spoilt, sample_class=int(made.y[1]))

    with Classifier(made.model).session(made.x) as session, pytest.raises(UserError) as error:
        list(run(session, method, jobs_of(made), slots=3))

    assert str(error.value) == (
        f"Undefined.{sentence} returned a query that is not finite (NaN or infinite) for image 1; correct the attack."
    )


def test_a_last_point_that_is_nan_is_the_mistake_of_an_attack_by_scores():
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=r"^UndefinedSearch.step, in step \d+, returned a query that is not finite"):
        attack(made.model, made.x, made.y, UndefinedSearch(1e-4, queries=9))


@dataclass(frozen=True)
class Curious(PGD):
    sees = "everything"


@dataclass(frozen=True)
class Spelled(PGD):
    norms = "Linf"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Curious, "Curious.sees must be one of labels, logits, gradients, not 'everything'"),
        (Spelled, "Spelled.norms must be a tuple of norms, not the text 'Linf'"),  # in which "L" would be a norm
    ],
)
def test_what_an_attack_declares_about_itself_is_checked(kind, sentence):
    with pytest.raises(UserError, match=sentence):
        kind(0.1)


@dataclass(frozen=True)
class Priceless(PGD):
    cost = 3


@pytest.mark.parametrize("run_by", [attack, evaluated])
def test_a_cost_is_a_trial_cost(run_by):
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=r"Priceless.cost must be a property that returns a TrialCost, not 3"):
        run_by(made.model, made.x, made.y, Priceless(0.1))


@dataclass(frozen=True)
class Unknown(PGD):
    @property
    def cost(self):
        return TrialCost(None, None)


@dataclass(frozen=True)
class Earning(PGD):
    """Its trials had "not ended after 1 queries"."""

    @property
    def cost(self):
        return TrialCost(-5, 0)


@pytest.mark.parametrize("kind", [Unknown, Earning])
@pytest.mark.parametrize("run_by", [attack, evaluated])
def test_a_cost_is_counted_in_whole_numbers(kind, run_by):
    made = problem("mlp", 1, 8, 8, count=4)

    with pytest.raises(UserError, match=rf"{kind.__name__}.cost must count passes in whole numbers, not TrialCost"):
        run_by(made.model, made.x, made.y, kind(0.1))


class Undeclared(PGD):
    steps = 3


class Annotated(PGD):
    momentum: float = 0.5


class Initialised(PGD):
    def __init__(self, eps, norm="Linf"):
        super().__init__(eps, norm)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Undeclared, "Undeclared sets steps, which its objects do not get; write @dataclass"),
        (dataclass(frozen=True)(Undeclared), "Undeclared sets steps"),
        (Annotated, "Annotated sets momentum, which its objects do not get"),
        (Initialised, "Initialised has an __init__ of its own"),
    ],
)
def test_hyper_parameters_that_are_no_fields_are_refused(kind, sentence):
    with pytest.raises(UserError, match=sentence):
        kind(0.1)
