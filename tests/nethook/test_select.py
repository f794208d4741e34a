import re

import pytest
import torch
import torchvision
from torch import nn

from robustkit.nethook import LayerNotFoundError, ParameterNotFoundError, get_module, get_parameter, select, unwrap
from tests.nethook.nets import Reusing, Tied, seeded, vectors


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return seeded(lambda: torchvision.models.resnet18(num_classes=10))


def test_an_exact_name_is_that_layer(resnet):
    assert select(resnet, "layer4.1.conv2") == {"layer4.1.conv2": resnet.layer4[1].conv2}


def test_the_empty_name_is_the_model_itself(resnet):
    assert select(resnet, "") == {"": resnet}


def test_a_star_also_matches_dots(resnet):
    assert len(select(resnet, "layer*.bn?")) == 16


def test_star_alone_is_every_layer_but_not_the_model(resnet):
    assert list(select(resnet, "*")) == [name for name, _ in resnet.named_modules() if name]


def test_a_regular_expression_matches_the_whole_name(resnet):
    assert list(select(resnet, re.compile(r"layer[12]"))) == ["layer1", "layer2"]


def test_a_type_is_every_layer_of_it(resnet):
    assert len(select(resnet, nn.Conv2d)) == 20


def test_a_predicate_sees_name_and_module(resnet):
    found = select(resnet, lambda name, module: name.startswith("layer1") and isinstance(module, nn.ReLU))

    assert list(found) == ["layer1.0.relu", "layer1.1.relu"]


def test_a_module_is_found_by_itself_even_if_it_is_iterable(resnet):
    assert select(resnet, resnet.layer2) == {"layer2": resnet.layer2}


def test_several_choices_are_listed_once_each_in_order_of_definition(resnet):
    found = select(resnet, ["fc", "layer2", "conv1", nn.Linear, resnet.layer2])

    assert list(found) == ["conv1", "layer2", "fc"]


def test_a_tied_module_is_found_under_its_second_name_too():
    net = seeded(Tied)

    assert select(net, "decoder") == {"decoder": net.encoder}
    assert select(net, ["encoder", "decoder"]) == {"encoder": net.encoder}
    assert get_module(net, "decoder") is net.encoder


def test_a_pattern_skips_what_is_never_called():
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([nn.ReLU(), nn.Tanh()])

    assert list(select(Listed(), "*")) == ["parts.0", "parts.1"]


@pytest.mark.parametrize("choice", ["layer9", "stem.*", re.compile("x+"), nn.LSTM, nn.Linear(1, 1), lambda n, m: False])
def test_a_choice_that_fits_nothing_is_an_error_also_among_others(resnet, choice):
    with pytest.raises(LayerNotFoundError):
        select(resnet, ["conv1", choice])


def test_no_choice_at_all_is_an_error(resnet):
    with pytest.raises(LayerNotFoundError):
        select(resnet, [])


def test_a_misspelt_name_is_told_its_neighbours(resnet):
    with pytest.raises(LookupError, match="'layer4'"):
        select(resnet, "layr4")


def test_a_parameter_is_found_by_name_and_a_missing_one_is_told_its_neighbours():
    net = seeded(Reusing)

    assert get_parameter(net, "a.weight") is net.a.weight
    with pytest.raises(ParameterNotFoundError, match=r"'a\.weight'"):
        get_parameter(net, "a.wieght")


def test_a_parametrised_weight_is_pointed_to_under_its_new_name():
    net = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))

    with pytest.raises(ParameterNotFoundError, match="parametrizations"):
        get_parameter(net, "0.weight")


def test_a_tied_parameter_is_found_under_its_second_name_too():
    net = seeded(Tied)

    assert get_parameter(net, "decoder.bias") is net.encoder.bias


def test_wrappers_are_stripped_and_their_prefix_is_forgiven():
    net = seeded(Reusing)
    wrapped = nn.DataParallel(torch.optim.swa_utils.AveragedModel(net))

    inner = unwrap(wrapped)

    assert type(inner) is Reusing
    assert select(wrapped, "a") == select(wrapped, "module.module.a") == {"a": inner.a}
    assert unwrap(torch.compile(net, backend="eager")) is net
    assert unwrap(net) is net


def test_a_layer_called_module_is_no_wrapper():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = seeded(Reusing)

        def forward(self, x):
            return self.module(x / 2)

    net = Scaled()

    assert unwrap(net) is net
    assert list(select(net, "module.a")) == ["module.a"]
    assert net(vectors()).shape == (4, 6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_patterns_pass_over_the_scripted_parts_of_a_model_without_a_crash():
    net = nn.Sequential(torch.jit.script(nn.Tanh()), nn.ReLU())

    assert list(select(net, nn.ReLU)) == ["1"]
    assert "1" in select(net, "*")
