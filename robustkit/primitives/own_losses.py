"""Losses of the user's own: calls of them, in which each mistake that would weaken an attack is one sentence."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from robustkit.errors import UserError
from robustkit.host.failures import described_error
from robustkit.primitives.rows import finite, version, whole_vectors

_FAULTS: MutableMapping[object, str] = WeakIdKeyDictionary()  # by function, from its first call on
_TRIED = 8  # images, and shifts of their logits
_ROUNDING = 1e-3  # relative; other neighbours change a loss that reads them by far more


@dataclass(eq=False)
class OwnLoss:
    """A function of logits `[B, K]` and int64 classes `[B]` that returns `[B]`.

    Args:
        name: in errors and reports.
        function: the user's.
    """

    name: str
    function: Callable[..., object]
    _examined: bool = False  # at the first call, which takes ten times as long as a later one

    def untargeted(self, logits: Tensor, y: Tensor) -> Tensor:
        """`[B]` the function's values.

        Raises:
            UserError: the function fails, returns what cannot be climbed on, or writes into its arguments.
        """
        if self._examined or torch._C._functorch.is_functorch_wrapped_tensor(logits):
            return self._checked(logits, y)
        value = self._checked(logits, y, thoroughly=True)
        if logits.requires_grad:
            self._require_gradient(logits, value)
        self._examine(logits, y, value)
        self._examined = True
        return value

    def targeted(self, logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """`[B]` the negative of the function's values towards `target`."""
        return -self.untargeted(logits, target)

    @property
    def fault(self) -> str:
        """Why results with this loss mislead, in a sentence; empty where nothing was noticed."""
        try:
            return _FAULTS.get(self.function, "")
        except TypeError:  # an object of a class with __slots__ cannot be remembered
            return ""

    def _checked(self, logits: Tensor, y: Tensor, *, thoroughly: bool = False) -> Tensor:
        """What the function returns, if it can be climbed on."""
        try:
            value = whole_vectors(self._compared if thoroughly else self._unwritten, logits, y)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(
                f"The loss {self.name} fails on logits {list(logits.shape)}: {described_error(error)}."
            ) from error
        if not isinstance(value, Tensor):
            raise UserError(
                f"The loss {self.name} must return a tensor with one number per image, not {type(value).__name__}."
            )
        if value.shape != logits.shape[:1] or not value.is_floating_point():
            kind = f"{list(value.shape)} of {value.dtype}".replace("torch.", "")
            raise UserError(
                f"The loss {self.name} must return one number per image, [{len(logits)}] floats, not {kind}; "
                f"{_remedy(value, logits)}."
            )
        if logits.requires_grad and not value.requires_grad:
            raise self._without_gradient()
        return value

    def _without_gradient(self) -> UserError:
        return UserError(
            f"The loss {self.name} does not depend on the logits as autograd sees it; leave out detach, no_grad, "
            "argmax and comparisons."
        )

    def _require_gradient(self, logits: Tensor, value: Tensor) -> None:
        (grad,) = torch.autograd.grad(value.sum(), logits, retain_graph=True, allow_unused=True)
        if grad is None:
            raise self._without_gradient()
        if not finite(grad) and finite(logits.detach()):
            raise UserError(
                f"The gradient of the loss {self.name} is not finite (NaN or infinite) on finite logits; correct the "
                "loss, for example with clamp(min=1e-12) before log or sqrt."
            )

    def _unwritten(self, logits: Tensor, y: Tensor) -> object:
        # The network's answer and the labels of the attack are these tensors: a write weakens the attack silently.
        before = version(logits), version(y)
        value = self.function(logits, y)
        after = version(logits), version(y)
        if after != before:
            raise self._writes("logits" if after[0] != before[0] else "classes")
        return value

    def _compared(self, logits: Tensor, y: Tensor) -> object:
        # Writes through .data and numpy count in no version.
        copies = logits.detach().clone(), y.clone()
        value = self._unwritten(logits, y)
        for written, copied, after in zip(("logits", "classes"), copies, (logits.detach(), y), strict=True):
            if not torch.allclose(copied, after, 0, 0, equal_nan=True):
                raise self._writes(written)
        return value

    def _writes(self, written: str) -> UserError:
        return UserError(
            f"The loss {self.name} writes into the {written} that it was given; make a new tensor, x * 2 in place of "
            "x.mul_(2)."
        )

    def _examine(self, logits: Tensor, y: Tensor, value: Tensor) -> None:
        """At the first call, note what is wrong but no error: chance, other images, or the sign."""
        try:
            if self.function in _FAULTS:
                return
            _FAULTS[self.function] = ""
            fault = self._fault_in(logits.detach(), y, value.detach())
        except Exception:
            # Not all functions can be called without gradients, or remembered; torch.func compares no values.
            return
        if fault:
            _FAULTS[self.function] = f"The loss {self.name} {fault}."

    def _fault_in(self, logits: Tensor, y: Tensor, value: Tensor) -> str:
        if not _alike(value, self._checked(logits, y)):
            return (
                "returns other values for the same logits (random numbers, Dropout in train mode, or values that it "
                "keeps between calls), so results depend on chance; compute it from the logits and classes alone"
            )
        if not _alike(value, self._checked(torch.cat([logits, -logits]), torch.cat([y, y]))[: len(y)]):
            return (
                "gives an image another value when other images are beside it (such as a mean or a maximum over the "
                "batch), so results depend on the batch; compute the value of each image from its own logits and class"
            )
        if self._falls(logits, y):
            return (
                "is smaller where the logit of the given class is lowered, so the attack moves images away from "
                "errors; return its negative"
            )
        return ""

    def _falls(self, logits: Tensor, y: Tensor) -> bool:
        """Whether a worse classification lowers every value, of rows in which various classes are likely."""
        various = torch.cat([logits[:_TRIED].roll(shift, 1) for shift in range(min(_TRIED, logits.shape[1]))])
        classes = y[:_TRIED].repeat(len(various) // len(y[:_TRIED]))
        worse = various.scatter(1, classes.unsqueeze(1), various.amin(1, keepdim=True) - 1)
        return bool((self._checked(worse, classes) < self._checked(various, classes)).all())


def _remedy(value: Tensor, logits: Tensor) -> str:
    if value.shape == logits.shape[:1]:
        return "count no errors, but return a number that autograd can follow"
    if value.shape == (len(logits), 1):
        return "append .squeeze(1)"
    return "leave out sums and means over images (reduction='none')"


def _alike(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other.detach(), _ROUNDING, _ROUNDING, equal_nan=True)
