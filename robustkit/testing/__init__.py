"""The contract of attacks, as checks for attacks of one's own: `check_attack(MyAttack(eps=0.1))`."""

from .contract import CHECKS as CHECKS
from .contract import STATE_CHECKS as STATE_CHECKS
from .contract import check_attack as check_attack
from .subject import AttackUnderTest as AttackUnderTest
