"""Whether the automatic checks work: each broken defense sets off its own check, and an honest network none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

from robustkit.checks.register import RULES
from robustkit.data import load_dataset
from robustkit.evaluation.evaluation import evaluate

from .base import base_network
from .zoo import build

HONEST = "honest"
_IMAGES = 60
_EPS = "0.1"
_STUCK = "an attack that follows this gradient does not move"
_MORE = "other attacks break images that this attack did not break"


@dataclass(frozen=True)
class SelftestCase:
    """One network, and what the checks should say about it.

    `overlaps` are the checks that may fail with its own, each with the reason: they look at what follows from the same
    cause.
    """

    name: str  # of a masked defense, or "honest"
    attack: str  # that it is evaluated with
    check: str  # its own; empty for none
    overlaps: Mapping[str, str] = field(default_factory=dict)
    images: int = _IMAGES


_NO_GRADIENT = {
    "gradients_mislead": "a gradient of zero predicts nothing", "unbounded": _STUCK, "gradient_direction": _STUCK,
    "random_search": _STUCK,
}  # fmt: skip
_OTHER_SEARCH = {"longer_search": _MORE, "other_targets": _MORE, "random_search": _MORE}

CASES = (
    SelftestCase(HONEST, "default", ""),
    SelftestCase(
        "quantised",
        "pgd:steps=40",
        "zero_gradients",
        _NO_GRADIENT
        | {
            "straight_through": "gradients straight through its steps break images",
            "unstable_loss": "images lie on the edges of its steps",
        },
    ),
    # Attacks with gradients are refused where no graph leads to the image, so one without is evaluated.
    SelftestCase("binarised", "square:queries=1000", "gradient_direction"),
    SelftestCase("detached", "square:queries=1000", "gradient_direction"),
    SelftestCase("zeroed", "pgd:steps=40", "zero_gradients", _NO_GRADIENT),
    SelftestCase(
        "kwta",
        "default",
        "gradients_mislead",
        {"finite_difference": "its logits jump where the k largest values change"},
    ),
    SelftestCase("sigmoid", "pgd:steps=40", "random_search", _OTHER_SEARCH | {"unfinished": "its gradients are tiny"}),
    SelftestCase("softmax", "default", "probabilities", {"gradients_mislead": "the softmax saturates"}),
    SelftestCase("temperature", "pgd:steps=40,loss=ce", "zero_gradients", _OTHER_SEARCH),
    SelftestCase("noisy", "pgd:steps=10", "randomized", images=12),
    SelftestCase("smoothed", "pgd:steps=40", "other_targets", {"random_search": _MORE, "unfinished": _MORE}),
)


@dataclass(frozen=True)
class SelftestResult:
    """What the checks said about one network."""

    case: SelftestCase
    failed: tuple[str, ...]  # names of the checks that failed, in the order of the register

    @property
    def unexpected(self) -> tuple[str, ...]:
        """Checks that failed and should not have."""
        return tuple(name for name in self.failed if name != self.case.check and name not in self.case.overlaps)

    @property
    def holds(self) -> bool:
        """Whether the own check failed, and no other but those that may."""
        return not self.unexpected and (not self.case.check or self.case.check in self.failed)


def selftest(seed: int = 0) -> Iterator[SelftestResult]:
    """Evaluate each network on digits with its attack and the standard checks, one after the other.

    Args:
        seed: of the networks and of all noise.
    """
    network = base_network(seed)
    for case in CASES:
        yield SelftestResult(
            case, failed_checks(case, network if case.name == HONEST else build(case.name, network), seed)
        )


def failed_checks(case: SelftestCase, model: nn.Module, seed: int) -> tuple[str, ...]:
    """The names of the checks that fail on a case's network, in the order of the register."""
    images = load_dataset("digits").batch(range(case.images))
    run = evaluate(model, dataset=images, attacks=case.attack, eps=_EPS, checks="standard", seed=seed, progress=False)
    names = {check.name for check in run.checks if check.alarming}
    return tuple(rule.name for rule in RULES if rule.name in names)
