"""Attacks: one file per attack, named as the attack is called."""

from .apgd import APGD as APGD
from .bim import BIM as BIM
from .fgsm import FGSM as FGSM
from .mifgsm import MIFGSM as MIFGSM
from .nifgsm import NIFGSM as NIFGSM
from .noise import Noise as Noise
from .pgd import PGD as PGD
from .square import Square as Square
