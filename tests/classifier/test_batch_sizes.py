import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from robustkit.classifier.batch_sizes import Shapes

CPU = torch.device("cpu")


class Model:
    """Returns the row numbers; batch sizes in `odd` give other bits."""

    def __init__(self, *odd: int) -> None:
        self.odd, self.sizes = odd, []

    def __call__(self, rows: Tensor) -> tuple[Tensor, ...]:
        self.sizes.append(len(rows))
        return rows.double() + (1e-9 if len(rows) in self.odd else 0), rows * 2


def answered(shapes: Shapes, model: Model, rows: int, kind: str = "logits") -> Tensor:
    model.sizes.clear()
    return shapes.answer(model, rows, kind, CPU)[0]


def test_a_batch_size_with_equal_bits_is_checked_once_and_then_used():
    shapes, model = Shapes(4, exact=True), Model()
    first = answered(shapes, model, 10)
    assert model.sizes == [4, 4, 4, 10]

    assert torch.equal(answered(shapes, model, 10), first)
    assert model.sizes == [10]


def test_a_batch_size_with_other_bits_is_computed_in_tiles():
    shapes, model = Shapes(4, exact=True), Model(10)
    for sizes in ([4, 4, 4, 10], [4, 4, 4]):
        assert torch.equal(answered(shapes, model, 10), torch.arange(10).double())
        assert model.sizes == sizes


def test_a_batch_size_is_refused_also_when_only_the_second_tensor_differs():
    def ask(rows: Tensor) -> tuple[Tensor, ...]:
        return rows, rows + (len(rows) == 8)

    shapes = Shapes(4, exact=True)
    shapes.answer(ask, 8, "logits", CPU)

    assert shapes.refused == {("logits", 8)}


def test_each_kind_of_query_is_checked_on_its_own():
    shapes, model = Shapes(4, exact=True), Model()
    answered(shapes, model, 8, "logits")
    answered(shapes, model, 8, "gradients")

    assert model.sizes == [4, 4, 8]


def test_the_reference_size_needs_no_check():
    model = Model(4)
    answered(Shapes(4, exact=True), model, 4)

    assert model.sizes == [4]


def test_an_accelerator_compares_nothing():
    model = Model()
    answered(Shapes(4, exact=False), model, 10)

    assert model.sizes == [10]


def test_a_refused_size_is_not_chosen_again():
    shapes = Shapes(64, exact=True)
    assert shapes.fit(10, 100, "logits") == 16

    shapes.refused.add(("logits", 16))
    assert shapes.fit(10, 100, "logits") == 24
    assert shapes.fit(10, 100, "gradients") == 16


def test_a_size_is_at_most_half_as_much_again_as_its_rows_or_all_slots():
    shapes = Shapes(64, exact=True)

    assert [shapes.fit(rows, 100, "logits") for rows in (1, 16, 17, 25, 49, 97)] == [16, 16, 24, 32, 64, 100]


def test_a_multiple_of_the_reference_size_is_always_allowed():
    shapes = Shapes(64, exact=True)
    shapes.refused |= {("logits", size) for size in (16, 24, 32, 48, 64, 96, 100, 128)}

    assert shapes.fit(70, 100, "logits") == 128


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.power = nn.Linear(4, 3), 2


def sizes_known(network: nn.Module, *traits: object) -> set[tuple[str, int]]:
    return Shapes.of(network, 4, True, *traits).proven


def test_checked_sizes_are_remembered_for_the_next_session():
    network, model = Named(), Model()
    answered(Shapes.of(network, 4, True), model, 8)
    answered(Shapes.of(network, 4, True), model, 8)

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
    answered(Shapes.of(network, 4, True), Model(), 8)
    assert sizes_known(network)

    change(network)
    assert not sizes_known(network)


def test_other_images_threads_and_networks_are_checked_on_their_own():
    network, threads = Named(), torch.get_num_threads()
    answered(Shapes.of(network, 4, True, "8x8"), Model(), 8)
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
    answered(Shapes.of(network, 4, True), Model(), 8)
    with torch.no_grad():
        network.layer.weight.zero_()

    assert sizes_known(network)


def test_a_network_is_not_kept_alive():
    network = Named()
    answered(Shapes.of(network, 4, True), Model(), 8)
    gone = weakref.ref(network)
    del network
    gc.collect()

    assert gone() is None
