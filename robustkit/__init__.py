"""robustkit: how robust an image classifier really is, how sure that number is, and why."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustkit.version import __version__ as __version__

_here = Path(__file__).resolve().parent
if not (_here / "attacks").is_dir():  # a checkout: attacks/, defenses/ and reports/ lie beside this folder
    __path__.append(str(_here.parent))

if TYPE_CHECKING:
    from robustkit.black_box import BlackBox as BlackBox
    from robustkit.black_box import HttpModel as HttpModel
    from robustkit.black_box import RemoteAccess as RemoteAccess
    from robustkit.classifier.classifier import Classifier as Classifier
    from robustkit.classifier.smoothing import Smoothing as Smoothing
    from robustkit.comparison.compare import Comparison as Comparison
    from robustkit.comparison.compare import compare as compare
    from robustkit.comparison.gate import Gate as Gate
    from robustkit.comparison.gate import gate as gate
    from robustkit.data import load_dataset as load_dataset
    from robustkit.data.examples import load_examples as load_examples
    from robustkit.data.masks import load_mask as load_mask
    from robustkit.defenses import finetune as finetune  # type: ignore[import-not-found,unused-ignore]
    from robustkit.diagnosis import diagnose as diagnose
    from robustkit.engine.attack_tensors import Attacked as Attacked
    from robustkit.engine.fit_universal import fit_universal as fit_universal
    from robustkit.errors import UserError as UserError
    from robustkit.evaluation.ensemble_on_tensors import attack as attack
    from robustkit.evaluation.evaluation import corruptions as corruptions
    from robustkit.evaluation.evaluation import evaluate as evaluate
    from robustkit.evaluation.request import Numerics as Numerics
    from robustkit.evidence.reading import load_run as load_run
    from robustkit.evidence.run import Run as Run
    from robustkit.models import load_model as load_model
    from robustkit.tracing import trace as trace

# Loaded on first use: torch takes seconds to import, and `robustkit --help` does not need it.
_PUBLIC = {
    "Attacked": "robustkit.engine.attack_tensors",
    "BlackBox": "robustkit.black_box",
    "Classifier": "robustkit.classifier.classifier",
    "Comparison": "robustkit.comparison.compare",
    "Gate": "robustkit.comparison.gate",
    "Smoothing": "robustkit.classifier.smoothing",
    "HttpModel": "robustkit.black_box",
    "Numerics": "robustkit.evaluation.request",
    "RemoteAccess": "robustkit.black_box",
    "Run": "robustkit.evidence.run",
    "UserError": "robustkit.errors",
    "attack": "robustkit.evaluation.ensemble_on_tensors",
    "compare": "robustkit.comparison.compare",
    "corruptions": "robustkit.evaluation.evaluation",
    "diagnose": "robustkit.diagnosis",
    "evaluate": "robustkit.evaluation.evaluation",
    "finetune": "robustkit.defenses",
    "fit_universal": "robustkit.engine.fit_universal",
    "gate": "robustkit.comparison.gate",
    "load_dataset": "robustkit.data",
    "load_examples": "robustkit.data.examples",
    "load_mask": "robustkit.data.masks",
    "load_model": "robustkit.models",
    "load_run": "robustkit.evidence.reading",
    "trace": "robustkit.tracing",
}
_ROOMS = ("attacks", "data", "defenses", "masked_defenses", "models", "nethook", "reports")
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _ROOMS:
        return import_module(f"robustkit.{name}")
    raise AttributeError(f"module 'robustkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]
