"""Deliberately broken defences: each hides its gradient in its own way, and none makes a network robust.

For tests and demonstrations of `diagnose`. `build(name, network)` works on a copy; the network given stays as it is.

    network = broken.base()
    model = broken.build("quantised", network)
    broken.place("quantised", model)        # "quantise": the layer to blame
    broken.RECORDS["quantised"].cause       # "step"
"""

from .base import base as base
from .base import fit as fit
from .zoo import RECORDS as RECORDS
from .zoo import Record as Record
from .zoo import build as build
from .zoo import names as names
from .zoo import place as place
