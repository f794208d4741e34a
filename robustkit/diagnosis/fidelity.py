"""Gradient fidelity: the change that a layer's own backward pass predicts for a move, over the real change.

    d = f(a + v) - f(a),   u = d / |d|,   fidelity = <J^T u, v> / |d|

where `v` is the move of the layer's input that a perturbation of the image causes and `J^T u` comes from the layer's
own backward pass, so that custom autograd functions are judged as an attack sees them. 1 is faithful; at 0 the gradient
does not predict the response at all. Measured for the full move and for a hundredth of it, image by image.

Fidelity is a projection: it does not notice a gradient that is huge in a few units and zero in the others. Linearity
does: with `e` a hundred times the response to `v / 100`, it is `2 <d, e> / (|d|^2 + |e|^2)`, which is 1 only if d = e.
The linearity of max pooling goes down to 0.26 where neighbours nearly tie, although max pooling masks nothing: it is
convex, so no output changes by less than its gradient predicts. That is why the sign of the curvature is measured too.

A backward pass that leaves out half of the inputs has a fidelity of 0.5 to 0.7, as max pooling of exact ties. What is
missing tells them apart: the response to a move of only those inputs whose gradient is zero, forwards and backwards. At
a tie, or at the kink of a ReLU, one of the two is zero.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.nethook.gradients import gradients_or_zeros
from robustkit.nethook.hooked import Inputs

from .calls import floats
from .layer_function import TINY, LayerFunction, has_rows_of_images, length, per_image
from .random_direction import RandomDirection

SMALL = 0.01  # of the full move
_DEAD = 1e-3  # a derivative below this share of the layer's largest counts as none
_ROUNDING = 64.0  # in units of the type's precision: responses smaller than this, relative to the output, are noise
_NOTHING_MISSING = 0.95  # fidelity at the small scale from which on nothing noticeable is left out


class Response(NamedTuple):
    """The response of one call to the move, for each of `n` images; NaN where there is nothing to measure."""

    fidelity: Tensor  # [n] at the full move; in [0, 1], overshooting counts like falling short
    fidelity_small: Tensor  # [n] at a hundredth of it
    linearity: Tensor  # [n] of the response between the two
    mixed: Tensor  # [n] share of the curvature with the rarer sign: 0 for a convex or concave layer, at most 0.5
    reach: Tensor  # [n] |d| / |f(a)|
    unmoved: Tensor  # [n] 1 where the input moved and the output did not, else 0; NaN where the input did not move
    jumps: Tensor  # [n] of the outputs that the full move changes, the share that a hundredth of it does not change
    saturation: Tensor  # [n] share of the moved inputs without a derivative
    missing: Tensor  # [n] share of the small response that comes from inputs whose gradient is zero, kinks apart
    error: Tensor  # [n] of the gradient in a random direction of the outputs, in usual sizes; of both moves the smaller
    bend: Tensor  # [n] how far the small response in that direction is from twice that to half of the move
    invalid: Tensor  # [n] 1 where the layer's own backward pass returns NaN or infinity
    detached: Tensor  # [n] 1 where the output has no graph
    randomized: Tensor  # [n] 1 where the same input gives another output after another seed
    no_grad_differs: Tensor  # [n] 1 where the output differs with and without gradients


def response(module: nn.Module, still: Inputs, moved: Inputs, count: int, seed: int) -> Response | None:
    """The response of a layer to the step from the inputs `still` to `moved` of `count` images.

    None if the two cannot be compared.
    """
    start, end = floats(still), floats(moved)
    if not start or [a.shape for a in start] != [b.shape for b in end] or any(a.element_size() == 1 for a in start):
        return None
    moves = [after - before for before, after in zip(start, end, strict=True)]
    layer = LayerFunction(module, still, count, seed)
    if count > 1 and not _is_image_by_image(layer, start, moves):
        # A model that runs a batch in parts, or fills it up, or has images on another axis, which might be that of
        # channels: all is measured together, as one image.
        whole = response(module, still, moved, 1, seed)
        return None if whole is None else Response(*(values.expand(count) for values in whole))
    with torch.no_grad():
        plain, far, other = layer(start), layer(end), layer(start, draw=1)
    if plain.shape[1] == 0 or far.shape != plain.shape or other.shape != plain.shape:
        return None
    full = far - plain
    floor = _ROUNDING * torch.finfo(plain.dtype).eps * length(plain)
    # A hundredth, or more where the response to a hundredth would be smaller than rounding errors.
    share = (10 * floor / length(full).clamp(min=TINY)).clamp(SMALL, 1.0)
    small_moves = [_times(share, v, count) for v in moves]
    with torch.no_grad():
        fine = layer([a + v for a, v in zip(start, small_moves, strict=True)]) - plain
    inputs = [a.clone().requires_grad_() for a in start]
    with torch.enable_grad():
        output = layer(inputs)
    grad_full, grad_fine = _PulledBack(output, inputs, full), _PulledBack(output, inputs, fine)
    small = agreement(share * grad_fine.along(moves, count), length(fine))
    missing = torch.zeros_like(small)
    if bool((small < _NOTHING_MISSING).any()):
        omitted = [_times(share, v, count) for v in grad_fine.without_gradient(moves, count)]
        missing = _projected(layer, start, omitted, plain, fine)
    along = RandomDirection(layer, start, small_moves, plain)
    measurable = torch.where(length(full) > floor, 1.0, torch.nan)
    fine_measurable = torch.where(length(fine) > floor / 10, 1.0, 0.0)
    input_moved = torch.stack([per_image(v, count).abs().amax(1) for v in moves]).amax(0) > 0
    return Response(
        fidelity=measurable * agreement(grad_full.along(moves, count), length(full)),
        fidelity_small=measurable * fine_measurable * small,
        linearity=measurable * _linearity(full, fine / share.unsqueeze(1)),
        mixed=measurable * _mixed(full - fine / share.unsqueeze(1)),
        reach=length(full) / length(plain).clamp(min=TINY),
        unmoved=torch.where(input_moved, (length(full) == 0).double(), torch.nan),
        jumps=measurable * ((full != 0) & (fine == 0)).sum(1) / (full != 0).sum(1).clamp(min=1),
        saturation=grad_full.saturation(moves, count),
        missing=measurable * fine_measurable * missing,
        error=measurable * fine_measurable * torch.minimum(along.error(fine), along.error(full, 1 / share)),
        bend=measurable * fine_measurable * along.bend(fine),
        invalid=grad_full.invalid(count),
        detached=_for_each_row(not output.requires_grad, plain),
        randomized=(length(other - plain) > floor).double(),
        no_grad_differs=(length(output.detach() - plain) > 100 * floor).double(),
    )


def _is_image_by_image(layer: LayerFunction, start: list[Tensor], moves: list[Tensor]) -> bool:
    """Whether the rows of the inputs that move are those of the images, and an image moves no other one's outputs."""
    moving = [move for move in moves if bool(move.any())]
    if not all(has_rows_of_images(move, layer.count) for move in moving):
        return False
    if all(len(move) == layer.count and layer.count not in move.shape[1:] for move in moving):
        return True
    # Rows may be parts of images, such as windows, or words of all of them.
    first = torch.zeros(layer.count, device=start[0].device)
    first[0] = 1
    with torch.no_grad():
        plain = layer(start)
        change = layer([a + _times(first, v, layer.count) for a, v in zip(start, moves, strict=True)]) - plain
    floor = _ROUNDING * torch.finfo(plain.dtype).eps * length(plain)
    return not bool((length(change) > floor)[1:].any())


