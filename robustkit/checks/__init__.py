"""Automatic checks: whether a result means what it seems to mean, or whether the attacks failed.

One file per rule. A rule reads the evidence of a run, and at the higher levels the rows of passes of its own; it calls
no model when it is applied, so reports apply it again.
"""

from .check import LEVELS as LEVELS
from .check import Check as Check
from .facts import Level as Level
from .register import RULES as RULES
