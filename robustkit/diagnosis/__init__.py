"""Where a network hides its gradients, why, and what an attack gains when that is undone.

    from robustkit.diagnosis import diagnose
    print(diagnose(model, x, y, eps="8/255"))

A faithful gradient does not prove robustness; a masked one proves that gradient attacks were no test of it.
"""

from .calls import Unseen as Unseen
from .diagnosis import Diagnosis as Diagnosis
from .diagnosis import EndToEnd as EndToEnd
from .diagnosis import LayerRow as LayerRow
from .examine import diagnose as diagnose
from .lines import OpSite as OpSite
from .lines import unfold_ops as unfold_ops
from .proof import Proof as Proof
from .remedies import Prescription as Prescription
