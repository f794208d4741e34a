"""Gradient fidelity: what a layer's own backward pass predicts for a move, over what the move really does.

    d = f(a + v) - f(a),   u = d / |d|,   fidelity = <J^T u, v> / |d|

with `v` the move that a perturbation of the image causes at the layer and `J^T u` from the layer's own backward pass,
so that custom autograd functions are judged as an attack meets them. One is faithful; zero means that the gradient
knows nothing of the response. Measured at the full move and at a hundredth of it, image by image.

Fidelity is a projection and does not see a gradient that is huge in few units and nothing in the others. Linearity
does: with `e` a hundred times the response to `v / 100`, it is `2 <d, e> / (|d|^2 + |e|^2)`, one only where d = e.
Max pooling reads as low as 0.26 where neighbours nearly tie, and hides nothing: it is convex, so no output falls short
of what its gradient promises. Hence the share of curvature that bends either way.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier import randomized as draws
from robustkit.nethook.hooked import Inputs
from robustkit.nethook.structure import mapped

from .calls import floats

SMALL = 0.01  # of the full move
_DEAD = 1e-3  # a derivative below this share of the layer's largest counts as none
_ROUNDING = 64.0  # in units of the type's precision: responses smaller than this, relative to the output, are noise
_TINY = 1e-30


class Response(NamedTuple):
    """How one call answers the move, for each of `n` images; NaN where there is nothing to measure."""

    fidelity: Tensor  # [n] at the full move; in [0, 1], overshooting counts like falling short
    fidelity_small: Tensor  # [n] at a hundredth of it
    linearity: Tensor  # [n] of the response between the two
    mixed: Tensor  # [n] share of the curvature that bends the rarer way: 0 for a convex or concave layer, at most 0.5
    reach: Tensor  # [n] |d| / |f(a)|, how far the output moves
    unmoved: Tensor  # [n] 1 where the input moved and the output did not, else 0; NaN where the input did not move
    jumps: Tensor  # [n] share of the outputs changed by the full move that a hundredth of it leaves exactly alone
    saturation: Tensor  # [n] share of the moved inputs without a derivative
    invalid: Tensor  # [n] 1 where the layer's own backward pass returns NaN or infinity
    detached: Tensor  # [n] 1 where the output has no graph
    stochastic: Tensor  # [n] 1 where the same input is answered differently after another seed
    twofaced: Tensor  # [n] 1 where the output differs with and without gradients


class LayerFunction:
    """A layer as a function of the float tensors among its inputs."""

    def __init__(self, module: nn.Module, inputs: Inputs, count: int, seed: int) -> None:
        self.module, self.inputs, self.count, self.seed = module, inputs, count, seed

    def __call__(self, tensors: list[Tensor], draw: int = 0) -> Tensor:
        """`[count, m]` all its float outputs; `draw` picks another seed."""
        # Clones: the layer may write into its input.
        queue = iter([tensor.clone() for tensor in tensors])
        args, kwargs = mapped(self.inputs, lambda part: next(queue) if part.is_floating_point() else part)
        draws.reseed(self.seed + draw)
        outputs = [per_image(part, self.count) for part in floats(self.module(*args, **kwargs))]
        return torch.cat(outputs, 1) if outputs else torch.zeros(self.count, 0)


def response(module: nn.Module, still: Inputs, moved: Inputs, count: int, seed: int) -> Response | None:
    """What a layer makes of the inputs of `count` images, `still` and `moved`; None if the two cannot be compared."""
    start, end = floats(still), floats(moved)
    if not start or [a.shape for a in start] != [b.shape for b in end]:
        return None
    layer = LayerFunction(module, still, count, seed)
    moves = [after - before for before, after in zip(start, end, strict=True)]
    with torch.no_grad():
        plain, far, other = layer(start), layer(end), layer(start, draw=1)
    if plain.shape[1] == 0 or far.shape != plain.shape or other.shape != plain.shape:
        return None
    full = far - plain
    floor = _ROUNDING * torch.finfo(plain.dtype).eps * _length(plain)
    # A hundredth, or more where the response to a hundredth would drown in rounding.
    share = (10 * floor / _length(full).clamp(min=_TINY)).clamp(SMALL, 1.0)
    with torch.no_grad():
        fine = layer([a + _times(share, v, count) for a, v in zip(start, moves, strict=True)]) - plain
    inputs = [a.clone().requires_grad_() for a in start]
    with torch.enable_grad():
        output = layer(inputs)
    felt, little = _Gradient(output, inputs, full), _Gradient(output, inputs, fine)
    heard = torch.where(_length(full) > floor, 1.0, torch.nan)
    quiet = torch.where(_length(fine) > floor / 10, 1.0, 0.0)
    went = torch.stack([per_image(v, count).abs().amax(1) for v in moves]).amax(0) > 0
    return Response(
        fidelity=heard * agreement(felt.along(moves, count), _length(full)),
        fidelity_small=heard * quiet * agreement(share * little.along(moves, count), _length(fine)),
        linearity=heard * _linearity(full, fine / share.unsqueeze(1)),
        mixed=heard * _mixed(full - fine / share.unsqueeze(1)),
        reach=_length(full) / _length(plain).clamp(min=_TINY),
        unmoved=torch.where(went, (_length(full) == 0).double(), torch.nan),
        jumps=heard * ((full != 0) & (fine == 0)).sum(1) / (full != 0).sum(1).clamp(min=1),
        saturation=felt.saturation(moves, count),
        invalid=felt.invalid(count),
        detached=_each(not output.requires_grad, plain),
        stochastic=(_length(other - plain) > floor).double(),
        twofaced=(_length(output.detach() - plain) > 100 * floor).double(),
    )


def agreement(predicted: Tensor, real: Tensor) -> Tensor:
    """The smaller of `predicted / real` and its inverse; 0 for opposite signs."""
    ratio = predicted / torch.where(real == 0, torch.full_like(real, _TINY), real)
    return torch.where(ratio > 0, torch.minimum(ratio, 1 / ratio.clamp(min=_TINY)), torch.zeros_like(ratio))


def per_image(values: Tensor, count: int) -> Tensor:
    """`[count, m]` along the axis that holds the images; what all images share is repeated."""
    if values.dim() and len(values) and len(values) % count == 0:
        return values.reshape(count, -1)
    for axis in range(1, values.dim()):
        if values.shape[axis] == count:
            return values.movedim(axis, 0).reshape(count, -1)
    return values.reshape(1, -1).expand(count, -1)


class _Gradient:
    """`J^T u` for `u` the direction of a response."""

    def __init__(self, output: Tensor, inputs: list[Tensor], d: Tensor) -> None:
        self.grads = [torch.zeros_like(part) for part in inputs]
        if output.requires_grad:
            unit = d / _length(d).clamp(min=_TINY).unsqueeze(1)
            found = torch.autograd.grad(output, inputs, unit, allow_unused=True, retain_graph=True)
            self.grads = [zero if grad is None else grad for zero, grad in zip(self.grads, found, strict=True)]

    def along(self, moves: list[Tensor], count: int) -> Tensor:
        """`[count]` <J^T u, v>."""
        parts = [(per_image(g, count) * per_image(v, count)).sum(1) for g, v in zip(self.grads, moves, strict=True)]
        return torch.stack(parts).sum(0)

    def saturation(self, moves: list[Tensor], count: int) -> Tensor:
        """`[count]` share of the moved inputs with a derivative of nearly nothing."""
        grads = torch.cat([per_image(g, count).abs() for g in self.grads], 1)
        went = torch.cat([per_image(v, count) != 0 for v in moves], 1)
        dead = went & (grads <= _DEAD * grads.amax(1, keepdim=True))
        return torch.where(went.any(1), dead.sum(1) / went.sum(1).clamp(min=1), torch.nan)

    def invalid(self, count: int) -> Tensor:
        """`[count]` 1 where a value is not finite."""
        return torch.stack([(~per_image(g, count).isfinite()).any(1) for g in self.grads]).any(0).double()


def _linearity(full: Tensor, extrapolated: Tensor) -> Tensor:
    both = full.square().sum(1) + extrapolated.square().sum(1)
    return 2 * (full * extrapolated).sum(1) / both.clamp(min=_TINY)


def _mixed(bend: Tensor) -> Tensor:
    up = bend.clamp(min=0).square().sum(1) / bend.square().sum(1).clamp(min=_TINY)
    return torch.minimum(up, 1 - up)


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return length


def _each(fact: bool, rows: Tensor) -> Tensor:
    return torch.full((len(rows),), float(fact), dtype=torch.float64, device=rows.device)


def _times(share: Tensor, move: Tensor, count: int) -> Tensor:
    """`move` with the part of each image multiplied by its own share."""
    if move.dim() and len(move) and len(move) % count == 0:
        return move * share.to(move.dtype).repeat_interleave(len(move) // count).reshape(-1, *[1] * (move.dim() - 1))
    for axis in range(1, move.dim()):
        if move.shape[axis] == count:
            return move * share.to(move.dtype).reshape([-1 if place == axis else 1 for place in range(move.dim())])
    return move * share.to(move.dtype).mean()
