import copy

import pytest
import torch
from torch import nn

from robustkit.classifier.isolation import untouched
from robustkit.errors import UserError
from tests.problems import Cnn, filled, images


def model() -> nn.Module:
    return filled(Cnn((1, 8, 8), 3)).train()


def test_model_in_train_mode_keeps_its_batchnorm_statistics():
    # auto-attack and adv-lib change them.
    net = model()
    before = copy.deepcopy(net.state_dict())
    with untouched(net):
        net(images(4, 1, 8, 8) + 5)

    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_every_module_gets_its_own_mode_back():
    # torchattacks calls train() at the end, which thaws what the user had frozen.
    net = model()
    net.body[1].eval()
    with untouched(net):
        assert not any(module.training for module in net.modules())

    assert [module.training for module in net.body] == [True, False, True, True, True, True]
    assert net.training


def test_param_grad_is_never_written():
    # auto-attack's FAB, ART and secml-torch leave gradients behind.
    net = model()
    net.head.bias.grad = torch.ones(3)
    with untouched(net):
        net(images(4, 1, 8, 8)).sum().backward()

    assert net.head.weight.grad is None
    assert net.head.bias.grad is not None


def test_gradients_that_stood_there_keep_their_values():
    net = model()
    net.head.bias.grad = torch.ones(3)
    with untouched(net):
        net(images(4, 1, 8, 8)).sum().backward()

    assert net.head.bias.grad.tolist() == [1, 1, 1]


def test_frozen_weights_stay_frozen_and_others_free():
    net = model()
    net.head.bias.requires_grad_(False)
    with untouched(net):
        net.requires_grad_(False)

    assert not net.head.bias.requires_grad
    assert net.head.weight.requires_grad


def test_global_random_state_survives():
    # auto-attack calls torch.manual_seed for its caller, too.
    net, state = model(), torch.random.get_rng_state()
    with untouched(net, seed=5):
        torch.rand(9)

    assert torch.equal(torch.random.get_rng_state(), state)


def test_models_that_draw_numbers_draw_the_same_in_every_session():
    drawn = []
    for _ in range(2):
        with untouched(model(), seed=5):
            drawn.append(torch.rand(3))

    assert torch.equal(*drawn)


def test_a_replaced_buffer_is_put_back():
    net = model()
    buffer = net.body[1].running_mean
    with untouched(net):
        net.body[1].running_mean = torch.zeros(8)

    assert net.body[1].running_mean is buffer


def test_everything_is_restored_after_an_exception():
    net, state = model(), torch.random.get_rng_state()
    before = net.body[1].running_mean.clone()
    with pytest.raises(ZeroDivisionError), untouched(net):
        torch.rand(int(net.body[1].running_mean.add_(1).numel()) // 0)

    assert net.training
    assert torch.equal(net.body[1].running_mean, before)
    assert torch.equal(torch.random.get_rng_state(), state)


class Stubborn(nn.BatchNorm2d):
    def train(self, mode: bool = True) -> nn.Module:
        return super().train(True)


def test_batchnorm_that_refuses_eval_mode_is_an_error_and_leaves_the_model_alone():
    net = nn.Sequential(nn.ReLU(), Stubborn(1)).train()
    with pytest.raises(UserError, match="'1' stays in train mode"), untouched(net):
        pass

    assert net.training
    assert net[0].training


def test_batchnorm_without_statistics_of_its_own_is_an_error():
    net = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False))

    with pytest.raises(UserError, match="track_running_stats=True"), untouched(net):
        pass
