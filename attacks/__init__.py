"""Attacks: one file per attack, named as the attack is called."""

from .apgd import APGD as APGD
from .bim import BIM as BIM
from .fgsm import FGSM as FGSM
from .fia import FIA as FIA
from .ghost import Ghost as Ghost
from .ila import ILA as ILA
from .linbp import LinBP as LinBP
from .mifgsm import MIFGSM as MIFGSM
from .nifgsm import NIFGSM as NIFGSM
from .noise import Noise as Noise
from .pgd import PGD as PGD
from .pna import PNA as PNA
from .sgm import SGM as SGM
from .square import Square as Square
from .tgr import TGR as TGR
