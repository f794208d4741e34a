"""The search network: what attacks query. It may be faster than the model it stands for, and nothing is judged by it.

Where the model can be traced, BatchNorm is folded into convolutions, and convolutions of small maps are products with
matrices; channels last where that pays, TF32, bf16 or compiled on request. It is the caller's own module instead under
hooks that name layers (surrogate gradients, most attacks with hooks of their own, attacks on a layer), and for attacks
with gradients where the traced copy has others than the model, or where these pass straight through operations that
stop them. Under other hooks it is not compiled.
"""

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, fx, nn

from robustkit.classifier import rejection
from robustkit.classifier.answers import Forward, answered, likeliest
from robustkit.classifier.batch_sizes import made_up
from robustkit.classifier.folding import folded, hooked, switches_gradients
from robustkit.classifier.generators import generator_states, reseed
from robustkit.classifier.isolation import products
from robustkit.classifier.logit_sizes import sizes
from robustkit.classifier.logits import logits_of, of_probabilities
from robustkit.classifier.reference import Reference
from robustkit.classifier.same_gradients import same_gradients
from robustkit.classifier.small_maps import as_matrices
from robustkit.classifier.surrogate_gradients import SurrogateGradient
from robustkit.errors import NoInputGradientError, UserError
from robustkit.models.preprocessing import network_in
from robustkit.nethook import bpda, straight_through
from robustkit.primitives.perceptual import PerceptualAttack
from robustkit.primitives.protocol import Attack, FeatureAttack, HookedAttack, MultiGradientAttack, Seen, State

_PROBED = 4  # images that show whether a network writes into its input, and whether gradients agree
_SEEDS = 8  # of a randomized model, at which a copy is compared with it


@dataclass(frozen=True)
class SearchOptions:
    """How the search network is made, each option off unless given; `Classifier` describes them."""

    fold: bool = False
    channels_last: bool | None = False
    compile: bool = False
    cuda_graphs: bool = False
    bf16: bool = False
    tf32: bool = False
    bpda: Mapping[str, SurrogateGradient | None] = field(default_factory=dict)
    probabilities: bool = False
    straight_through: bool = False
    rejects: bool = False


