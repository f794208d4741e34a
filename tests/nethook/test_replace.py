import pytest
import torch
from torch import nn

from robustkit.errors import UserError
from robustkit.nethook import LayerNotFoundError, replaced
from tests.nethook.nets import Overwriting, Reusing, Tied, images, seeded, vectors


def test_other_modules_stand_in_while_the_context_lasts():
    net, x = seeded(Overwriting), images()
    old, plain = net.relu, net(x)

    with replaced(net, {"relu": nn.Identity()}) as changed:
        assert torch.equal(changed(x), net.fc(net.conv(x).flatten(1)))

    assert net.relu is old
    assert torch.equal(net(x), plain)


def test_members_of_a_sequential_are_replaced_by_number_and_keep_their_place():
    net = nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.ReLU()), nn.Tanh())

    with replaced(net, {"0.1": nn.GELU(), "1": nn.Sigmoid()}):
        assert [type(part).__name__ for part in net.modules()] == [
            "Sequential",
            "Sequential",
            "Linear",
            "GELU",
            "Sigmoid",
        ]
    assert [type(part).__name__ for part in (net[0][1], net[1])] == ["ReLU", "Tanh"]


def test_old_modules_are_back_after_an_error():
    net = seeded(Reusing)
    old = net.act

    with pytest.raises(ZeroDivisionError), replaced(net, {"act": nn.Tanh(), "a": nn.Linear(6, 6)}):
        _ = 1 / 0

    assert net.act is old


def test_one_wrong_name_replaces_nothing():
    net = seeded(Reusing)
    old = dict(net.named_modules())

    with pytest.raises(LayerNotFoundError, match="'act'"), replaced(net, {"a": nn.Identity(), "acts": nn.Tanh()}):
        pass
    assert dict(net.named_modules()) == old


def test_only_the_given_name_of_a_tied_module_changes():
    net, x = seeded(Tied), vectors()

    with replaced(net, {"decoder": nn.Identity()}):
        out = net(x)

    assert torch.equal(out, net.encoder(x).tanh())
    assert net.decoder is net.encoder


@pytest.mark.parametrize("names", [[""], ["0", "0.1"]])
def test_the_model_itself_and_parts_of_what_goes_are_refused(names):
    net = nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh()))

    with pytest.raises(UserError, match="replaced"), replaced(net, {name: nn.Identity() for name in names}):
        pass
