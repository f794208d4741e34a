"""Adversarial fine-tuning and its parts; randomized smoothing, which is implemented in the core."""

from robustkit.engine.certify import certify as certify
from robustkit.engine.certify import predict as predict
from robustkit.statistics.randomized_smoothing import Certified as Certified

from .ablation.ablation import Ablation as Ablation
from .ablation.ablation import ablate as ablate
from .ablation.ablation import checked_cells as checked_cells
from .ablation.ablation import jobs_of as jobs_of
from .ablation.cells import AblationSetup as AblationSetup
from .ablation.grid import axes_of as axes_of
from .ablation.grid import cells_of as cells_of
from .ablation.grid import read_grid as read_grid
from .cost.warnings import explain as explain
from .cost.warnings import explained as explained
from .inner_attack.diverged import Diverged as Diverged
from .training.adversarial_loss import AdversarialLoss as AdversarialLoss
from .training.finetuning import checked_recipe as checked_recipe
from .training.finetuning import finetune as finetune
from .training.processes import processes as processes
from .training.progress import drop_weights as drop_weights
from .training.recipe import PRESETS as PRESETS
from .training.recipe import Recipe as Recipe
from .training.team import Team as Team
from .training.training import Tuned as Tuned
from .weights.batchnorm import modes as modes
from .weights.batchnorm import statistics_frozen as statistics_frozen
from .weights.freezing import frozen as frozen
from .weights.freezing import frozen_names as frozen_names
