import pytest
import torch
from torch import nn

from robustkit.errors import UserError
from robustkit.nethook import LayerNotFoundError, replaced
from tests.nethook.nets import Overwriting, Reusing, images, seeded, tied, vectors


def test_modules_are_replaced_inside_the_context_only():
    net, x = seeded(Overwriting), images()
    original, plain = net.relu, net(x)

    with replaced(net, {"relu": nn.Identity()}) as changed:
        assert torch.equal(changed(x), net.fc(net.conv(x).flatten(1)))

    assert net.relu is original
    assert torch.equal(net(x), plain)


def test_members_of_a_sequential_keep_their_order():
    net = nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.ReLU()), nn.Tanh())

    with replaced(net, {"0.1": nn.GELU(), "1": nn.Sigmoid()}):
        assert [type(part) for part in net.modules()][2:] == [nn.Linear, nn.GELU, nn.Sigmoid]
    assert [type(part) for part in net.modules()][2:] == [nn.Linear, nn.ReLU, nn.Tanh]


@pytest.mark.parametrize(("names", "error"), [(["act", "a"], ZeroDivisionError), (["a", "acts"], LayerNotFoundError)])
def test_after_an_error_the_model_has_its_original_modules(names, error):
    net = seeded(Reusing)
    before = dict(net.named_modules())

    with pytest.raises(error), replaced(net, {name: nn.Identity() for name in names}):
        _ = 1 / 0

    assert dict(net.named_modules()) == before


def test_of_a_tied_module_only_the_given_name_changes():
    net, x = seeded(tied), vectors()

    with replaced(net, {"decoder": nn.Identity()}):
        out = net(x)

    assert torch.equal(out, net.encoder(x).tanh())
    assert net.decoder is net.encoder


@pytest.mark.parametrize("names", [[""], ["0", "0.1"]])
def test_the_model_itself_and_layers_inside_replaced_layers_are_an_error(names):
    net = nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh()))

    with pytest.raises(UserError, match="replaced"), replaced(net, {name: nn.Identity() for name in names}):
        pass
