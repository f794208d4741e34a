"""A model described for attacks and verdicts: a frozen value. `session()` makes it ready to be queried.

Two networks stand behind a session. The *reference* is the caller's own module in fp32, or float64 if its weights are;
verdicts come from it alone. The *search* network answers an attack's queries and may be faster. This is the only way in
which a query of an attack reaches a model.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from robustkit import limits
from robustkit.classifier.access import black_box_in, is_metered, only_labels, require_options
from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.classifier.generators import reseed
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.isolation import answering
from robustkit.classifier.metered import Metered
from robustkit.classifier.oracle import Oracle, Plain
from robustkit.classifier.randomized import Randomized
from robustkit.classifier.reference import PassCount, Reference
from robustkit.classifier.repeatability import Repeatability, repeatability
from robustkit.classifier.search import Search, SearchOptions
from robustkit.classifier.session import Session
from robustkit.classifier.shared_draws import rows_share_draws
from robustkit.classifier.smoothed import Smoothed
from robustkit.classifier.smoothing import Smoothing
from robustkit.classifier.surrogate_gradients import SurrogateGradient
from robustkit.errors import UserError
from robustkit.host.arguments import check_fields
from robustkit.host.notebook import Summarised
from robustkit.host.text import as_name
from robustkit.models.preprocessing import (
    Normalised,
    network_in,
    normalisation_of,
    placement,
    require_normalisable,
    require_values,
)
from robustkit.nethook import unwrap
from robustkit.nethook.names import has_forward

DRAWS_PER_QUERY = 20  # of a randomized or smoothed model, unless `eot` says otherwise; AutoAttack's number
DRAWS_PER_VERDICT = 1024  # at most; with them a majority of 58 % is significant
_FEWEST_DRAWS = 64  # with fewer no verdict after some points of the same image could ever be significant
_SMALL = 3 * 64 * 64  # values per image up to which a tile has 64 images
_PROBED = 4  # images queried again and again, to see whether the model repeats its answers
_PICTURES_AT_ONCE = 8  # in flight to a server: fewer images are half done when a run stops
_COPIED = 2  # images queried in copies, to see whether the rows of a batch share random numbers


@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Summarised):
    """A model and how it is queried. The model comes back from every session as it was.

    Args:
        model: takes images in `bounds` and returns logits `[B, K]` as a tensor, tuple, dict or object with `.logits`.
        bounds: the range of valid pixel values that the model expects.
        mean, std: per-channel normalisation to apply inside, if the model itself does not.
        name: how reports call it; by default after the model's `name` or class.
        fold: search with BatchNorm folded where a traced copy has the logits of the model, and for attacks with
            gradients its input gradients.
        channels_last: memory layout of the search; None chooses it where it was measured to pay.
        compile: search with `torch.compile`.
        cuda_graphs: search with `torch.compile(mode="reduce-overhead")`, which replays CUDA graphs on a GPU.
        bf16: search under bf16 autocast; verdicts stay fp32.
        tf32: search in TF32, which NVIDIA GPUs from Ampere on have, and others ignore; verdicts stay fp32.
        bpda: layers by name (or glob), each with the differentiable function whose gradient the search takes in its
            place, None for the identity. Forward values stay. Athalye et al. 2018, arXiv:1802.00420, section 4.1.
        eot: draws of a randomized or smoothed model averaged per query; None takes 20.
        draws: the most answers of a randomized model per verdict; it takes as many as it needs, from 32 on.
        probabilities: the model returns probabilities; the search climbs on their logarithms.
        straight_through: the search follows gradients through rounding, `detach`, `no_grad` and lookups by `argmax`, as
            `robustkit.nethook.straight_through` does. Forward values stay.
        smoothing: attack and judge the class that the model predicts most often under this noise.
        rejects: the model's last output is the logit of "rejected", as of a detector; the others are its classes. An
            adversarial example then is an image that is misclassified and not rejected, and a rejected clean image
            counts as wrong.

    Raises:
        UserError: bounds, normalisation or draws are out of range, or a model that rejects is to be smoothed.
    """

    model: nn.Module  # with the normalisation inside
    _: KW_ONLY
    bounds: tuple[float, float] = (0.0, 1.0)
    mean: InitVar[Sequence[float] | None] = None
    std: InitVar[Sequence[float] | None] = None
    name: str = ""
    fold: bool = True
    channels_last: bool | None = None
    compile: bool = False
    cuda_graphs: bool = False
    bf16: bool = False
    tf32: bool = False
    bpda: Mapping[str, SurrogateGradient | None] = field(default_factory=dict)
    eot: int | None = None
    draws: int = DRAWS_PER_VERDICT
    probabilities: bool = False
    straight_through: bool = False
    smoothing: Smoothing | None = None
    rejects: bool = False

    def __post_init__(self, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        object.__setattr__(self, "bpda", self.bpda or {})
        if not isinstance(self.model, nn.Module):
            raise UserError(
                f"A model is a torch.nn.Module, not {type(self.model).__name__}; load a name with "
                "robustkit.load_model, and wrap a function of images as robustkit.BlackBox(function)."
            )
        if not has_forward(self.model) and "forward" not in vars(self.model):
            raise UserError(f"A {type(self.model).__name__} has no forward of its own; give the model that uses it.")
        check_fields(self)
        require_usable_weights(self.model)
        if not all(function is None or callable(function) for function in self.bpda.values()):
            raise UserError("bpda gives each layer a function of its input, or None for the identity.")
        if not (self.bounds[0] < self.bounds[1] and math.isfinite(self.bounds[1] - self.bounds[0])):
            raise UserError(f"bounds must be a lower and a higher value, both finite, not {self.bounds}.")
        normalisation = normalisation_of(mean, std)
        if self.bf16 and self.tf32:
            raise UserError("A search is in bf16 or in TF32: leave one of the two out.")
        if self.eot is not None and self.eot < 1:
            raise UserError("eot counts answers of the model per query, so it must be at least 1.")
        if self.draws < _FEWEST_DRAWS:
            raise UserError(f"draws={self.draws} is too few to prove a verdict; allow at least {_FEWEST_DRAWS}.")
        limits.require_at_most("eot, the draws per query,", self.eot or 1, limits.DRAWS_PER_QUERY)
        limits.require_at_most("draws", self.draws, limits.DRAWS)
        object.__setattr__(self, "bpda", dict(self.bpda))
        object.__setattr__(self, "compile", self.compile or self.cuda_graphs)
        if not self.name:
            object.__setattr__(self, "name", _name_of(self.model, self.smoothing))
        object.__setattr__(self, "name", as_name(self.name))
        if normalisation is not None:
            object.__setattr__(self, "model", Normalised(self.model, *normalisation, self.bounds))
        other_gradients = bool(self.bpda) or self.straight_through
        require_options(self.name, self.model, other_gradients, self.smoothing is not None, self.bounds, self.rejects)

    def summary(self) -> dict[str, str]:
        """Its name, its size, and what is special about it."""
        special = {
            "smoothing": "" if self.smoothing is None else f"sigma {self.smoothing.sigma:g}",
            "bpda": ", ".join(self.bpda), "eot": str(self.eot or ""),
            "probabilities": "yes" if self.probabilities else "",
            "straight through": "yes" if self.straight_through else "",
            "rejects": "yes" if self.rejects else "",
        }  # fmt: skip
        weights = sum(each.numel() for each in self.model.parameters())
        return {
            "name": self.name, "network": type(self.network).__name__, "parameters": f"{weights:,}",
            "bounds": f"{self.bounds[0]:g} to {self.bounds[1]:g}", "device": str(self.device),
            **{name: text for name, text in special.items() if text},
        }  # fmt: skip

    @property
    def network(self) -> nn.Module:
        """The network whose layers are meant when one is named."""
        return network_in(self.model)

    def input_format(self) -> InputFormat:
        """The range, device and type of the model's input, read from its weights.

        They may change while no session is open: keep the answer for as long as a session, not longer.

        Raises:
            UserError: the weights have no values.
        """
        require_values(self.model)
        return InputFormat.of(self.model, self.bounds)

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return placement(self.model).device

    def on(self, device: torch.device) -> "Classifier":
        """The same on a device: itself, or with a copy of the model, so that the caller's own stays where it is."""
        if self.device == device:
            return self
        return replace(self, model=copy.deepcopy(self.model).to(device))

    def straight(self) -> "Classifier":
        """The same for attacks with gradients, which pass straight through; these query no other copy of the model."""
        return replace(self, straight_through=True, fold=False, channels_last=False)

    def place(self, images: Tensor) -> Tensor:
        """Images in `bounds`, moved to the model's device and scaled to [0, 1]."""
        return self.input_format().place(images)

    @contextmanager
    def session(self, images: Tensor, seed: int = 0) -> Iterator[Session]:
        """The model in eval mode, ready to be queried while the context lasts; restored at its end.

        Args:
            images: some clean images `[n, *S]` in [0, 1], to choose batch sizes and to compare the folded copy with.
            seed: of the global generators inside the context, for models that draw from them.

        Raises:
            UserError: mean and std do not fit the images, a normalisation layer stays in train mode, the model does not
                repeat its answers after seeding, or a model to be smoothed is randomized.
        """
        require_normalisable(self.model, images[0], self.name)
        given = self.input_format()
        with answering(self.model, given.device, seed):
            tile = 64 if images[0].numel() <= _SMALL else 16
            reference = Reference(self.model, given, self._sizes(given, tile, images[0].shape), PassCount())
            repeats = repeatability(lambda: reference.forward(images[:_PROBED]), seed)
            if repeats.randomized and self.smoothing is not None:
                raise UserError(
                    f"{self.name} is randomized, and only a network that repeats its answers can be smoothed; switch "
                    "its own randomness off, or evaluate it without smoothing."
                )
            if repeats.randomized and self.rejects:
                raise UserError(
                    f"{self.name} is randomized, and only a model that repeats its answers can be judged with a "
                    "rejection; switch its randomness off, or leave out rejects."
                )
            reseed(seed)
            search = Search(reference, self._search_options(), images[:tile], draws=repeats.randomized)
            oracle = self._oracle(reference, search, repeats, images[:_COPIED])
            only = black_box_in(self.model) is not None
            yield Session(self.name, reference, search, oracle, seed, repeats, only, self.rejects)

    def _oracle(self, reference: Reference, search: Search, repeats: Repeatability, images: Tensor) -> Oracle:
        eot = DRAWS_PER_QUERY if self.eot is None else self.eot
        if self.smoothing is not None:
            return Smoothed(reference, search, self.smoothing, eot, repeats.seed)
        if is_metered(self.model):
            return Metered(reference, search)
        if not repeats.randomized:
            return Plain(reference, search, not only_labels(self.model), self.rejects)
        together = 1 if rows_share_draws(reference.forward, images, repeats.seed) else reference.sizes.tile
        return Randomized(reference, search, eot, self.draws, repeats.seed, together)

    def _search_options(self) -> SearchOptions:
        if black_box_in(self.model) is not None:  # there is nothing to fold, to compile or to lay out otherwise
            return SearchOptions(probabilities=self.probabilities)
        return SearchOptions(
            self.fold, self.channels_last, self.compile, self.cuda_graphs, self.bf16, self.tf32, self.bpda,
            self.probabilities, self.straight_through, self.rejects,
        )  # fmt: skip

    def _sizes(self, given: InputFormat, tile: int, shape: torch.Size) -> BatchSizes:
        if is_metered(self.model):
            return BatchSizes(_PICTURES_AT_ONCE, exact=False, compact=True)
        exact = given.device.type == "cpu"
        if self.bpda or self.straight_through:  # other gradients would need a proof of their own
            return BatchSizes(tile, exact, watched=not self.compile)
        return BatchSizes.of(
            self.network, tile, exact, shape, given.unit_range, given.casts, self.fold, self.channels_last,
            self.compile, self.bf16, self.probabilities,
            watched=not self.compile and black_box_in(self.model) is None,
        )  # fmt: skip


def as_classifier(model: nn.Module | Classifier, bounds: tuple[float, float] = (0.0, 1.0)) -> Classifier:
    """The classifier of a module, whose images lie in `bounds`; one that is given has its own."""
    return model if isinstance(model, Classifier) else Classifier(model, bounds=bounds)


def require_usable_weights(model: nn.Module) -> None:
    """Refuse a model with weights of no shape, or without gradients.

    Raises:
        UserError: a layer is lazy, or a weight was made in inference mode.
    """
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(weight):
            raise UserError(f"The weight {name} of a lazy layer has no shape yet; call the model once on images.")
        if weight.is_inference() and weight.numel():
            raise UserError(
                f"The weight {name} was made in torch.inference_mode(), so nothing has a gradient through it; build or "
                "load the model outside of that context."
            )


def _name_of(model: nn.Module, smoothing: Smoothing | None) -> str:
    own = getattr(model, "name", None)
    name = own if isinstance(own, str) and as_name(own) else type(unwrap(model)).__name__.lower()
    return name if smoothing is None else f"{name}-smoothed"
