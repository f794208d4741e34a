import pytest
import torch
import torchvision
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook import Trace, UnfiredLayerError, expose_attention, scale_grad, select
from tests.nethook.nets import Attention, Net, hook_count, images, seeded


def tokens(count: int = 2) -> Tensor:
    return torch.randn(count, 5, 6, generator=torch.Generator().manual_seed(3))


def block() -> nn.Module:
    """Attention beside a skip connection, and a linear layer."""
    return seeded(lambda: Net(lambda net, x: net.fc(x + net.attn(x)), attn=Attention(), fc=nn.Linear(6, 3))).eval()


def grad_in(net: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(net(x).square().sum(), x)[0]


def test_a_hook_that_fused_attention_does_not_call_is_an_error_that_names_the_solution():
    net = block()

    with pytest.raises(UnfiredLayerError, match="expose_attention"), scale_grad(net, "attn.attn_drop", 0.0):
        grad_in(net, tokens())


def test_exposed_attention_shows_its_probabilities_and_computes_the_same():
    net, x = block(), tokens()
    plain = net(x)

    with expose_attention(net) as places, Trace(net, places["attn"]) as trace:
        out = net(x)

    assert places == {"attn": "attn.attn_drop"}
    assert torch.allclose(out, plain, atol=1e-6)
    assert trace["attn.attn_drop"].output.shape == (2, 2, 5, 5)
    assert torch.allclose(trace["attn.attn_drop"].output.sum(-1), torch.ones(2, 2, 5))
    assert net.attn.fused_attn is True


def test_a_gradient_set_to_zero_at_the_probabilities_changes_the_input_gradient():
    net, x = block(), tokens()

    with expose_attention(net) as places:
        whole = grad_in(net, x)
        with scale_grad(net, places.values(), 0.0):
            without_attention = grad_in(net, x)

    assert torch.allclose(whole, grad_in(net, x), atol=1e-6)
    assert (whole - without_attention).abs().max() > 1e-3


def test_torchvisions_transformer_is_opened_with_its_own_weights():
    net = seeded(lambda: torchvision.models.VisionTransformer(16, 4, 2, 2, 8, 16, num_classes=3)).eval()
    x = images(2, size=16)
    plain, weights, modules = net(x), net.state_dict(), dict(net.named_modules())

    with pytest.raises(UnfiredLayerError, match="MultiheadAttention"), Trace(net, "encoder.layers.*.out_proj"):
        net(x)
    with expose_attention(net) as places, Trace(net, ["*.attn_drop", "*.out_proj"]) as trace:
        out = net(x)
        assert list(net.state_dict()) == list(weights)

    assert torch.allclose(out, plain, atol=1e-5)
    assert len(places) == len(select(net, nn.MultiheadAttention)) == 2
    assert all(trace[place].output.shape == (2, 2, 17, 17) for place in places.values())
    assert dict(net.named_modules()) == modules
    assert hook_count(net) == 0


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("other", [{}, {"kdim": 4, "vdim": 3}, {"bias": False}])
def test_opened_attention_computes_what_the_original_computes(batch_first, need_weights, other):
    net = nn.ModuleDict({"mha": seeded(lambda: nn.MultiheadAttention(8, 2, batch_first=batch_first, **other))})
    source = torch.Generator().manual_seed(4)
    shape, widths = (3, 5) if batch_first else (5, 3), (8, other.get("kdim", 8), other.get("vdim", 8))
    query, key, value = (torch.randn(*shape, width, generator=source) for width in widths)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    per_head = torch.randn(6, 5, 5, generator=source)
    options = (
        {}, {"key_padding_mask": padding}, {"attn_mask": causal},
        {"attn_mask": per_head, "average_attn_weights": False},
    )  # fmt: skip

    def outputs() -> list[Tensor | None]:
        mha = net["mha"]
        batched = [mha(query, key, value, need_weights=need_weights, **more) for more in options]
        single = mha(query[0], key[0], value[0], need_weights=need_weights)
        return [part for result in (*batched, single) for part in result]

    plain = outputs()
    with expose_attention(net):
        opened = outputs()

    assert [part is None for part in opened] == [part is None for part in plain]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(opened, plain, strict=True) if a is not None)


def test_opened_attention_shows_queries_keys_and_values():
    mha, x = seeded(lambda: nn.MultiheadAttention(6, 2, batch_first=True)), tokens()
    net = nn.ModuleDict({"mha": mha})

    with expose_attention(net), Trace(net, ["mha.q", "mha.k", "mha.v"]) as trace:
        net["mha"](x, x, x)

    projected = nn.functional.linear(x, mha.in_proj_weight, mha.in_proj_bias).split(6, 2)
    assert all(torch.allclose(call.output, part, atol=1e-6) for call, part in zip(trace.calls, projected, strict=True))


def test_a_mode_set_while_attention_is_open_stays():
    net = nn.ModuleDict({"mha": nn.MultiheadAttention(4, 2, dropout=0.5)})

    with expose_attention(net):
        net.eval()

    assert not net["mha"].training


@pytest.mark.parametrize(
    ("layer", "sentence"), [(nn.Linear(1, 1), "no attention"), (nn.MultiheadAttention(4, 2, add_bias_kv=True), "'mha'")]
)
def test_a_model_whose_attention_cannot_be_opened_is_an_error(layer, sentence):
    with pytest.raises(UserError, match=sentence), expose_attention(nn.ModuleDict({"mha": layer})):
        pass


def test_timms_attention_does_not_call_the_hook_until_it_is_exposed():
    timm = pytest.importorskip("timm")
    net = seeded(lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3, depth=2)).eval()
    x = images(1, size=32)
    plain, whole = net(x), grad_in(net, x)

    with pytest.raises(UnfiredLayerError, match="expose_attention"), scale_grad(net, "blocks.*.attn.attn_drop", 0.0):
        grad_in(net, x)
    with expose_attention(net) as places, scale_grad(net, places.values(), 0.0):
        out, without_attention = net(x.clone().requires_grad_()), grad_in(net, x)

    assert torch.allclose(out, plain, atol=1e-5)
    assert (whole - without_attention).abs().max() > 1e-4
