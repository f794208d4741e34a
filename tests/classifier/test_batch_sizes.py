import gc
import weakref
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.primitives.rows import Rows

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Answer(Rows):
    first: Tensor
    second: Tensor


class Model:
    """Returns the row numbers; batch sizes in `odd` give other bits."""

    def __init__(self, *odd: int) -> None:
        self.odd, self.sizes = odd, []

    def __call__(self, rows: Tensor) -> Answer:
        self.sizes.append(len(rows))
        return Answer(rows.double() + (1e-9 if len(rows) in self.odd else 0), rows * 2)


def answered(sizes: BatchSizes, model: Model, rows: int, kind: str = "logits") -> Tensor:
    model.sizes.clear()
    return sizes.answer(model, rows, kind, CPU).first


def test_a_batch_size_with_equal_bits_is_checked_once_and_then_used():
    sizes, model = BatchSizes(4, exact=True), Model()
    first = answered(sizes, model, 10)
    assert model.sizes == [4, 4, 4, 10]

    assert torch.equal(answered(sizes, model, 10), first)
    assert model.sizes == [10]


def test_a_size_below_the_tile_is_checked_once_filling_up_has_cost_as_much():
    sizes, model = BatchSizes(64, exact=True), Model()
    asked = []
    for _ in range(6):  # each fills 32 rows; the comparison takes four batches of 32
        assert torch.equal(answered(sizes, model, 32), torch.arange(32).double())
        asked.append(list(model.sizes))

    assert asked == [[64], [64], [64], [64, 32], [32], [32]]


def test_a_batch_size_with_other_bits_is_computed_in_tiles():
    sizes, model = BatchSizes(4, exact=True), Model(10)
    for batches in ([4, 4, 4, 10], [4, 4, 4]):
        assert torch.equal(answered(sizes, model, 10), torch.arange(10).double())
        assert model.sizes == batches


def test_a_batch_size_is_refused_also_when_only_the_second_tensor_differs():
    def ask(rows: Tensor) -> Answer:
        return Answer(rows, rows + (len(rows) == 8))

    sizes = BatchSizes(4, exact=True)
    sizes.answer(ask, 8, "logits", CPU)

    assert sizes.refused == {("logits", 8)}


def test_each_kind_of_query_is_checked_on_its_own():
    sizes, model = BatchSizes(4, exact=True), Model()
    answered(sizes, model, 8, "logits")
    answered(sizes, model, 8, "gradients")

    assert model.sizes == [4, 4, 8]


def test_the_reference_size_needs_no_check():
    model = Model(4)
    answered(BatchSizes(4, exact=True), model, 4)

    assert model.sizes == [4]


def test_an_accelerator_compares_nothing():
    model = Model()
    answered(BatchSizes(4, exact=False), model, 10)

    assert model.sizes == [10]


def test_a_refused_size_is_not_chosen_again():
    sizes = BatchSizes(64, exact=True)
    assert sizes.fit(10, 100, "logits") == 16

    sizes.refused.add(("logits", 16))
    assert sizes.fit(10, 100, "logits") == 24
    assert sizes.fit(10, 100, "gradients") == 16


def test_a_size_is_at_most_half_as_much_again_as_its_rows_or_all_slots():
    sizes = BatchSizes(64, exact=True)

    assert [sizes.fit(rows, 100, "logits") for rows in (1, 16, 17, 25, 49, 97)] == [16, 16, 24, 32, 64, 100]


def test_a_multiple_of_the_reference_size_is_always_allowed():
    sizes = BatchSizes(64, exact=True)
    sizes.refused |= {("logits", size) for size in (16, 24, 32, 48, 64, 96, 100, 128)}

    assert sizes.fit(70, 100, "logits") == 128


@pytest.mark.parametrize(
    ("network", "rows"), [(nn.Linear(64, 10), 256), (nn.Linear(784, 2000), 64), (nn.Identity(), 64)]
)
def test_more_rows_of_a_light_network_are_in_flight(network, rows):
    shape = torch.Size((network.weight.shape[1],)) if isinstance(network, nn.Linear) else torch.Size((64,))

    assert BatchSizes.of(network, 64, True, shape).at_once == rows


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.power = nn.Linear(4, 3), 2


def sizes_known(network: nn.Module, *traits: object) -> set[tuple[str, int]]:
    return BatchSizes.of(network, 4, True, *traits).proven


def test_checked_sizes_are_remembered_for_the_next_session():
    network, model = Named(), Model()
    answered(BatchSizes.of(network, 4, True), model, 8)
    answered(BatchSizes.of(network, 4, True), model, 8)

    assert model.sizes == [8]


def another_power(network: Named) -> None:
    network.power = 3


def another_layout(network: Named) -> None:
    network.layer.weight = nn.Parameter(network.layer.weight.t().contiguous().t())


def another_layer(network: Named) -> None:
    network.layer = nn.Linear(4, 3, bias=False)


@pytest.mark.parametrize("change", [another_power, another_layout, another_layer, nn.Module.double])
def test_a_changed_network_is_checked_again(change):
    network = Named()
    answered(BatchSizes.of(network, 4, True), Model(), 8)
    assert sizes_known(network)

    change(network)
    assert not sizes_known(network)


def test_other_images_threads_and_networks_are_checked_on_their_own():
    network, threads = Named(), torch.get_num_threads()
    answered(BatchSizes.of(network, 4, True, "8x8"), Model(), 8)
    assert sizes_known(network, "8x8")

    assert not sizes_known(network, "16x16")
    assert not sizes_known(Named(), "8x8")
    torch.set_num_threads(threads + 1)
    try:
        assert not sizes_known(network, "8x8")
    finally:
        torch.set_num_threads(threads)


def test_new_weights_need_no_new_check():
    network = Named()
    answered(BatchSizes.of(network, 4, True), Model(), 8)
    with torch.no_grad():
        network.layer.weight.zero_()

    assert sizes_known(network)


def test_a_network_is_not_kept_alive():
    network = Named()
    answered(BatchSizes.of(network, 4, True), Model(), 8)
    gone = weakref.ref(network)
    del network
    gc.collect()

    assert gone() is None
