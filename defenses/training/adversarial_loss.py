"""The loss of adversarial images, for a training loop of one's own."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from robustkit import limits
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.logits import logits_of
from robustkit.classifier.sanity_checks import checked_images, checked_labels
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments, checked_arguments_but
from robustkit.models.preprocessing import Preprocessed
from robustkit.nethook.gradients import gradients
from robustkit.primitives.protocol import Attack

from ..inner_attack.crafting import craft, noise_keys
from ..inner_attack.objectives import Branches, Network, build_objective, maximized
from ..inner_attack.specification import inner_attack
from ..weights.awp import perturbed
from ..weights.batchnorm import modes, statistics_kept
from .checks import trained_module
from .recipe import AttackMode


class AdversarialLoss:
    """Adversarial training, TRADES or MART as one number to minimize.

    What `finetune` minimizes, without its loop, checks and checkpoints. The network's modes are those that the caller
    has set, but for the attack, and no `.grad` changes before `backward`.

    Args:
        model: takes pixels in [0, 1], returns logits; of a `Classifier` the model with `mean` and `std`, of a
            `DistributedDataParallel` also the module inside, which is attacked.
        attack: such as "pgd:steps=10", "rs-fgsm", "nfgsm" or an attack object; not "free:N", which takes the steps of
            the optimizer itself.
        eps: radius, in units of pixels in [0, 1]; "8/255" is exact.
        norm: "Linf", "L2" or "L1".
        objective: "at", "trades:BETA", "mart:BETA", or "clean", which attacks nothing.
        label_smoothing: in torch's convention, of the terms with labels; the attack sees hard labels.
        attack_bn: the mode of the network in the attack: "eval"; "batch", eval but for BatchNorm, which takes the
            statistics of the batch without tracking them; "train", as it is.
        seed: of all noise, together with the number of the step; give each process its own.

    Raises:
        UserError: there is no such attack or objective, or it cannot be used here.
    """

    @checked_arguments_but("eps")
    def __init__(
        self,
        model: nn.Module | Classifier,
        attack: str | Attack = "pgd:steps=10",
        *,
        eps: float | str,
        norm: str = "Linf",
        objective: str = "at",
        label_smoothing: float = 0.0,
        attack_bn: AttackMode = "eval",
        seed: int = 0,
    ) -> None:
        inner = inner_attack(attack, norm, eps)
        if inner.replays > 1:
            raise UserError(f"{attack} takes the steps of the optimizer itself; use it with robustkit.finetune.")
        if not 0 <= label_smoothing < 1:
            raise UserError(f"label_smoothing must be at least 0 and below 1, not {label_smoothing!r}.")
        self.model = trained_module(model)
        self.attack, self.objective = inner.attack, build_objective(objective)
        self.label_smoothing, self.attack_bn, self.seed = label_smoothing, attack_bn, limits.whole_seed(seed)
        self.step = 0  # number of the next step; set it when a training is continued

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of clean images `[B, *S]` in [0, 1] with labels `[B]`: one number, the mean over the batch.

        Raises:
            UserError: the images lie outside [0, 1], or a label is no class.
            Diverged: also a UserError; an input gradient is NaN or infinite.
        """
        return self.of(x, self.adversarial(x, y), y)

    @checked_arguments
    def adversarial(self, x: Tensor, y: Tensor) -> Tensor:
        """`[B, *S]` images of the next step against the network as it is now, inside the ball and in [0, 1].

        Those of "nfgsm" and "gaussian" may leave the ball, as published.
        """
        # Validation loops run in inference mode, where nothing has a gradient; what is made of its tensors here may.
        with torch.inference_mode(mode=False):
            return self._attacked(checked_images(x.detach(), (0.0, 1.0)), checked_labels(y, len(x)).clone())

    def _attacked(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.objective.uses_attack:
            return x
        key = noise_keys(self.seed, self.step, torch.arange(len(x), device=x.device))
        self.step += 1
        with _alone(self.model) as inside, modes(inside, self.attack_bn):
            attacked = _logits(inside, y)
            x_adv = craft(attacked, self.attack, x, y, key, maximized(self.objective, attacked, x))
        # Older versions of torch go on to use copies of the weights that autocast has made under no_grad, which have no
        # gradient (pytorch/pytorch#112583).
        torch.clear_autocast_cache()
        return x_adv

    @checked_arguments
    def of(self, x: Tensor, x_adv: Tensor, y: Tensor) -> Tensor:
        """The loss of clean images and of adversarial images that are there already; all as in a call."""
        if x_adv.shape != x.shape:
            raise UserError(
                f"The adversarial images have the shape {list(x_adv.shape)}, the clean ones {list(x.shape)}; give "
                "those of the same images."
            )
        y = checked_labels(y, len(x))
        network = _logits(self.model, y)
        return self.objective.batch_loss(Branches(network, network), x, x_adv, y, self.label_smoothing).loss

    @checked_arguments
    def with_worse_weights(self, x: Tensor, x_adv: Tensor, y: Tensor, size: float) -> AbstractContextManager[None]:
        """A context in which the weights are moved a step up this loss: adversarial weight perturbation.

        Call `backward` inside and the optimizer's step after it; the weights are then as before. The step up does not
        change running statistics; a loss that is computed inside does, as any other.

        Args:
            x: `[B, *S]` clean images.
            x_adv: `[B, *S]` adversarial ones.
            y: `[B]` true classes.
            size: length of each layer's step, in units of the norm of its weights; the paper's gamma, such as 0.005.

        Raises:
            UserError: the size is none, or no weight learns; when the context ends, the weights were changed inside, as
                by the optimizer's step.

        Source: Wu, Xia & Wang 2020, arXiv:2004.05884.
        """
        if not 0 <= size < math.inf:
            raise UserError(f"size must be at least 0 and finite, not {size!r}; the paper's is 0.005.")
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        with torch.enable_grad(), statistics_kept(self.model):
            loss = self.of(x, x_adv, y)
            if not (weights and loss.requires_grad):
                raise UserError("The loss depends on no weight that learns; leave some with requires_grad=True.")
            grads = gradients(loss, weights)
        return perturbed(weights, grads, size)


@contextmanager
def _alone(model: nn.Module) -> Iterator[nn.Module]:
    """The model without its `DistributedDataParallel`, which would wait for other processes at each query."""
    parallel = model.network if isinstance(model, Preprocessed) else model
    if not isinstance(parallel, DistributedDataParallel):
        yield model
    elif not isinstance(model, Preprocessed):
        yield parallel.module
    else:
        model.network = parallel.module
        try:
            yield model
        finally:
            model.network = parallel


def _logits(network: nn.Module, y: Tensor) -> Network:
    """`[B, K]` fp32, also under autocast; a `UserError` if there is none for some label."""
    most = int(y.max()) if len(y) else 0

    def logits(x: Tensor) -> Tensor:
        values = logits_of(network(x), x).float()
        if values.shape[1] <= most:
            checked_labels(y, len(y), values.shape[1])
        return values

    return logits
