import re

import pytest
import torch
import torchvision
from torch import nn

from robustkit.errors import UserError
from robustkit.nethook import LayerNotFoundError, ParameterNotFoundError, get_module, get_parameter, select, unwrap
from tests.nethook.nets import Net, Reusing, seeded, tied


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return seeded(lambda: torchvision.models.resnet18(num_classes=10))


CHOICES = {
    "exact name": ("layer4.1.conv2", ["layer4.1.conv2"]),
    "the model itself": ("", [""]),
    "glob with one character": ("layer4.?.bn2", ["layer4.0.bn2", "layer4.1.bn2"]),
    "glob that matches dots": ("layer4*bn1", ["layer4.0.bn1", "layer4.1.bn1"]),
    "regular expression for the whole name": (re.compile(r"layer[12]"), ["layer1", "layer2"]),
    "type": (nn.MaxPool2d, ["maxpool"]),
    "predicate": (lambda name, module: name.startswith("layer1") and isinstance(module, nn.ReLU),
                  ["layer1.0.relu", "layer1.1.relu"]),
    "several, once each, in order of definition": (["fc", "layer2", "conv1", nn.Linear], ["conv1", "layer2", "fc"]),
}  # fmt: skip


@pytest.mark.parametrize(("choice", "names"), CHOICES.values(), ids=CHOICES)
def test_a_choice_selects_the_layers_that_match(resnet, choice, names):
    selected = select(resnet, choice)

    assert list(selected) == names
    assert all(module is resnet.get_submodule(name) for name, module in selected.items())


def test_a_module_is_one_choice_even_if_it_is_iterable(resnet):
    assert select(resnet, resnet.layer2) == {"layer2": resnet.layer2}


def test_star_is_every_layer_with_a_forward_but_not_the_model(resnet):
    listed = Net(lambda net, x: x, parts=nn.ModuleList([nn.ReLU(), nn.Tanh()]))

    assert list(select(resnet, "*")) == [name for name, _ in resnet.named_modules() if name]
    assert list(select(listed, "*")) == ["parts.0", "parts.1"]


def test_a_tied_module_can_be_selected_by_both_names():
    net = seeded(tied)

    assert select(net, "decoder") == {"decoder": net.encoder}
    assert select(net, ["encoder", "decoder"]) == {"encoder": net.encoder}
    assert get_module(net, "decoder") is net.encoder
    assert get_parameter(net, "decoder.bias") is net.encoder.bias


@pytest.mark.parametrize("choice", ["layer9", "stem.*", re.compile("x+"), nn.LSTM, nn.Linear(1, 1), lambda n, m: False])
def test_a_choice_that_matches_nothing_is_an_error_also_among_others(resnet, choice):
    with pytest.raises(LayerNotFoundError):
        select(resnet, ["conv1", choice])


def test_no_choice_at_all_is_an_error(resnet):
    with pytest.raises(LayerNotFoundError):
        select(resnet, [])


@pytest.mark.parametrize("layers", [5, None, ["fc", 5], [["fc"]], b"fc"])
def test_what_cannot_choose_layers_is_an_error_that_says_what_can(resnet, layers):
    """A number was no error of ours: "'int' object is not iterable"."""
    with pytest.raises(UserError, match=r"Layers are given as a name, .* not as (int|NoneType|list)"):
        select(resnet, layers)


def test_the_error_for_a_misspelt_name_lists_similar_names(resnet):
    with pytest.raises(LookupError, match="'layer4'"):
        select(resnet, "layr4")
    with pytest.raises(ParameterNotFoundError, match=r"'fc\.weight'"):
        get_parameter(resnet, "fc.wieght")


def test_the_error_for_a_parametrised_weight_lists_its_new_name():
    net = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))

    with pytest.raises(ParameterNotFoundError, match="parametrizations"):
        get_parameter(net, "0.weight")


def test_wrappers_and_their_prefixes_are_stripped():
    net = seeded(Reusing)
    wrapped = nn.DataParallel(torch.optim.swa_utils.AveragedModel(net))

    inner = unwrap(wrapped)

    assert type(inner) is Reusing
    assert select(wrapped, "a") == select(wrapped, "module.module.a") == {"a": inner.a}
    assert unwrap(torch.compile(net, backend="eager")) is net
    assert unwrap(net) is net


def test_a_layer_called_module_is_no_wrapper():
    net = Net(lambda net, x: net.module(x / 2), module=seeded(Reusing))

    assert unwrap(net) is net
    assert list(select(net, "module.a")) == ["module.a"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_patterns_can_be_used_on_models_with_scripted_parts():
    net = nn.Sequential(torch.jit.script(nn.Tanh()), nn.ReLU())

    assert list(select(net, nn.ReLU)) == ["1"]
    assert "1" in select(net, "*")
