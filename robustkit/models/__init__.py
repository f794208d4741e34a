"""Models by name, with their weights, as classifiers of pixels."""

from .checkpoint import is_checkpoint as is_checkpoint
from .clean_training import CleanRecipe as CleanRecipe
from .loading import load_model as load_model
from .loading import model_names as model_names
from .loading import require_known as require_known
from .pixels import PixelModel as PixelModel
