"""Attention whose probabilities hooks can reach; fused kernels compute them without calling any module."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.errors import UserError
from robustkit.nethook.library_attention import PROBABILITIES, library_attention, opened_library_attention
from robustkit.nethook.names import unwrap
from robustkit.nethook.replace import replaced


@contextmanager
def expose_attention(model: nn.Module) -> Iterator[dict[str, str]]:
    """Compute attention step by step inside the context, so that its probabilities are the output of a layer.

    timm's attention is switched to its own unfused path by its flag, `fused_attn`. nn.MultiheadAttention, as in
    torchvision's vision transformers, is replaced by a module that shares its weights and also has the layers `q`, `k`
    and `v`, whose outputs `[B, tokens, C]` are the projections. Attention of transformers calls an unfused function.
    Results differ from the fused ones by rounding.

    Yields:
        For the name of each attention layer, the name of the layer whose output is its probabilities.

    Raises:
        UserError: the model has no such attention, or attention with options that this function does not support.
    """
    root = unwrap(model)
    switched = {
        name: module
        for name, module in root.named_modules()
        if isinstance(getattr(module, "fused_attn", None), bool) and "attn_drop" in module._modules
    }
    fused = {
        name: module
        for name, module in root.named_modules(remove_duplicate=False)
        if isinstance(module, nn.MultiheadAttention)
    }
    opened = {name: _opened(name, module) for name, module in fused.items()}
    library = library_attention(root)
    if not switched and not opened and not library:
        raise UserError(
            "The model has no attention that can be opened (nn.MultiheadAttention, timm's with a fused_attn switch, or "
            "that of transformers)."
        )
    with ExitStack() as stack:
        stack.enter_context(replaced(root, opened))
        stack.enter_context(opened_library_attention(library))
        for module in switched.values():
            stack.callback(setattr, module, "fused_attn", module.fused_attn)
            module.fused_attn = False
        for name, replacement in opened.items():
            # A call of model.eval() inside the context is meant for the original module as well.
            stack.callback(_copy_mode, fused[name], replacement)
        names = (*switched, *opened, *library)
        yield {name: f"{name}.{PROBABILITIES}" if name else PROBABILITIES for name in names}


class OpenAttention(nn.MultiheadAttention):
    """Multi-head attention with layers to hook: `q`, `k`, `v` after the projections, `attn_drop` after the softmax.

    Unlike in nn.MultiheadAttention, `out_proj` is called as a module.
    """

    q: nn.Module
    k: nn.Module
    v: nn.Module
    attn_drop: nn.Module

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in nn.MultiheadAttention, except that the mask is always used and `is_causal` is ignored."""
        single = query.dim() == 2
        if single:
            query, key, value = (part.unsqueeze(0) for part in (query, key, value))
        elif not self.batch_first:
            query, key, value = (part.transpose(0, 1) for part in (query, key, value))
        heads = [
            part.reshape(*part.shape[:2], self.num_heads, -1).transpose(1, 2)
            for part in self._projected(query, key, value)
        ]
        scores = heads[0] * self.head_dim**-0.5 @ heads[1].transpose(2, 3)  # [B, heads, query, key]
        if attn_mask is not None:
            scores = scores + _added(attn_mask, scores).reshape(-1, *self._heads(attn_mask), *scores.shape[2:])
        if key_padding_mask is not None:
            scores = scores + _added(key_padding_mask, scores).reshape(-1, 1, 1, scores.shape[3])
        weights = self.attn_drop(scores.softmax(3))
        output = self.out_proj((weights @ heads[2]).transpose(1, 2).flatten(2))
        returned = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
        if single:
            return output.squeeze(0), None if returned is None else returned.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), returned

    def _heads(self, mask: Tensor) -> tuple[int]:
        return (1 if mask.dim() == 2 else self.num_heads,)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        weights = (
            self.in_proj_weight.chunk(3)
            if self._qkv_same_embed_dim
            else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        )
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [
            layer(F.linear(part, weight, bias))
            for layer, part, weight, bias in zip(
                (self.q, self.k, self.v), (query, key, value), weights, biases, strict=True
            )
        ]


def _opened(name: str, module: nn.MultiheadAttention) -> OpenAttention:
    if type(module) is not nn.MultiheadAttention or module.bias_k is not None or module.add_zero_attn:
        raise UserError(
            f"Attention {name!r} ({type(module).__name__}) is a subclass or has bias_kv or add_zero_attn, which "
            "expose_attention does not support; choose layers outside of it, without expose_attention."
        )
    opened = OpenAttention.__new__(OpenAttention)
    # Weights, buffers and settings are shared, not copied; only the dictionary of submodules is new.
    opened.__dict__.update(vars(module))
    new = {"q": nn.Identity(), "k": nn.Identity(), "v": nn.Identity(), "attn_drop": nn.Dropout(module.dropout)}
    opened._modules = {**module._modules, **{name: layer.train(module.training) for name, layer in new.items()}}
    return opened


def _copy_mode(module: nn.Module, other: nn.Module) -> None:
    module.training = other.training


def _added(mask: Tensor, scores: Tensor) -> Tensor:
    """A mask as numbers to add to the scores: True becomes minus infinity."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -torch.inf)
