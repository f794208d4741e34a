"""Defenses that mask their gradients, each in another way; none of them makes a network robust.

For tests and demonstrations of `diagnose`. `build(name, network)` returns a copy of the network with the defense.

    network = masked_defenses.base_network()
    model = masked_defenses.build("quantised", network)
    masked_defenses.masking_layer("quantised", model)  # "quantise": the layer that masks the gradient
    masked_defenses.DEFENSES["quantised"].cause        # "step"
"""

from .base import base_network as base_network
from .base import fit as fit
from .zoo import DEFENSES as DEFENSES
from .zoo import MaskedDefense as MaskedDefense
from .zoo import build as build
from .zoo import masking_layer as masking_layer
from .zoo import names as names
