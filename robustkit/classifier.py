"""A model made safe to question: the only place where a model is called.

Two networks stand behind one classifier. The *reference* is the caller's own module in fp32; verdicts come from it
alone. The *search* network answers an attack's questions: BatchNorm folded into convolutions where it can be,
channels last where that pays, bf16 or compiled on request.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.fold import folded
from robustkit.guard import exact_arithmetic, untouched
from robustkit.outputs import logits_of
from robustkit.protocol import Attack, Seen, State
from robustkit.rows import padded
from robustkit.shapes import Shapes

_SMALL = 3 * 64 * 64  # values per image up to which 64 images are one tile


@dataclass
class Passes:
    """Rows sent through a network so far, padding and shape checks included: what the machine really did."""

    forwards: int = 0
    backwards: int = 0


class Normalised(nn.Module):
    """A network behind the normalisation it was trained with: `(x - mean) / std` per channel."""

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or any(not value > 0 for value in std):
            raise UserError("mean and std need one number per channel each, and every std must be above zero.")
        self.network = network
        self.mean: Tensor
        self.std: Tensor
        device, self.dtype = _home(network)
        self.register_buffer("mean", torch.tensor(mean, device=device).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, device=device).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pixels `[B, C, H, W]`."""
        return self.network(((x - self.mean) / self.std).to(self.dtype))  # type: ignore[no-any-return]


