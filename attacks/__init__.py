"""Attacks: one file per attack, with the attack's name, in folders by what the attack may see or what it is for.

The imports below are for type checkers and editors. A new file needs none: the registry finds it by its name.
"""

from typing import Any

from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack
from robustkit.primitives.universal import UniversalAttack

from .decision.boundary import Boundary as Boundary
from .decision.contrast_reduction import ContrastReduction as ContrastReduction
from .decision.gaussian_blur import GaussianBlur as GaussianBlur
from .decision.gaussian_noise import GaussianNoise as GaussianNoise
from .decision.hopskipjump import HopSkipJump as HopSkipJump
from .decision.noise import Noise as Noise
from .decision.rays import RayS as RayS
from .decision.salt_and_pepper import SaltAndPepper as SaltAndPepper
from .decision.surfree import SurFree as SurFree
from .decision.uniform_noise import UniformNoise as UniformNoise
from .gradient.acg import ACG as ACG
from .gradient.adam_pgd import AdamPGD as AdamPGD
from .gradient.apgd import APGD as APGD
from .gradient.bim import BIM as BIM
from .gradient.fgsm import FGSM as FGSM
from .gradient.frank_wolfe import FrankWolfe as FrankWolfe
from .gradient.gama import GAMA as GAMA
from .gradient.guided_square import GuidedSquare as GuidedSquare
from .gradient.md import MD as MD
from .gradient.mifgsm import MIFGSM as MIFGSM
from .gradient.nifgsm import NIFGSM as NIFGSM
from .gradient.patch_search import PatchSearch as PatchSearch
from .gradient.pgd import PGD as PGD
from .gradient.pma import PMA as PMA
from .gradient.raced_apgd import RacedAPGD as RacedAPGD
from .gradient.reacg import ReACG as ReACG
from .gradient.soft_apgd import SoftAPGD as SoftAPGD
from .minimum_norm.brendel_bethge import BrendelBethge as BrendelBethge
from .minimum_norm.cw import CW as CW
from .minimum_norm.ddn import DDN as DDN
from .minimum_norm.deepfool import DeepFool as DeepFool
from .minimum_norm.ead import EAD as EAD
from .minimum_norm.fab import FAB as FAB
from .minimum_norm.fmn import FMN as FMN
from .minimum_norm.jsma import JSMA as JSMA
from .minimum_norm.sigma_zero import SigmaZero as SigmaZero
from .minimum_norm.vfga import VFGA as VFGA
from .perceptual.lpa import LPA as LPA
from .perceptual.ppgd import PPGD as PPGD
from .score.nes import NES as NES
from .score.signhunter import SignHunter as SignHunter
from .score.simba import SimBA as SimBA
from .score.sparse_rs import SparseRS as SparseRS
from .score.spsa import SPSA as SPSA
from .score.square import Square as Square
from .spatial.grid import Grid as Grid
from .spatial.recoloradv import ReColorAdv as ReColorAdv
from .spatial.stadv import StAdv as StAdv
from .transfer.fia import FIA as FIA
from .transfer.ghost import Ghost as Ghost
from .transfer.ila import ILA as ILA
from .transfer.linbp import LinBP as LinBP
from .transfer.pna import PNA as PNA
from .transfer.sgm import SGM as SGM
from .transfer.tgr import TGR as TGR
from .universal.adversarial_patch import AdversarialPatch as AdversarialPatch
from .universal.universal import Universal as Universal


def _by_name() -> dict[str, type[Attack] | type[UniversalAttack]]:
    kinds: list[type[Attack] | type[UniversalAttack]]
    kinds = [*registry.classes().values(), *registry.universal_classes().values()]
    return {kind.__name__: kind for kind in kinds}


def __dir__() -> list[str]:
    return sorted({*globals(), *_by_name()})


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_by_name())
    if name.startswith("_") or name not in (kinds := _by_name()):
        raise AttributeError(f"module 'robustkit.attacks' has no attribute {name!r}")
    return kinds[name]
