from typing import Any

import pytest
import torch
from torch import nn

from robustkit.nethook import Trace, expose_attention
from tests.nethook.nets import hook_count, images

transformers: Any = pytest.importorskip("transformers")

BODY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "image_size": 16, "patch_size": 8}  # fmt: skip
WINDOWS = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 4}
FAMILIES = {"ViT": BODY, "Beit": {**BODY, "use_relative_position_bias": True}, "Swin": WINDOWS, "CLIP": {}}


def network(family: str, implementation: str = "sdpa") -> Any:
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
    if family == "CLIP":
        config.vision_config = transformers.CLIPVisionConfig(**BODY)
    config._attn_implementation = implementation
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = getattr(transformers, f"{family}ForImageClassification")(config).eval()
        for weight in made.parameters():
            nn.init.normal_(weight, std=0.3)
    return made


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_that_the_library_shows(family, implementation):
    net, x = network(family, implementation), images(2, size=16)
    plain, shown = net(x).logits, network(family, "eager")(x, output_attentions=True).attentions

    with expose_attention(net) as places, Trace(net, places.values()) as trace:
        out = net(x).logits

    assert torch.allclose(out, plain, atol=1e-5)
    assert len(places) == 2
    # Of a stage of Swin, the library shows the last layer only.
    for place, attention in zip([*places.values()][-len(shown) :], shown, strict=True):
        assert torch.allclose(trace[place].output, attention, atol=1e-6)


def test_the_model_is_restored_after_an_error():
    net = network("ViT")
    before, configs = list(net.modules()), [getattr(module, "config", None) for module in net.modules()]

    with pytest.raises(ZeroDivisionError), expose_attention(net), expose_attention(nn.Sequential(network("ViT"))):
        raise ZeroDivisionError

    assert list(net.modules()) == before
    assert all(getattr(module, "config", None) is config for module, config in zip(before, configs, strict=True))
    assert net.config._attn_implementation == "sdpa"
    assert hook_count(net) == 0
