"""An attack under check: the attack itself, and the small networks that it is tried on."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NoReturn

from torch import Tensor

from robustkit.engine.attack_tensors import Attacked
from robustkit.engine.attack_tensors import attack as attack_tensors
from robustkit.errors import UserError
from robustkit.primitives.protocol import Attack

from .problems import EPS, Problem, problem

GREY, COLOR = (1, 8, 8), (3, 8, 8)  # shapes of most checks' images
USUAL = 8  # images of the usual run: enough for broken and for robust ones
# Budgets for hyper-parameters of these names: no guarantee needs more steps.
_BUDGET = {
    "steps": 4, "queries": 10, "guide_steps": 2, "ensemble": 2, "searches": 6, "samples": 3, "directions": 2,
    "copies": 2, "scales": 2, "angles": 3, "shifts": 2,
}  # fmt: skip
_LABELS_ONLY = {"queries": 40}  # the first error, the way back to the boundary and some turns of the search


@dataclass(frozen=True)
class AttackUnderTest:
    """An attack with a small budget, and the networks that have the layers it needs.

    Args:
        attack: its norm is kept; its radius is replaced by one that breaks some images of the networks and not all.
        flat: network for inputs of any shape: "mlp", "residual mlp" or "attentive".
        spatial: network for images: "cnn", "residual cnn" or "attentive".
        radius: in place of the usual one, for an attack that breaks no image there.
    """

    attack: Attack
    flat: str = "mlp"
    spatial: str = "cnn"
    radius: float | None = None

    def made(self, eps: float | None = None, **values: Any) -> Attack:
        """The attack with other values."""
        names = {field.name for field in fields(self.attack)}
        budgets = _BUDGET | (_LABELS_ONLY if self.attack.seeks_nearest and self.attack.sees == "labels" else {})
        budget = {name: min(most, getattr(self.attack, name)) for name, most in budgets.items() if name in names}
        return replace(self.attack, eps=self.eps if eps is None else eps, **{**budget, **values})

    @property
    def eps(self) -> float:
        """The radius of the checks."""
        return EPS[self.attack.ball.norm] if self.radius is None else self.radius

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of most checks' images: grey ones, or colours where the threat needs them."""
        return GREY if self.takes(GREY) else COLOR

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether the attack's threat is made for inputs of this shape."""
        try:
            self.attack.ball.check(shape)
        except UserError:
            return False
        return True

    def has(self, hyper_parameter: str) -> bool:
        """Whether the attack has a hyper-parameter of that name."""
        return hyper_parameter in {field.name for field in fields(self.attack)}

    def images(self, *shape: int, count: int = 4, classes: int = 4) -> Problem:
        """A fresh network for images and images that it classifies correctly."""
        return problem(self.spatial, *(shape or self.shape), count=count, classes=classes)

    def inputs(self, *shape: int, count: int = 2) -> Problem:
        """The same for inputs of any shape."""
        return problem(self.flat, *shape, count=count)

    @cached_property
    def usual(self) -> Attacked:
        """The run that several checks look at."""
        return self.run()

    def run(self, batch_size: int = 64, seed: int = 0, count: int = USUAL, eps: float | None = None) -> Attacked:
        """The usual run on its first images, in another batch size, with another seed or in another radius."""
        made, attack = self.images(count=USUAL), self.made(eps, restarts=2)
        return attack_tensors(made.model, made.x[:count], made.y[:count], attack, batch_size=batch_size, seed=seed)


def confirm(holds: bool | Tensor, sentence: str) -> None:
    """Raise an AssertionError with the sentence unless it holds."""
    if not bool(holds):
        fail(sentence)


def fail(sentence: str) -> NoReturn:
    """Raise an AssertionError."""
    raise AssertionError(sentence)
