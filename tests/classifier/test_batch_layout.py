"""The answer for an image is the same bits in every place of every batch, or the session says that it is not."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from robustkit.attacks import PGD
from torch import Tensor, nn

from robustkit import Classifier, attack
from robustkit.classifier.batch_layout import BatchLayout, best_layout
from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.classifier.scalar_tails import ScalarTails
from robustkit.primitives.rows import Rows

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Answer(Rows):
    values: Tensor


def machine(error: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Answer]:
    """Answers with the image's number, off by a last bit in those places of a batch where `error` is true."""

    def ask(numbers: Tensor) -> Answer:
        off = error(torch.arange(len(numbers))) & torch.tensor(len(numbers) > 1)
        return Answer(numbers.double() + off * 1e-9)

    return ask


class PlaceDependent(nn.Module):
    """Rounds the rows in odd places of a batch otherwise, as `Linear` on 50 features does on some processors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        odd = (torch.arange(len(x)) % 2).unsqueeze(1)
        return self.layer(x * (1 + odd * 1e-6))


def problem(model: nn.Module) -> tuple[nn.Module, Tensor, Tensor]:
    x = torch.rand(40, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model, x, torch.cat([model(row) for row in x.split(1)]).argmax(1)


@pytest.mark.parametrize(
    ("error", "places"),
    [
        (lambda place: place < 0, list(range(8))),
        (lambda place: place % 2 == 1, [0, 2, 4, 6]),
        (lambda place: place == 7, list(range(7))),
        (lambda place: (place < 2) | (place == 5), [2, 3, 4, 6, 7]),
    ],
    ids=["nowhere", "odd places", "the last place", "anywhere"],
)
def test_only_places_with_equal_bits_are_used(error, places):
    layout = best_layout(machine(error), 8, watched=False)

    assert (layout.size, layout.places.tolist()) == (8, places)


def test_where_no_places_agree_each_image_is_queried_alone():
    def ask(numbers: Tensor) -> Answer:
        return Answer(numbers.double() + torch.arange(len(numbers)) * 1e-9)

    assert best_layout(ask, 16, watched=False).alone


def test_neighbours_that_move_an_image_by_a_bit_make_it_queried_alone():
    def ask(numbers: Tensor) -> Answer:
        return Answer(numbers.double() + 1e-9 * (numbers.roll(1) - numbers))

    assert best_layout(ask, 16, watched=False).alone


def test_what_all_images_of_a_batch_have_in_common_makes_each_queried_alone():
    """No order of the same images shows it."""

    def ask(numbers: Tensor) -> Answer:
        return Answer(numbers.double() + 1e-9 * (numbers.max() - numbers))

    assert best_layout(ask, 16, watched=False).alone


def test_places_that_round_few_images_otherwise_show_in_many_orders():
    """Every fourth place of a small GRU rounds 6 % of all images otherwise, which one order did not show."""

    def ask(numbers: Tensor) -> Answer:
        return Answer(numbers.double() + 1e-9 * ((torch.arange(len(numbers)) % 4 == 3) & (numbers % 16 == 5)))

    layout = best_layout(ask, 64, watched=True, light=True)
    assert layout.alone or not (layout.places % 4 == 3).any()


def test_answers_that_never_repeat_are_told():
    calls = iter(range(10**6))
    layout = best_layout(lambda numbers: Answer(numbers.double() + next(calls) * 1e-9), 8, watched=False)

    assert not layout.repeats
    assert "does not answer the same batch" in str(BatchSizes(8, True, layouts={"judge": layout}).note)


def test_rows_are_put_into_the_places_of_a_layout():
    layout, rows = BatchLayout(4, torch.tensor([1, 3])), torch.tensor([5, 6, 7])

    assert [(batch.tolist(), places.tolist()) for batch, places in layout.batches(rows)] == [
        ([5, 5, 5, 6], [1, 3]),
        ([7, 7, 7, 7], [1]),
    ]


@pytest.mark.parametrize("function", [torch.sigmoid, nn.functional.silu, nn.functional.elu, nn.functional.mish])
def test_a_row_at_the_end_of_a_tensor_is_told_apart_whatever_its_values(function):
    # 5 rows of 13 values: no multiple of any vector's length, so the last values are computed one at a time.
    x = torch.zeros(5, 1300)
    with ScalarTails(5) as tails:
        function(x)
        torch.relu(x)
        x + x

    # Where a processor's two formulas agree there is nothing to tell.
    scalar = torch.cat([function(value.reshape(1)) for value in torch.linspace(-4, 4, 3000)])
    if not torch.equal(scalar, function(torch.linspace(-4, 4, 3000))):
        assert len(tails.traces) == 1
        assert not tails.traces[0][:-1].any()
        assert tails.traces[0][-1].any()


@pytest.mark.parametrize("batch_size", [1, 7, 24, 100])
def test_rounding_by_the_place_in_a_batch_changes_no_witness(batch_size):
    torch.manual_seed(3)
    model, x, y = problem(PlaceDependent())
    method = PGD(eps=0.3, norm="L2", steps=5)
    one, other = (attack(model, x, y, method, batch_size=size) for size in (64, batch_size))

    assert 0 < one.success.sum() < len(y)
    assert torch.equal(one.x_adv, other.x_adv)
    assert torch.equal(one.queries, other.queries)


def test_a_session_says_that_it_queries_fewer_rows():
    notes = []
    for model in (nn.Linear(12, 4), PlaceDependent()):
        _, x, _ = problem(model)
        with Classifier(model).session(x) as session:
            session.logits(x)
            notes.append(session.sizes.note)

    assert notes[0] is None
    assert "32 of 64 rows" in notes[1]
