"""Do our attacks on features and colours break as much as the code of the papers' authors?

perceptual-advex 0.2.6 and recoloradv 0.0.1 of PyPI. Both need packages for training that these attacks do not use; what
cannot be imported is replaced by an empty module. Theirs are judged as ours are: by a fresh forward, and, for LPIPS, by
the distance of the features in a fresh forward; a point outside of the ball is no success.

    python bench/perceptual.py --zoo DIR [--parts lpips,recolor] [--networks cnn_a_cifar] [--images 32]
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from robustkit.attacks import LPA, PPGD, ReColorAdv
from subjects import Subject, zoo
from torch import Tensor

from robustkit import attack
from robustkit.primitives.lpips_ball import normalised
from robustkit.primitives.protocol import Attack

IMAGES = {"cnn_a_cifar": "cifar10", "resnet2b_cifar": "cifar10", "trades_mnist": "mnist", "kw_mnist": "mnist"}
LAYERS = {"cnn_a_cifar": ("2", "4"), "resnet2b_cifar": ("2", "3", "4"), "kw_mnist": ("1", "3")}
UNUSED = (
    "robustness", "robustness.cifar_models", "robustness.cifar_models.resnet", "robustness.datasets",
    "robustness.attacker", "robustness.model_utils", "robustness.data_augmentation", "robustness.tools", "advex_uar",
    "advex_uar.common", "torchvision.models.utils", "perceptual_advex.datasets", "tensorboardX",
)  # fmt: skip


def lpips(subject: Subject, layers: tuple[str, ...], eps: float) -> None:
    for name in UNUSED:
        sys.modules.setdefault(name, MagicMock())
    from perceptual_advex.models import FeatureModel
    from perceptual_advex.perceptual_attacks import LagrangePerceptualAttack, PerceptualPGDAttack

    class Traced(FeatureModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network, self.count = subject.model, 0
            self.network.eval()

        def features_logits(self, x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            found: dict[str, Tensor] = {}
            modules = dict(self.network.named_modules())
            hooks = [
                modules[name].register_forward_hook(lambda _, __, out, name=name: found.__setitem__(name, out))
                for name in layers
            ]
            self.count += len(x)
            logits = self.network(x)
            for hook in hooks:
                hook.remove()
            return tuple(found[name] for name in layers), logits

        def features(self, x: Tensor) -> tuple[Tensor, ...]:
            return self.features_logits(x)[0]

        def forward(self, x: Tensor) -> Tensor:
            return self.features_logits(x)[1]

    for theirs, method in (
        (LagrangePerceptualAttack, LPA(eps, "lpips", layers="+".join(layers))),
        (PerceptualPGDAttack, PPGD(eps, "lpips", layers="+".join(layers))),
    ):
        ours(subject, method, f"lpips {eps}")
        traced = Traced()
        torch.manual_seed(0)
        begin = time.process_time()
        points = theirs(traced, bound=eps)(subject.x.clone(), subject.y)
        spent, passes = time.process_time() - begin, traced.count / len(subject.x)
        with torch.no_grad():
            (now, logits), before = traced.features_logits(points), traced.features(subject.x)
            inside = (normalised(now) - normalised(before)).norm(dim=1) <= eps
            broken = int(((logits.argmax(1) != subject.y) & inside).sum())
        line(subject, theirs.__name__, f"lpips {eps}", broken, f"{passes:.0f} forwards", spent)


def recolor(subject: Subject, eps: float, steps: int) -> None:
    for name in UNUSED:
        sys.modules.setdefault(name, MagicMock())
    ours(subject, ReColorAdv(eps, "recolor", steps=steps), f"recolor {eps}")
    ours(subject, ReColorAdv(eps, "recolor", steps=steps, smoothness=0.0), f"recolor {eps}")
    begin = time.process_time()
    points = recolored(subject, eps, steps)
    spent = time.process_time() - begin
    broken = int((subject.model(points.float().clamp(0, 1)).argmax(1) != subject.y).sum())
    line(subject, "recoloradv (authors)", f"recolor {eps}", broken, f"{steps}+{steps}", spent)


def recolored(subject: Subject, eps: float, steps: int) -> Tensor:
    from recoloradv import color_spaces, color_transformers, perturbations
    from recoloradv.mister_ed import adversarial_attacks, adversarial_perturbations, loss_functions
    from recoloradv.mister_ed.utils.pytorch_utils import DifferentiableNormalize

    threat = adversarial_perturbations.ThreatModel(
        perturbations.ReColorAdv,
        adversarial_perturbations.PerturbationParameters(
            lp_style="inf", lp_bound=[eps] * 3, xform_class=color_transformers.FullSpatial, use_smooth_loss=True,
            xform_params={"resolution_x": 16, "resolution_y": 32, "resolution_z": 32},
            cspace=color_spaces.CIELUVColorSpace(),
        ),
    )  # fmt: skip
    normalise = DifferentiableNormalize(mean=[0.0] * 3, std=[1.0] * 3)
    loss = loss_functions.RegularizedLoss(
        {
            "adv": loss_functions.CWLossF6(subject.model, normalise, kappa=float("inf")),
            "pert": loss_functions.PerturbationNormLoss(lp=2),
        },
        {"adv": 1.0, "pert": 0.05}, negate=True,
    )  # fmt: skip
    made: Any = adversarial_attacks.PGD(subject.model, normalise, threat, loss).attack(
        subject.x, subject.y, num_iterations=steps, optimizer=torch.optim.Adam, optimizer_kwargs={"lr": 0.001},
        signed=False, verbose=False,
    )  # fmt: skip
    made = made[0] if isinstance(made, tuple) else made
    points: Tensor = made.adversarial_tensors() if hasattr(made, "adversarial_tensors") else made
    return points.detach()


def ours(subject: Subject, method: Attack, threat: str) -> None:
    begin = time.process_time()
    result = attack(subject.model, subject.x, subject.y, method)
    forwards, backwards = (each.double().mean().item() for each in (result.forwards, result.backwards))
    name = repr(method).partition("(")[0] + (" without smoothness" if getattr(method, "smoothness", 1) == 0 else "")
    line(
        subject, name, threat, int(result.success.sum()), f"{forwards:.0f}+{backwards:.0f}", time.process_time() - begin
    )


def line(subject: Subject, name: str, threat: str, broken: int, passes: str, seconds: float) -> None:
    cells = (subject.name, threat, name, f"{broken} of {len(subject.x)}", passes, f"{seconds:.1f}")
    print("|", " | ".join(cells), "|", flush=True)


PARTS: dict[str, Callable[[Subject], None]] = {
    "lpips": lambda subject: [lpips(subject, LAYERS[subject.name], eps) for eps in (0.1, 0.25)] and None,
    "recolor": lambda subject: [recolor(subject, eps, 100) for eps in (0.03, 0.06)] and None,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--parts", default="lpips,recolor")
    parser.add_argument("--networks", default="cnn_a_cifar,resnet2b_cifar")
    parser.add_argument("--images", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for network in given.networks.split(","):
        subject = zoo(given.zoo, network, IMAGES[network], given.images)
        for part in given.parts.split(","):
            PARTS[part](subject)
