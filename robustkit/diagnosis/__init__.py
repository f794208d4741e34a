"""Where a network masks its gradients, why, and how much an attack gains when the masking is undone.

    from robustkit.diagnosis import diagnose
    print(diagnose(model, x, y, eps="8/255"))

A faithful gradient does not prove robustness; a masked gradient proves that gradient attacks did not test it.
"""

from .calls import Unseen as Unseen
from .diagnosis import Diagnosis as Diagnosis
from .examine import diagnose as diagnose
from .lines import OpSite as OpSite
from .lines import unfold_ops as unfold_ops
from .proof import Proof as Proof
from .record import EndToEnd as EndToEnd
from .record import LayerRow as LayerRow
from .remedies import Prescription as Prescription
