"""The propagation of a perturbation through a network, in numbers and in pictures."""

from .album import Album as Album
from .album import album as album
from .focus import Focus as Focus
from .focus import focus as focus
from .propagation import trace as trace
from .traced import CallTrace as CallTrace
from .traced import Traced as Traced
