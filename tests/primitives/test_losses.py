import pytest
import torch
from torch.nn import functional as F

from robustkit.errors import UserError
from robustkit.primitives.losses import LOSSES, loss, margin

NONE = torch.full((200,), -1)


def logits_and_labels(classes: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    return torch.randn(200, classes, generator=source) * 3, torch.randint(classes, (200,), generator=source)


def gradient(name: str, logits: torch.Tensor, y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(name)(logits, y, target).sum(), logits)[0]


@pytest.mark.parametrize("aim", [-1, 1])
def test_log_odds_and_cross_entropy_point_the_same_way(aim):
    z, y = logits_and_labels()
    y, target = y.clamp(min=2), torch.full_like(y, aim)
    ours, theirs = (F.normalize(gradient(name, z.double(), y, target)) for name in ("log-odds", "ce"))

    assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("aim", [-1, 1])
def test_log_odds_and_cross_entropy_order_points_alike(aim):
    z, _ = logits_and_labels()
    y, target = torch.full((200,), 3), torch.full((200,), aim)
    z = z.double()

    assert torch.equal(loss("log-odds")(z, y, target).argsort(), loss("ce")(z, y, target).argsort())


def test_cross_entropy_is_the_softplus_of_log_odds():
    z, y = logits_and_labels()

    assert torch.allclose(F.softplus(loss("log-odds")(z, y, NONE)), loss("ce")(z, y, NONE), atol=1e-5)


def test_log_odds_keep_their_gradient_where_cross_entropy_has_none():
    z, y = torch.tensor([[200.0, 0.0, 1.0]]), torch.tensor([0])

    assert gradient("ce", z, y, NONE[:1]).abs().max() == 0
    assert gradient("log-odds", z, y, NONE[:1])[0, 0] == -1


def test_margin_of_negative_logits_has_a_gradient():
    # torchattacks' CW multiplies by a mask, so zero wins over every negative logit and nothing has a gradient.
    z, y = torch.tensor([[-5.0, -1.0, -2.0]]), torch.tensor([0])

    assert margin(z, y).item() == 4
    assert gradient("margin", z, y, NONE[:1]).tolist() == [[-1, 1, 0]]


def test_the_margin_is_positive_exactly_where_the_prediction_is_wrong():
    z, y = logits_and_labels()

    assert torch.equal(margin(z, y) > 0, z.argmax(1) != y)


def test_dlr_is_the_papers_formula():
    z, y = logits_and_labels()
    slow = []
    for row, label in zip(z.tolist(), y.tolist(), strict=True):
        first, _, third = sorted(row, reverse=True)[:3]
        others = max(value for number, value in enumerate(row) if number != label)
        slow.append(-(row[label] - others) / (first - third))

    assert torch.allclose(loss("dlr")(z, y, NONE), torch.tensor(slow), atol=1e-5)


def test_targeted_dlr_is_the_papers_formula():
    z, y = logits_and_labels()
    target = (y + 1) % 6
    slow = []
    for row, label, aim in zip(z.tolist(), y.tolist(), target.tolist(), strict=True):
        first, _, third, fourth = sorted(row, reverse=True)[:4]
        slow.append(-(row[label] - row[aim]) / (first - (third + fourth) / 2))

    assert torch.allclose(loss("dlr")(z, y, target), torch.tensor(slow), atol=1e-5)


@pytest.mark.parametrize("aim", [-1, 1])
def test_dlr_is_invariant_to_shift_and_scale(aim):
    z, y = logits_and_labels()
    target = torch.full((200,), aim)

    assert torch.allclose(loss("dlr")(z * 128 + 7, y, target), loss("dlr")(z, y, target), atol=1e-4)


def test_dlr_of_two_classes_is_the_margin():
    z, y = logits_and_labels(2)

    assert torch.equal(loss("dlr")(z, y, NONE), margin(z, y))
    assert loss("dlr")(z, y, 1 - y).isfinite().all()


def test_targeted_dlr_of_three_classes_is_the_margin():
    z, y = logits_and_labels(3)
    target = (y + 1) % 3

    assert torch.equal(loss("dlr")(z, y, target), loss("margin")(z, y, target))


def test_equal_logits_give_a_finite_dlr():
    z, y = torch.ones(1, 5), torch.tensor([0])

    assert loss("dlr")(z, y, NONE[:1]).item() == 0
    assert gradient("dlr", z, y, NONE[:1]).isfinite().all()


@pytest.mark.parametrize("aim", [-1, 1])
def test_softmax_margin_orders_points_as_the_margin_of_the_probabilities_and_points_the_same_way(aim):
    z = logits_and_labels()[0].double().requires_grad_()
    y, target = torch.full((200,), 3), torch.full((200,), aim)
    p = z.softmax(1)
    wrong = p.scatter(1, y.unsqueeze(1), 0.0).amax(1) if aim < 0 else p[:, aim]
    published, ours = wrong - p[:, 3], loss("softmax-margin")(z, y, target)
    theirs, mine = (
        F.normalize(torch.autograd.grad(value.sum(), z, retain_graph=True)[0]) for value in (published, ours)
    )

    assert torch.equal(ours.argsort(), published.argsort())
    assert torch.allclose(mine, theirs)
    assert torch.equal(ours > 0, published > 0)


def test_softmax_margin_keeps_its_gradient_where_probabilities_have_none():
    z, y = torch.tensor([[200.0, 0.0, 1.0]]), torch.tensor([0])
    grad = gradient("softmax-margin", z, y, NONE[:1])

    assert grad[0, 0] == -1
    assert grad[0, 2] > 0.7


@pytest.mark.parametrize("name", LOSSES)
def test_each_row_has_its_own_form(name):
    z, y = logits_and_labels()
    target = torch.where(torch.arange(200) % 2 == 0, -1, (y + 1) % 6)
    mixed, away, towards = (loss(name)(z, y, aim) for aim in (target, NONE, (y + 1) % 6))

    assert torch.equal(mixed, torch.where(target < 0, away, towards))
    assert gradient(name, z, y, target).isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_rises_as_the_label_loses(name):
    z, y = torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([0])
    worse = torch.tensor([[1.5, 1.0, 0.0, -1.0]])

    assert loss(name)(worse, y, NONE[:1]) > loss(name)(z, y, NONE[:1])


@pytest.mark.parametrize("name", LOSSES)
def test_every_targeted_loss_rises_as_the_target_gains(name):
    z, y, target = torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([0]), torch.tensor([2])
    nearer = torch.tensor([[2.0, 1.0, 0.5, -1.0]])

    assert loss(name)(nearer, y, target) > loss(name)(z, y, target)


@pytest.mark.parametrize("name", LOSSES)
def test_art_a_loss_of_many_rows_makes_no_table_of_pairs(name):
    # ART's DLR takes the diagonal of a table of N x N numbers, which would be 360 GB.
    y = torch.arange(300_000) % 4
    value = loss(name)(F.one_hot((y + 1) % 4, 4).float(), y, torch.full_like(y, -1))

    assert value.shape == y.shape


@pytest.mark.parametrize("name", ["logodds", "LOG-ODDS ", 5, None])
def test_an_unknown_loss_is_refused_with_the_known_ones(name):
    with pytest.raises(UserError, match="no loss called"):
        loss(name)


def test_the_logit_loss_is_one_logit_with_a_gradient_that_never_fades():
    z, y = logits_and_labels()
    target = (y + 1) % 6
    aim = F.one_hot(target, 6).float()

    assert torch.equal(loss("logit")(z, y, target), z[torch.arange(200), target])
    assert torch.equal(loss("logit")(z, y, NONE), -z[torch.arange(200), y])
    assert torch.equal(gradient("logit", z + 100 * aim, y, target), aim)


@pytest.mark.parametrize("count", [1, 3, 23, 64, 65])
def test_a_loss_of_ones_own_has_the_same_bits_in_any_batch(count):
    # torch rounds a softplus otherwise where numbers are left over from a vector: 381 of 4,096 values differed.
    torch.manual_seed(0)
    logits, y = 4 * torch.rand(65, 10), torch.arange(65) % 10

    def soft(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(-logits.gather(1, y[:, None]).squeeze(1)).pow(1.7).sigmoid()

    whole, none = loss(soft)(logits, y, torch.full_like(y, -1)), torch.full_like(y[:count], -1)
    parts = [loss(soft)(logits[start : start + count], y[start : start + count], none[: 65 - start])
             for start in range(0, 65, count)]  # fmt: skip

    assert torch.equal(torch.cat(parts), whole)
