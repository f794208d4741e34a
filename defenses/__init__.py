"""Adversarial fine-tuning and what it is made of; randomized smoothing, whose core the evaluation shares."""

from robustkit.certify import certify as certify
from robustkit.certify import predict as predict
from robustkit.smoothing import Certified as Certified

from .ablation import Ablation as Ablation
from .ablation import ablate as ablate
from .batchnorm import modes as modes
from .batchnorm import statistics_frozen as statistics_frozen
from .checks import Diverged as Diverged
from .cost_warnings import explain as explain
from .finetuning import finetune as finetune
from .freezing import frozen as frozen
from .freezing import frozen_names as frozen_names
from .recipe import PRESETS as PRESETS
from .recipe import Recipe as Recipe
from .training import Tuned as Tuned
