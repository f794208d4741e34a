import copy
import os
import threading
import warnings

import pytest
import torch
from robustkit.attacks import FGSM, PGD
from robustkit.defenses import finetune
from torch import nn

from robustkit import attack, diagnose
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.isolation import untouched
from robustkit.errors import UserError
from robustkit.host.alone import is_free
from robustkit.testing.problems import SmallConvNet
from tests.compiling import compiles
from tests.problems import filled, images, problem
from tests.small import data, linear


def model() -> nn.Module:
    return filled(SmallConvNet((1, 8, 8), 3)).train()


def test_every_module_has_its_own_mode_again_and_statistics_are_unchanged():
    # torchattacks calls train() at the end, which unfreezes what the user had frozen; auto-attack and adv-lib update
    # BatchNorm statistics of a model in train mode.
    net = model()
    net.body[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with untouched(net):
        assert not any(module.training for module in net.modules())
        net(images(4, 1, 8, 8) + 5)

    assert [module.training for module in net.body] == [True, False, True, True, True, True]
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_second_thread_waits_until_the_model_is_as_before():
    # The first of two evaluations that ended put the model back into train mode under the other.
    net, free = model(), []
    with untouched(net):
        asked = threading.Thread(target=lambda: free.append(is_free()))
        asked.start()
        asked.join()
        with untouched(net):  # the same thread may
            pass
        later = threading.Thread(target=lambda: free.append(mode_inside(net)))
        later.start()
    later.join()

    assert free == [False, False]
    assert all(module.training for module in net.modules())
    assert is_free()


def counting(ran):
    """A backend of torch.compile that notes each run of compiled code."""
    return lambda graph, inputs: lambda *values: ran.append(1) or graph(*values)


@compiles
def test_what_the_caller_compiled_runs_as_it_was_before():
    # torch.compile(mode="reduce-overhead") writes each answer over the last one; every batch size was compiled anew.
    made, ran = problem("cnn", 1, 8, 8, count=8), []
    backend = counting(ran)
    net = nn.Sequential(copy.deepcopy(made.model), nn.Identity())
    net[0].compile(backend=backend)
    net = torch.compile(net, backend=backend)
    net(made.x)
    times = len(ran)
    results = [attack(model, made.x, made.y, PGD(0.03, steps=5)) for model in (made.model, net)]

    assert times
    assert len(ran) == times
    assert torch.equal(results[0].x_adv, results[1].x_adv)
    assert Classifier(net).name == "sequential"
    net(made.x)
    assert len(ran) > times


def rounded(x):
    return torch.round(x * 8) / 8


class CallsCompiled(nn.Module):
    def forward(self, x):
        return rounded(x)


@compiles
def test_a_compiled_function_of_a_forward_runs_as_it_was_before(monkeypatch):
    made, ran = problem("cnn", 1, 8, 8, count=8), []
    monkeypatch.setitem(globals(), "rounded", torch.compile(rounded, backend=counting(ran)))
    attack(nn.Sequential(CallsCompiled(), made.model), made.x, made.y, "square:queries=5", eps=0.1)

    assert not ran


class Branching(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 1e9, lambda x: x * 0.5, lambda x: x * 1.0, (x,))


@pytest.mark.skipif(
    torch.__version__ < (2, 14), reason="torch.cond of torch 2.11 fails where its functions are watched"
)
def test_torch_cond_outside_of_compiled_code_runs():
    # It cannot run where compiled code is told to run as it was before.
    made = problem("mlp", 1, 8, 8, count=4)
    found = attack(nn.Sequential(Branching(), made.model), made.x, made.y, FGSM(0.1))

    assert torch.equal(found.success, attack(made.model, made.x, made.y, FGSM(0.1)).success)


class Far(nn.Module):
    """Adds a constant that `.to` does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.constant, self.body = torch.zeros(1, device="meta"), nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

    def forward(self, x):
        return self.body(x + torch.cat([self.constant, x.flatten()[:1]])[0])


def test_a_constant_on_another_device_is_an_error_that_names_the_fix():
    with pytest.raises(UserError, match=r"on cpu.*register_buffer"):
        attack(Far(), images(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), PGD(0.03))


def test_weights_of_inference_mode_are_an_error_that_names_the_fix():
    with torch.inference_mode():
        net = copy.deepcopy(model())

    with pytest.raises(UserError, match="weight was made in torch"):
        Classifier(net)
    buffers = nn.BatchNorm2d(1, affine=False)
    with torch.inference_mode():
        buffers.running_mean = torch.zeros(1)
    with pytest.raises(UserError, match="running_mean was made in torch"):
        Classifier(nn.Sequential(buffers, nn.Flatten(), nn.Linear(64, 3)))
    x, y = images(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    with pytest.raises(UserError, match="weight was made in torch"):
        finetune(net, (x[:2], y[:2]), (x[2:], y[2:]), eps=0.1)


def test_labels_of_inference_mode_are_labels():
    made = problem("cnn", 1, 8, 8, count=8)
    with torch.inference_mode():
        y = made.y.clone()

    assert diagnose(made.model, made.x, y, eps=0.1).verdict == diagnose(made.model, made.x, made.y, eps=0.1).verdict


def test_a_module_without_a_forward_is_an_error_that_says_so():
    with pytest.raises(UserError, match="A ModuleList has no forward"):
        Classifier(nn.ModuleList([model()]))


def mode_inside(net: nn.Module) -> bool:
    with untouched(net):
        return net.training


def test_a_child_process_does_not_wait_for_a_thread_that_it_does_not_have():
    entered, left = threading.Event(), threading.Event()

    def hold() -> None:
        with untouched(model()):
            entered.set()
            left.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    child = os.fork()
    if not child:
        os._exit(0 if is_free() else 1)
    left.set()
    thread.join()

    assert os.waitpid(child, 0)[1] == 0


def exported(net: nn.Module) -> nn.Module:
    sizes = ({0: torch.export.Dim("batch")},)
    return torch.export.export(net, (images(2, 1, 8, 8),), dynamic_shapes=sizes).module()


def jit_frozen(net: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that TorchScript will go
        return torch.jit.freeze(torch.jit.script(net))


@pytest.mark.parametrize("made", [exported, jit_frozen])
def test_modules_without_modes_are_used_as_they_are(made):
    # "Calling eval() is not supported yet", "has no attribute 'training'".
    net = model().eval()
    with untouched(made(net)) as _:
        pass
    x = images(2, 1, 8, 8)

    assert torch.equal(attack(made(net), x, net(x).argmax(1), "fgsm", eps=0.1, batch_size=2).clean_correct,
                       torch.tensor([True, True]))  # fmt: skip


def test_frozen_weights_stay_frozen_and_others_do_not():
    net = model()
    net.head.bias.requires_grad_(False)
    with untouched(net):
        net.requires_grad_(False)

    assert not net.head.bias.requires_grad
    assert net.head.weight.requires_grad


def test_draws_are_the_same_in_every_session_and_the_global_random_state_is_restored():
    # auto-attack calls torch.manual_seed and does not restore the state.
    net, draws = model(), []
    state = torch.random.get_rng_state()
    for _ in range(2):
        with untouched(net, seed=5):
            draws.append(torch.rand(3))

    assert torch.equal(*draws)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_replaced_buffer_is_restored():
    net = model()
    buffer = net.body[1].running_mean
    with untouched(net):
        net.body[1].running_mean = torch.zeros(8)

    assert net.body[1].running_mean is buffer


class AlwaysTraining(nn.BatchNorm2d):
    def train(self, mode: bool = True) -> nn.Module:
        return super().train(True)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [(AlwaysTraining(1), "'1' stays in train mode"),
     (nn.BatchNorm2d(1, track_running_stats=False), "track_running_stats=True")],
)  # fmt: skip
def test_batchnorm_with_statistics_of_the_batch_is_an_error_and_the_model_is_restored(layer, sentence):
    net = nn.Sequential(nn.ReLU(), layer).train()
    with pytest.raises(UserError, match=sentence), untouched(net):
        pass

    assert net.training
    assert net[0].training


class Inference(nn.Module):
    """A network whose forward, or a part of it, runs in inference mode."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole, self.network = whole, linear()

    def forward(self, x):
        with torch.inference_mode():
            values = self.network(x)
        return values if self.whole else self.network(x) * values


@pytest.mark.parametrize("straight_through", [False, True])
@pytest.mark.parametrize(("whole", "words"), [(True, "answers in"), (False, "computes with tensors .*in")])
def test_inference_mode_ended_with_an_error_of_torch_or_with_a_remedy_that_was_on(whole, words, straight_through):
    classifier = Classifier(Inference(whole), straight_through=straight_through)

    with pytest.raises(UserError, match=rf"The model {words} torch\.inference_mode.*; remove it"):
        attack(classifier, *data(4), "pgd:steps=1", eps=0.1)
