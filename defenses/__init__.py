"""Adversarial fine-tuning and its parts; randomized smoothing, which is implemented in the core."""

from robustkit.classifier.smoothing import Certified as Certified
from robustkit.engine.certify import certify as certify
from robustkit.engine.certify import predict as predict

from .ablation.ablation import Ablation as Ablation
from .ablation.ablation import ablate as ablate
from .cost.warnings import explain as explain
from .inner_attack.diverged import Diverged as Diverged
from .training.finetuning import finetune as finetune
from .training.recipe import PRESETS as PRESETS
from .training.recipe import Recipe as Recipe
from .training.training import Tuned as Tuned
from .weights.batchnorm import modes as modes
from .weights.batchnorm import statistics_frozen as statistics_frozen
from .weights.freezing import frozen as frozen
from .weights.freezing import frozen_names as frozen_names
