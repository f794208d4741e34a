"""Attacks: one file per attack, named as the attack is called."""

from .decision.noise import Noise as Noise
from .gradient.apgd import APGD as APGD
from .gradient.bim import BIM as BIM
from .gradient.fgsm import FGSM as FGSM
from .gradient.mifgsm import MIFGSM as MIFGSM
from .gradient.nifgsm import NIFGSM as NIFGSM
from .gradient.pgd import PGD as PGD
from .score.square import Square as Square
from .transfer.fia import FIA as FIA
from .transfer.ghost import Ghost as Ghost
from .transfer.ila import ILA as ILA
from .transfer.linbp import LinBP as LinBP
from .transfer.pna import PNA as PNA
from .transfer.sgm import SGM as SGM
from .transfer.tgr import TGR as TGR