def agreement(predicted: Tensor, real: Tensor) -> Tensor:
    """The smaller of `predicted / real` and its inverse; 0 for opposite signs."""
    ratio = predicted / torch.where(real == 0, torch.full_like(real, TINY), real)
    return torch.where(ratio > 0, torch.minimum(ratio, 1 / ratio.clamp(min=TINY)), torch.zeros_like(ratio))


class _PulledBack:
    """`J^T u` for `u` the direction of a response."""

    def __init__(self, output: Tensor, inputs: list[Tensor], d: Tensor) -> None:
        unit = d / length(d).clamp(min=TINY).unsqueeze(1)
        self.grads = gradients_or_zeros(output, inputs, unit, retain_graph=True)

    def along(self, moves: list[Tensor], count: int) -> Tensor:
        """`[count]` <J^T u, v>."""
        parts = [(per_image(g, count) * per_image(v, count)).sum(1) for g, v in zip(self.grads, moves, strict=True)]
        return torch.stack(parts).sum(0)

    def without_gradient(self, moves: list[Tensor], count: int) -> list[Tensor]:
        """The moves of those inputs only that have a derivative of nearly zero."""
        largest = torch.stack([per_image(g, count).abs().amax(1) for g in self.grads]).amax(0)
        limits = [_times(_DEAD * largest, torch.ones_like(g), count) for g in self.grads]
        return [v * (g.abs() <= limit) for v, g, limit in zip(moves, self.grads, limits, strict=True)]

    def saturation(self, moves: list[Tensor], count: int) -> Tensor:
        """`[count]` share of the moved inputs with a derivative of nearly zero."""
        grads = torch.cat([per_image(g, count).abs() for g in self.grads], 1)
        moved = torch.cat([per_image(v, count) != 0 for v in moves], 1)
        dead = moved & (grads <= _DEAD * grads.amax(1, keepdim=True))
        return torch.where(moved.any(1), dead.sum(1) / moved.sum(1).clamp(min=1), torch.nan)

    def invalid(self, count: int) -> Tensor:
        """`[count]` 1 where a gradient value is not finite."""
        return torch.stack([(~per_image(g, count).isfinite()).any(1) for g in self.grads]).any(0).double()


