"""A model made safe to query: the only place where a model is called.

Two networks stand behind one classifier. The *reference* is the caller's own module in fp32; verdicts come from it
alone. The *search* network answers an attack's queries: BatchNorm folded into convolutions where it can be,
channels last where that pays, bf16 or compiled on request; or the network itself under hooks, for surrogate
gradients and for attacks that bring hooks of their own. Of a smoothed classifier both are asked about noisy copies.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from robustkit.classifier import randomized as randomness
from robustkit.classifier import smoothed as copies
from robustkit.classifier import smoothing
from robustkit.classifier.answers import answered
from robustkit.classifier.batch_sizes import Shapes, tiled
from robustkit.classifier.folding import folded, hooked
from robustkit.classifier.isolation import exact_arithmetic, untouched
from robustkit.classifier.logits import logits_of
from robustkit.classifier.smoothing import Smoothing
from robustkit.classifier.surrogate_gradients import StandIn
from robustkit.errors import UserError
from robustkit.models.preprocessing import Normalised, home, network_in
from robustkit.nethook import Trace, bpda
from robustkit.primitives.protocol import Attack, FeatureAttack, FeatureSeen, HookedAttack, Seen, State
from robustkit.primitives.rows import padded

_SMALL = 3 * 64 * 64  # values per image up to which 64 images are one tile
DRAWS = 20  # a randomized model's gradient is the mean of as many, unless asked otherwise; AutoAttack's number
_JUDGED_AT_ONCE = 64
_LOOKED_AT = 4  # images asked again and again, to see whether the model is randomized


@dataclass
class PassCount:
    """Rows sent through a network so far, padding and shape checks included: what the machine really did."""

    forwards: int = 0
    backwards: int = 0


class Classifier:
    """Queries and verdicts for one model, whose every trait is left as it was.

    Args:
        model: takes images in `bounds` and returns logits `[B, K]` as a tensor, tuple, dict or object with `.logits`.
        bounds: the range of valid pixel values the model expects.
        mean, std: per-channel normalisation to apply inside, if the model itself does not.
        name: how reports call it.
        fold: search with BatchNorm folded where the model can be traced.
        channels_last: memory layout of the search; None chooses it on a CPU where it was measured to pay.
        compile: search with `torch.compile`.
        bf16: search under bf16 autocast; verdicts stay fp32.
        bpda: layers by name (or glob), each with the differentiable function whose gradient the search takes in its
            place, None for the identity. Forward values stay. Athalye et al. 2018, arXiv:1802.00420, section 4.1.
        eot: draws of a randomized or smoothed model averaged per query; None takes 20.
        draws: answers of a randomized model per verdict, which is their plurality.
        probabilities: the model returns probabilities; the search climbs on their logarithms.
        smoothing: what is queried and judged is the class that the model says most often under this noise.
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
        bpda: Mapping[str, StandIn | None] | None = None,
        eot: int | None = None,
        draws: int = 64,
        probabilities: bool = False,
        smoothing: Smoothing | None = None,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise UserError(f"bounds must be a lower and a higher value, not {bounds}.")
        if (mean is None) != (std is None):
            raise UserError("mean and std belong together: give both or neither.")
        if draws < 1 or (eot is not None and eot < 1):
            raise UserError("eot and draws count answers of the model, so each must be at least 1.")
        self.model = Normalised(model, mean, std) if mean is not None and std is not None else model
        own = getattr(model, "name", None)
        self.name = name or (own if isinstance(own, str) and own else type(model).__name__.lower()) + (
            "" if smoothing is None else "-smoothed"
        )
        self.bounds = bounds
        self.fold, self.channels_last, self.compile, self.bf16 = fold, channels_last, compile, bf16
        self.bpda, self.eot, self.draws, self.probabilities = dict(bpda or {}), eot, draws, probabilities
        self.smoothing = smoothing
        self.randomized = False  # found out in session()
        self.device, self.dtype = home(model)
        self.passes = PassCount()
        self.shapes: Shapes | None = None
        self.folded = False
        self._search: Callable[[Tensor], object] | None = None
        self._last = False
        self._spares = False  # found out in session(): whether the network leaves its input as it is
        self._seed = 0

    @contextmanager
    def session(self, images: Tensor, seed: int = 0) -> Iterator["Classifier"]:
        """Eval mode and a search network while the context lasts; everything restored at its end.

        Args:
            images: some clean images `[n, *S]` in [0, 1], to choose sizes and to compare the folded copy with.
            seed: of torch's global generator inside the context, for models that draw from it.
        """
        with untouched(self.model, seed), torch.inference_mode(mode=False), exact_arithmetic(self.device):
            small = images[0].numel() <= _SMALL
            self.shapes = self._sizes(64 if small else 16, images[0].shape)
            self._seed = seed
            self.randomized = randomness.differ(lambda: self._raw(images[:_LOOKED_AT]), seed)
            if self.randomized and self.smoothing is not None:
                raise UserError(
                    f"{self.name} answers by chance already, and only a network that repeats its answers is smoothed; "
                    "switch its own randomness off, or evaluate it without smoothing."
                )
            randomness.reseed(seed)
            self._prepare(images[: self.shapes.reference])
            try:
                yield self
            finally:
                self._search = None

    def judge(self, points: Tensor) -> Tensor:
        """`[n, K]` scores of the unmodified model at points `[n, *S]` in [0, 1], which `decided` reads.

        They are its fp32 logits; of a randomized model (`draws.voted`) or a smoothed one (`smoothing.judged`) votes.
        """
        if self.smoothing is not None:
            return smoothing.judged(self.logits, points, self.smoothing, self._seed, self._at_once).float()
        if self.randomized:
            return torch.stack([self._vote(point) for point in points])
        return self.logits(points)

    def judge_all(self, points: Tensor) -> Tensor:
        """`[N, K]` the same of any number of points, some at a time; on the CPU."""
        return torch.cat([self.judge(part) for part in torch.split(points, _JUDGED_AT_ONCE)]).cpu()

    def decided(self, scores: Tensor, tests: int = 1) -> Tensor:
        """`[n]` int64 classes that the scores speak for; of a smoothed model -1 where too few copies agree.

        Args:
            scores: `[n, K]` of `judge`.
            tests: how many points of an image may be judged, so that all verdicts together keep to `alpha`.
        """
        if self.smoothing is None:
            return scores.argmax(1)
        return smoothing.predicted(scores, self.smoothing.alpha / tests)

    def poll(self, images: Tensor, numbers: Sequence[int]) -> smoothing.Poll:
        """The votes of a smoothed model's noisy copies of clean images, in the image's own noise."""
        assert self.smoothing is not None
        names = torch.tensor(list(numbers), device=images.device)
        return smoothing.poll(self.logits, images, names, self.smoothing, self._seed, self._at_once)

    def logits(self, points: Tensor) -> Tensor:
        """fp32 logits `[n, K]` of the unmodified network, asked once per point; in parts if memory is short."""
        logits = self._judged(points)
        if logits is not None:
            return logits
        if len(points) == 1:
            raise UserError("The model does not fit into memory even for a single image; use another --device.")
        torch.cuda.empty_cache()
        first, second = points[: len(points) // 2], points[len(points) // 2 :]
        return torch.cat([self.logits(first), self.logits(second)])

    def _judged(self, points: Tensor) -> Tensor | None:
        size = self._shapes.fit(len(points), self._shapes.reference, "judge")
        filled = points.index_select(0, padded(torch.arange(len(points), device=points.device), size))

        def ask(rows: Tensor) -> tuple[Tensor, ...]:
            return (self._raw(filled.index_select(0, rows)),)

        try:
            return self._shapes.answer(ask, size, "judge", points.device)[0][: len(points)]
        except torch.OutOfMemoryError:
            return None

    @torch.no_grad()
    def _raw(self, points: Tensor) -> Tensor:
        self.passes.forwards += len(points)
        return logits_of(self.model(self.fed(points))).float()

    def _vote(self, point: Tensor) -> Tensor:
        # The same draws for every point: a verdict then depends on the point alone.
        randomness.reseed(self._seed)
        copies = point.unsqueeze(0).expand(self.draws, *point.shape)
        return randomness.voted(torch.cat([self._raw(part) for part in torch.split(copies, self._shapes.reference)]))

    @property
    def network(self) -> nn.Module:
        """The network whose layers are meant when one is named."""
        return network_in(self.model)

    @property
    def answers(self) -> int:
        """Passes of one image per query: the draws of a randomized or smoothed model, else one."""
        by_chance = self.randomized or self.smoothing is not None
        return (DRAWS if self.eot is None else self.eot) if by_chance else 1

    @property
    def verdicts(self) -> int:
        """Passes of one image per verdict, likewise."""
        if self.smoothing is not None:
            return self.smoothing.judges
        return self.draws if self.randomized else 1

    def prepared(self, attack: Attack, images: Tensor) -> Attack:
        """`attack` as it can be run on this model: one that reads a layer is told the shape of its output."""
        if not isinstance(attack, FeatureAttack):
            return attack
        if self.smoothing is not None:
            copies.check_askable(attack)
        layer = attack.layer_in(self.network)
        with Trace(self.network, [layer]) as trace:
            self._raw(images[:2])
        return attack.at(tuple(trace[layer].output.shape[1:]))

    def ask(self, attack: Attack, state: State) -> Seen:
        """What `attack` may see of the model at `state.query`, row by row."""
        if self.smoothing is not None:
            seen = self._through_noise(attack, state)
        elif self.randomized:
            answer = partial(self._answer, attack)
            seen = randomness.averaged(answer, state, self.answers, self._shapes.reference)
        else:
            seen = self._asked(attack, state)
        return Seen(*seen) if len(seen) == 4 else FeatureSeen(*seen)

    def _asked(self, attack: Attack, state: State) -> tuple[Tensor, ...]:
        def ask(rows: Tensor) -> tuple[Tensor, ...]:
            # A tile is never as long as the state, so as many rows are all of them, and need no copy.
            return self._answer(attack, state if len(rows) == len(state) else state.take(rows))

        kind = f"{attack.sees} {type(attack).__name__}" if self._looks_inside(attack) else attack.sees
        return self._shapes.answer(ask, len(state), kind, state.query.device)

    def _answer(self, attack: Attack, state: State) -> tuple[Tensor, ...]:
        forward = partial(self._searched, inside=self._looks_inside(attack))
        if self.smoothing is None:
            self.passes.backwards += len(state) * (attack.sees == "gradients")
            return answered(attack, state, forward, self.network, partial(self._hooks, attack, state))
        count = self.answers
        self.passes.backwards += count * len(state) * (attack.sees == "gradients")
        return answered(
            attack, state, copies.smoothed(forward, state, self.smoothing.sigma, count), self.network,
            partial(self._hooks, attack, copies.repeated(state, count)), partial(copies.leading, count=count),
        )  # fmt: skip

    def _through_noise(self, attack: Attack, state: State) -> tuple[Tensor, ...]:
        """The answer in tiles of as many rows as together have the usual number of copies."""

        def ask(rows: Tensor) -> tuple[Tensor, ...]:
            return self._answer(attack, state.take(rows))

        everything = torch.arange(len(state), device=state.query.device)
        return tiled(ask, everything, max(1, self._at_once // self.answers), filled=self._shapes.exact)

    def place(self, images: Tensor) -> Tensor:
        """Images of the caller's range, moved to the model's device and type and scaled to [0, 1]."""
        low, high = self.bounds
        images = self.moved(images)
        return images if self.bounds == (0, 1) else ((images - low) / (high - low)).clamp(0, 1)

    def moved(self, points: Tensor) -> Tensor:
        """Points in [0, 1] on the model's device."""
        # Never coarser than fp32, whatever the weights are: a rounded point would leave the ball.
        return points.to(self.device, torch.float64 if self.dtype == torch.float64 else torch.float32)

    def fed(self, points: Tensor, layout: torch.memory_format = torch.preserve_format) -> Tensor:
        """What the model itself is given for points in [0, 1]: a copy in its own range and type."""
        low, high = self.bounds
        # A copy: models may write into their input, and the point must not change under the attack.
        points = points.clone(memory_format=layout) if self.bounds == (0, 1) else low + (high - low) * points
        points = points.to(memory_format=layout)
        return points if isinstance(self.model, Normalised) else points.to(self.dtype)

    def _sizes(self, reference: int, shape: torch.Size) -> Shapes:
        exact, normalised = self.device.type == "cpu", isinstance(self.model, Normalised)
        if self.bpda:  # another function in a layer's place would need a proof of its own
            return Shapes(reference, exact)
        return Shapes.of(
            self.network, reference, exact, shape, self.bounds == (0, 1), normalised, self.fold, self.channels_last,
            self.compile, self.bf16, self.probabilities,
        )  # fmt: skip

    @property
    def _shapes(self) -> Shapes:
        assert self.shapes is not None, "a query outside of session()"
        return self.shapes

    @property
    def _at_once(self) -> int:
        """Noisy copies in flight."""
        return self._shapes.reference if self._shapes.exact else 8 * self._shapes.reference

    def _searched(self, query: Tensor, inside: bool) -> Tensor:
        assert self._search is not None, "a query outside of session()"
        self.passes.forwards += len(query)
        if inside or not self._spares or not query.requires_grad:
            points = self.fed(query, torch.channels_last if self._last and not inside else torch.preserve_format)
        else:
            points = query  # a write would not go unseen: autograd refuses one into what it differentiates in
        with torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext():
            logits = logits_of(self.model(points) if inside else self._search(points))
        # Losses in bf16 lose up to a tenth of all verdicts; only the network itself runs in it.
        logits = logits.to(query.dtype)
        return logits.clamp(min=torch.finfo(logits.dtype).tiny).log() if self.probabilities else logits

    def _looks_inside(self, attack: Attack) -> bool:
        """Whether the network is asked under hooks: then it is the caller's own, unfolded and uncompiled."""
        return isinstance(attack, (HookedAttack, FeatureAttack)) or (bool(self.bpda) and attack.sees == "gradients")

    def _hooks(self, attack: Attack, state: State) -> ExitStack:
        stack = ExitStack()
        try:
            for layer, stand_in in self.bpda.items():
                stack.enter_context(bpda(self.network, layer, stand_in))
            if isinstance(attack, HookedAttack):
                stack.enter_context(attack.hooks(self.network, state))
        except BaseException:
            stack.close()
            raise
        return stack

    def _prepare(self, images: Tensor) -> None:
        network = folded(self.model) if self.fold and not self.randomized else None
        if network is not None and not self._agrees(network, images):
            network = None
        self.folded = network is not None
        self._last = images.dim() == 4 and not hooked(self.model) and self._pays(images)
        if self._last:
            network = network if network is not None else _copied(self.model)
            self._last = network is not None
        if self._last and network is not None:
            network = network.to(memory_format=torch.channels_last)
        network = network if network is not None else self.model
        self._spares = not self._last and self._leaves_alone(network, images[:_LOOKED_AT])
        self._search = torch.compile(network) if self.compile else network

    def _pays(self, images: Tensor) -> bool:
        if self.channels_last is not None:
            return self.channels_last
        # Measured on a CPU: 10 to 30 % faster with 32 channels and more, 6 % slower with 16, slower on 8 x 8 images.
        channels = [module.out_channels for module in self.model.modules() if isinstance(module, nn.Conv2d)]
        return self.device.type == "cpu" and max(channels, default=0) >= 32 and images[0, 0].numel() >= 256

    @torch.no_grad()
    def _leaves_alone(self, network: nn.Module, images: Tensor) -> bool:
        """Whether a network takes points as they are and writes nothing into them."""
        given, same_range = self.fed(images), self.bounds == (0, 1)
        if hooked(network) or given.dtype != images.dtype or not same_range:
            return False
        network(given)
        self.passes.forwards += len(images)
        # The count of writes, too: one that changes nothing here may change something elsewhere.
        return given._version == 0 and torch.equal(given, images)

    @torch.no_grad()
    def _agrees(self, network: nn.Module, images: Tensor) -> bool:
        self.passes.forwards += 2 * len(images)
        try:
            mine, copied = (logits_of(net(self.fed(images))).float() for net in (self.model, network))
        except UserError:
            raise
        except Exception:
            # A trace can hold on to the caller's tensors or control flow; then the original is searched.
            return False
        return bool((mine - copied).abs().max() <= 1e-3 * (mine.max() - mine.min()).clamp(min=1))


def _copied(model: nn.Module) -> nn.Module | None:
    try:
        return copy.deepcopy(model)
    except Exception:
        # Modules may hold what cannot be copied (locks, tensors of a graph); the layout is then left alone.
        return None