class Classifier:
    """Questions and verdicts for one model, whose every trait is left as it was.

    Args:
        model: takes images in `bounds` and returns logits `[B, K]` as a tensor, tuple, dict or object with `.logits`.
        bounds: the range of valid pixel values the model expects.
        mean, std: per-channel normalisation to apply inside, if the model itself does not.
        name: how reports call it.
        fold: search with BatchNorm folded where the model can be traced.
        channels_last: memory layout of the search; None chooses it on a CPU where it was measured to pay.
        compile: search with `torch.compile`.
        bf16: search under bf16 autocast; verdicts stay fp32.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        name: str | None = None,
        fold: bool = True,
        channels_last: bool | None = None,
        compile: bool = False,  # noqa: A002  # torch's own word for it
        bf16: bool = False,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise UserError(f"bounds must be a lower and a higher value, not {bounds}.")
        if (mean is None) != (std is None):
            raise UserError("mean and std belong together: give both or neither.")
        self.model = Normalised(model, mean, std) if mean is not None and std is not None else model
        own = getattr(model, "name", None)
        self.name = name or (own if isinstance(own, str) and own else type(model).__name__.lower())
        self.bounds = bounds
        self.fold, self.channels_last, self.compile, self.bf16 = fold, channels_last, compile, bf16
        self.device, self.dtype = _home(model)
        self.passes = Passes()
        self.shapes: Shapes | None = None
        self.folded = False
        self._search: Callable[[Tensor], object] | None = None
        self._last = False

    @contextmanager
    def session(self, images: Tensor, seed: int = 0) -> Iterator["Classifier"]:
        """Eval mode and a search network while the context lasts; everything restored at its end.

        Args:
            images: some clean images `[n, *S]` in [0, 1], to choose sizes and to compare the folded copy with.
            seed: of torch's global generator inside the context, for models that draw from it.
        """
        with untouched(self.model, seed), torch.inference_mode(mode=False), exact_arithmetic(self.device):
            small = images[0].numel() <= _SMALL
            self.shapes = Shapes(64 if small else 16, exact=self.device.type == "cpu")
            self._prepare(images[: self.shapes.reference])
            try:
                yield self
            finally:
                self._search = None

    def judge(self, points: Tensor) -> Tensor:
        """fp32 logits `[n, K]` of the unmodified model at points `[n, *S]` in [0, 1]; in parts if memory is short."""
        logits = self._judged(points)
        if logits is not None:
            return logits
        if len(points) == 1:
            raise UserError("The model does not fit into memory even for a single image; use another --device.")
        torch.cuda.empty_cache()
        first, second = points[: len(points) // 2], points[len(points) // 2 :]
        return torch.cat([self.judge(first), self.judge(second)])

    def _judged(self, points: Tensor) -> Tensor | None:
        size = self._shapes.fit(len(points), self._shapes.reference, "judge")
        filled = points.index_select(0, padded(torch.arange(len(points), device=points.device), size))

        @torch.no_grad()
        def ask(rows: Tensor) -> tuple[Tensor, ...]:
            self.passes.forwards += len(rows)
            return (logits_of(self.model(self._feed(filled.index_select(0, rows)))).float(),)

        try:
            return self._shapes.answer(ask, size, "judge", points.device)[0][: len(points)]
        except torch.OutOfMemoryError:
            return None

    def ask(self, attack: Attack, state: State) -> Seen:
        """What `attack` may see of the model at `state.query`, row by row."""
        answer = self._seen_gradients if attack.sees == "gradients" else self._seen_logits

        def ask(rows: Tensor) -> tuple[Tensor, ...]:
            # A tile is never as long as the state, so as many rows are all of them, and need no copy.
            return answer(attack, state if len(rows) == len(state) else state.take(rows))

        label, logits, loss, grad = self._shapes.answer(ask, len(state), attack.sees, state.query.device)
        return Seen(label, logits, loss, grad)

    def place(self, images: Tensor) -> Tensor:
        """Images of the caller's range, moved to the model's device and type and scaled to [0, 1]."""
        low, high = self.bounds
        images = self.moved(images)
        return images if self.bounds == (0, 1) else ((images - low) / (high - low)).clamp(0, 1)

    def moved(self, points: Tensor) -> Tensor:
        """Points in [0, 1] on the model's device."""
        # Never coarser than fp32, whatever the weights are: a rounded point would leave the ball.
        return points.to(self.device, torch.float64 if self.dtype == torch.float64 else torch.float32)

    def _feed(self, points: Tensor, layout: torch.memory_format = torch.preserve_format) -> Tensor:
        low, high = self.bounds
        # A copy: models may write into their input, and the point must not change under the attack.
        points = points.clone(memory_format=layout) if self.bounds == (0, 1) else low + (high - low) * points
        points = points.to(memory_format=layout)
        return points if isinstance(self.model, Normalised) else points.to(self.dtype)

    @property
    def _shapes(self) -> Shapes:
        assert self.shapes is not None, "a question outside of session()"
        return self.shapes

    def _seen_gradients(self, attack: Attack, state: State) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            query = state.query.detach().requires_grad_()
            logits = self._searched(query)
            loss = attack.objective(logits, state.trial)
            # The sum keeps rows apart; a mean would scale each gradient by its neighbours.
            known = loss.requires_grad
            grad = torch.autograd.grad(loss.sum(), query, allow_unused=True)[0] if known else None
            if grad is None:
                raise UserError(
                    "The model's logits do not depend on its input as autograd sees it (no_grad, detach or numpy "
                    "inside); use an attack without gradients, such as square, or mend the model."
                )
        self.passes.backwards += len(query)
        return logits.argmax(1), logits.detach(), loss.detach(), grad.contiguous()

    @torch.no_grad()
    def _seen_logits(self, attack: Attack, state: State) -> tuple[Tensor, ...]:
        logits = self._searched(state.query)
        label, nothing = logits.argmax(1), logits.new_zeros(len(state), 0)
        if attack.sees == "labels":
            return label, nothing, logits.new_zeros(len(state)), nothing
        return label, logits, attack.objective(logits, state.trial), nothing

    def _searched(self, query: Tensor) -> Tensor:
        assert self._search is not None, "a question outside of session()"
        self.passes.forwards += len(query)
        points = self._feed(query, torch.channels_last if self._last else torch.preserve_format)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            logits = logits_of(self._search(points))
        # Losses in bf16 lose up to a tenth of all verdicts; only the network itself runs in it.
        return logits.to(query.dtype)

    def _prepare(self, images: Tensor) -> None:
        network = folded(self.model) if self.fold else None
        if network is not None and not self._agrees(network, images):
            network = None
        self.folded = network is not None
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in self.model.modules())
        self._last = images.dim() == 4 and not hooked and self._pays(images)
        if self._last:
            network = network if network is not None else _copied(self.model)
            self._last = network is not None
        if self._last and network is not None:
            network = network.to(memory_format=torch.channels_last)
        network = network if network is not None else self.model
        self._search = torch.compile(network) if self.compile else network

    def _pays(self, images: Tensor) -> bool:
        if self.channels_last is not None:
            return self.channels_last
        # Measured on a CPU: 10 to 30 % faster with 32 channels and more, 6 % slower with 16, slower on 8 x 8 images.
        channels = [module.out_channels for module in self.model.modules() if isinstance(module, nn.Conv2d)]
        return self.device.type == "cpu" and max(channels, default=0) >= 32 and images[0, 0].numel() >= 256

    @torch.no_grad()
    def _agrees(self, network: nn.Module, images: Tensor) -> bool:
        self.passes.forwards += 2 * len(images)
        try:
            mine, copied = (logits_of(net(self._feed(images))).float() for net in (self.model, network))
        except UserError:
            raise
        except Exception:
            # A trace can hold on to the caller's tensors or control flow; then the original is searched.
            return False
        return bool((mine - copied).abs().max() <= 1e-3 * (mine.max() - mine.min()).clamp(min=1))


def _home(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where a model's weights are, and their floating point type."""
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    return (weights[0].device, weights[0].dtype) if weights else (torch.device("cpu"), torch.float32)


def _copied(model: nn.Module) -> nn.Module | None:
    try:
        return copy.deepcopy(model)
    except Exception:
        # Modules may hold what cannot be copied (locks, tensors of a graph); the layout is then left alone.
        return None