def _projected(layer: LayerFunction, start: list[Tensor], moves: list[Tensor], plain: Tensor, fine: Tensor) -> Tensor:
    """How far the response to `moves` goes along `fine`, as a share of it: the smaller of forwards and backwards."""
    with torch.no_grad():
        ahead = layer([a + v for a, v in zip(start, moves, strict=True)]) - plain
        behind = plain - layer([a - v for a, v in zip(start, moves, strict=True)])
    unit = fine / length(fine).clamp(min=TINY).square().unsqueeze(1)
    return torch.minimum((ahead * unit).sum(1), (behind * unit).sum(1)).clamp(min=0)


def _linearity(full: Tensor, extrapolated: Tensor) -> Tensor:
    both = full.square().sum(1) + extrapolated.square().sum(1)
    return 2 * (full * extrapolated).sum(1) / both.clamp(min=TINY)


def _mixed(curvature: Tensor) -> Tensor:
    up = curvature.clamp(min=0).square().sum(1) / curvature.square().sum(1).clamp(min=TINY)
    return torch.minimum(up, 1 - up)


def _for_each_row(value: bool, rows: Tensor) -> Tensor:
    return torch.full((len(rows),), float(value), dtype=torch.float64, device=rows.device)


def _times(share: Tensor, move: Tensor, count: int) -> Tensor:
    """`move`, each image's part multiplied by that image's share."""
    if move.dim() and len(move) and len(move) % count == 0:
        return move * share.to(move.dtype).repeat_interleave(len(move) // count).reshape(-1, *[1] * (move.dim() - 1))
    for axis in range(1, move.dim()):
        if move.shape[axis] == count:
            return move * share.to(move.dtype).reshape([-1 if place == axis else 1 for place in range(move.dim())])
    return move * share.to(move.dtype).mean()