class Search:
    """The network that attacks query.

    Args:
        reference: the model it stands for.
        options: how it is made.
        images: clean images `[n, *S]` in [0, 1], to compare copies of the network with the original.
        draws: whether the model is randomized, so that a copy of it must draw the same numbers.
    """

    def __init__(self, reference: Reference, options: SearchOptions, images: Tensor, *, draws: bool) -> None:
        self.reference, self.options = reference, options
        self.input, self.passes = reference.input, reference.passes
        self.network = network_in(reference.model)
        # Each seed makes another network of a randomized model, so some images are compared at several.
        self._seeds = range(_SEEDS if draws else 1)
        folded_copy = self._folded(images[:_PROBED] if draws else images) if options.fold else None
        self.folded = folded_copy is not None
        self._own_gradients = folded_copy is None or self._has_own_gradients(folded_copy, images[:_PROBED])
        copied: nn.Module | None = folded_copy
        self._channels_last = images.dim() == 4 and not hooked(reference.model) and self._channels_last_pays(images)
        if self._channels_last:
            copied = copied if copied is not None else _copied(reference.model)
            self._channels_last = copied is not None
            copied = copied if copied is None else copied.to(memory_format=torch.channels_last)
        searched = copied if copied is not None else reference.model
        self._takes_queries_as_they_are = not self._channels_last and self._leaves_input_alone(
            searched, images[:_PROBED]
        )
        self._eager = searched
        mode = "reduce-overhead" if options.cuda_graphs else None
        self.rejection_scale = self._rejection_scale(images) if options.rejects else 1.0
        self._searched: Callable[[Tensor], object] = torch.compile(searched, mode=mode) if options.compile else searched

    def kind_of(self, attack: Attack, most: int | None = None) -> str:
        """What a batch size must be proven for: the same queries, asked in the same way, for so many gradients."""
        several = isinstance(attack, MultiGradientAttack) and (most is None or most > 1)
        own = self._names_layers(attack) or isinstance(attack, HookedAttack) or several
        sees = "logits" if most == 0 else attack.sees
        kind = f"{sees} {type(attack).__name__}" if own else sees
        if isinstance(attack, PerceptualAttack) and attack.features is not None:
            return f"{kind} {attack.features.label}"
        return f"{kind} {attack.ball.norm}" if attack.ball.renders else kind

    def answer(
        self,
        attack: Attack,
        state: State,
        *,
        forward_of: Callable[[Forward], Forward] = lambda forward: forward,
        rows: State | None = None,
        label_of: Callable[[Tensor], Tensor] = likeliest,
        most: int | None = None,
        objective_of: Callable[[Tensor, State], Tensor] | None = None,
    ) -> Seen:
        """What an attack may see of the network at `state.query`.

        Args:
            attack: who asks.
            state: its rows `[B]`.
            forward_of: turns the network's forward into the one that is differentiated, for smoothed models.
            rows: the rows as they pass the network, where they are not those of `state`.
            label_of: classes `[B]` that logits `[B, K]` speak for.
            most: how many objectives are differentiated; None for all.
            objective_of: what the attack maximizes, of logits and rows, in place of its own objective.
        """
        rows = state if rows is None else rows
        forward = forward_of(partial(self._logits, attack))
        if attack.mask is not None:
            forward = partial(_through_mask, forward, attack, state)
        if self.options.rejects:
            forward = partial(_with_rejection, forward, state, self.rejection_scale)
        objective = None if objective_of is None else lambda logits: objective_of(logits, state)
        # The backward pass, too, and it lies outside of `_logits`.
        tf32 = self.options.tf32 and not attack.in_full_precision
        with products(self.input.device, tf32=True) if tf32 else nullcontext():
            seen = answered(
                attack, state, forward, self.network, partial(self._hooks, attack, rows), label_of, objective, most
            )
        self.passes.backwards += len(rows) * seen.backwards
        # The next replay writes into the same memory.
        return replace(seen, grad=seen.grad.clone()) if self._replays(attack) and seen.backwards else seen

    def _logits(self, attack: Attack, query: Tensor) -> Tensor:
        self.passes.forwards += len(query)
        own = self._asks_the_model(attack)
        if own or not self._takes_queries_as_they_are or not query.requires_grad:
            last = self._channels_last and not own
            points = self.input.fed(query, torch.channels_last if last else torch.preserve_format)
        else:
            points = query  # autograd refuses to write into what it differentiates in
        options, replays = self.options, self._replays(attack)
        if replays:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        bf16 = options.bf16 and not attack.in_full_precision
        asked = self._asked_by(attack)
        compiled = options.compile and asked is self._searched
        with (
            torch.autocast(self.input.device.type, torch.bfloat16) if bf16 else nullcontext(),
            torch.compiler.set_stance("default") if compiled else nullcontext(),
            straight_through(len(query)) if self._passes_straight_through(attack) else nullcontext(),
        ):
            output = asked(points)
        logits = logits_of(output, points)
        if query.requires_grad and logits.is_inference():
            raise NoInputGradientError(
                "The model answers in torch.inference_mode, through which no gradient passes, also with "
                "straight_through; remove it from the model's forward, or use an attack without gradients, such as "
                "square."
            )
        # Losses in bf16 lose up to a tenth of all verdicts; only the network itself runs in it.
        logits = logits.clone().to(query.dtype) if replays else logits.to(query.dtype)
        return of_probabilities(logits) if options.probabilities else logits

    def _asked_by(self, attack: Attack) -> Callable[[Tensor], object]:
        if self._asks_the_model(attack):
            return self.reference.model
        # The backward pass of compiled code frees what a second one through the same graph would need.
        several = isinstance(attack, MultiGradientAttack)
        return self._eager if isinstance(attack, HookedAttack) or several else self._searched

    def _replays(self, attack: Attack) -> bool:
        """Whether the answers lie in the memory of a CUDA graph."""
        return self.options.cuda_graphs and self._asked_by(attack) is self._searched

    def _asks_the_model(self, attack: Attack) -> bool:
        """Whether the caller's own module is queried: layers of it are meant, or a copy has other gradients."""
        own = attack.sees == "gradients" and not self._own_gradients
        return own or self._passes_straight_through(attack) or self._names_layers(attack)

    def _passes_straight_through(self, attack: Attack) -> bool:
        return self.options.straight_through and attack.sees == "gradients"

    def _names_layers(self, attack: Attack) -> bool:
        """Whether layers of the caller's own module are meant."""
        surrogate_gradients = bool(self.options.bpda) and attack.sees == "gradients"
        by_hooks = isinstance(attack, HookedAttack) and attack.names_layers
        return by_hooks or isinstance(attack, (FeatureAttack, PerceptualAttack)) or surrogate_gradients

    def _hooks(self, attack: Attack, state: State) -> ExitStack:
        stack = ExitStack()
        try:
            for layer, surrogate_gradient in self.options.bpda.items():
                stack.enter_context(bpda(self.network, layer, surrogate_gradient))
            if isinstance(attack, HookedAttack):
                stack.enter_context(attack.hooks(self.network, state))
        except BaseException:
            stack.close()
            raise
        return stack

    def _folded(self, images: Tensor) -> fx.GraphModule | None:
        copied = folded(self.reference.model)
        if copied is None:
            return None
        if images.device.type == "cpu" and not self.options.compile:
            as_matrices(copied)
        return copied if all(self._agrees(copied, images, seed) for seed in self._seeds) else None

    def _channels_last_pays(self, images: Tensor) -> bool:
        if self.options.channels_last is not None:
            return self.options.channels_last
        if self.input.device.type != "cpu":
            # Measured on an H100: faster in bf16 and TF32; in fp32, and with BatchNorm left as it is, slower.
            return (self.options.bf16 or self.options.tf32) and self.folded
        # Measured on a CPU: 10 to 30 % faster with 32 channels and more, 6 % slower with 16, slower on 8 x 8 images.
        convolutions = [module for module in self.reference.model.modules() if isinstance(module, nn.Conv2d)]
        widest = max((module.out_channels for module in convolutions), default=0)
        return widest >= 32 and images[0, 0].numel() >= 256

    @torch.no_grad()
    def _leaves_input_alone(self, network: nn.Module, images: Tensor) -> bool:
        """Whether a network takes points as they are and writes nothing into them."""
        given = self.input.fed(images)
        if hooked(network) or given.dtype != images.dtype or not self.input.unit_range:
            return False
        network(given)
        self.passes.forwards += len(images)
        # The version counts writes: one that changes nothing here may change something elsewhere.
        return given._version == 0 and torch.equal(given, images)

    @torch.no_grad()
    def _agrees(self, copied: nn.Module, images: Tensor, seed: int) -> bool:
        """Whether a folded copy answers as the original does, up to rounding, and draws as many random numbers."""
        self.passes.forwards += 2 * len(images)
        try:
            original = self._seeded(self.reference.model, seed, images).float()
            states = generator_states()
            copy_ = self._seeded(copied, seed, images).float()
        except UserError:
            raise
        except Exception:
            # A trace can hold on to the caller's tensors or control flow; then the original is searched.
            return False
        close = (original - copy_).abs() <= 1e-3 * sizes(original).clamp(min=1)
        # A number that was drawn while the model was traced stays the same in the copy, which draws fewer.
        return bool(close.all()) and generator_states() == states

    def _has_own_gradients(self, copied: fx.GraphModule, images: Tensor) -> bool:
        """Whether a folded copy has the gradients of the original, up to rounding."""
        # Of some images these may be equal all the same: where an estimator acts on others.
        if switches_gradients(copied):
            return False
        self.passes.forwards += 2 * len(images) * len(self._seeds)
        self.passes.backwards += 2 * len(images) * len(self._seeds)
        try:
            for seed in self._seeds:
                original, copy_ = (partial(self._seeded, each, seed) for each in (self.reference.model, copied))
                if not same_gradients(original, copy_, images):
                    return False
        except Exception:
            # Of the caller's own backward pass: an attack that needs it meets it again, and others do not.
            return False
        return True

    def _rejection_scale(self, images: Tensor) -> float:
        self.passes.forwards += _PROBED
        self.passes.backwards += 2 * _PROBED
        try:
            return rejection.scale_of(self._differentiable, made_up(torch.arange(_PROBED, device="cpu"), images))
        except Exception:
            # Of the caller's own forward or backward pass: an attack that needs it meets it again.
            return 1.0

    def _differentiable(self, images: Tensor) -> Tensor:
        logits = logits_of(self.reference.model(self.input.fed(images)), images)
        return of_probabilities(logits) if self.options.probabilities else logits

    def _seeded(self, network: nn.Module, seed: int, images: Tensor) -> Tensor:
        reseed(seed)
        return logits_of(network(self.input.fed(images)), images)


def _through_mask(forward: Forward, attack: Attack, state: State, query: Tensor) -> Tensor:
    return forward(attack.whole(state.trial, query))


def _with_rejection(forward: Forward, state: State, scale: float, query: Tensor) -> Tensor:
    return rejection.for_attacker(forward(query), state.trial.y, scale)


def _copied(model: nn.Module) -> nn.Module | None:
    try:
        return copy.deepcopy(model)
    except Exception:
        # Modules may hold what cannot be copied (locks, tensors of a graph); the layout is then left alone.
        return None
