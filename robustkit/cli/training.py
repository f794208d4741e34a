"""Recipe, threat model, model and data of the commands that train, from their options."""

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from robustkit.errors import NoSplitError, UserError

from .requests import loading_of, remedies_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robustkit.black_box import RemoteAccess
    from robustkit.classifier.classifier import Classifier
    from robustkit.data import Dataset, UsualThreat
    from robustkit.evaluation.threats import Threat
    from robustkit.models.pixels import PixelModel

    from .wings import defenses


class TrainingInputs(NamedTuple):
    """Everything that a training needs in addition to its model."""

    train: "Dataset"
    val: "Dataset"
    test: "Dataset"
    recipe: "defenses.Recipe"
    threat: "Threat"


def training_inputs(options: dict[str, Any], test: "Dataset") -> TrainingInputs:
    """Data, recipe and threat model of a command, for results on `test`."""
    threat = threat_of(options, test.threats)
    if math.isinf(threat.eps):
        raise UserError("A training needs a radius, not the minimum; write for example --eps 8/255.")
    train, val = training_data(test, options["val_share"])
    return TrainingInputs(train, val, test, recipe_of(options), threat)


def recipe_of(options: dict[str, Any]) -> "defenses.Recipe":
    """The recipe of `--preset` with the changes of `--set`.

    Raises:
        UserError: there is no such preset or choice.
    """
    from robustkit.errors import unknown
    from robustkit.primitives.registry import value_of

    from .wings import defenses

    if options["preset"] not in defenses.PRESETS:
        raise unknown("preset", options["preset"], defenses.PRESETS)
    choices = {field.name for field in fields(defenses.Recipe)}
    changes: dict[str, Any] = {"seed": options["seed"]}
    for text in options["choices"]:
        key, equals, value = text.partition("=")
        name = key.strip().replace("-", "_")
        if name not in choices:
            raise unknown("choice of the recipe", name, choices)
        if not equals:
            raise UserError(f"--set {text} gives {name} no value; write KEY=VALUE, for example --set epochs=20.")
        if name == "seed":
            raise UserError("The seed is not a choice for --set; give --seed to finetune, --seeds to ablate.")
        changes[name] = value if isinstance(getattr(defenses.Recipe, name), str) else value_of(value.strip())
    return defenses.PRESETS[options["preset"]].but(**changes)


def threat_of(options: dict[str, Any], usual: "Sequence[UsualThreat]") -> "Threat":
    """The threat model of `--norm` and `--eps`, or the first of the usual ones of the data."""
    from robustkit.evaluation.threats import threats_of

    norms = [options["norm"]] if options["norm"] else []
    return threats_of(norms, [options["eps"]] if options["eps"] else [], usual)[0]


def model_of(
    options: dict[str, Any], data: "Dataset | str | None", bars: Any, remote: "RemoteAccess | None" = None
) -> "PixelModel":
    """The model that the options name, for these images; for a training, as it is before."""
    from robustkit.black_box import RemoteAccess
    from robustkit.evaluation.classifiers import training_reporter
    from robustkit.models import load_model

    return load_model(
        options["model"], dataset=data, weights=options["weights"], report=training_reporter(bars),
        remote=remote or RemoteAccess(), **loading_of(options),
    )  # fmt: skip


def classifier_of(options: dict[str, Any], model: "PixelModel") -> "Classifier":
    """The model on the device of `--device`, attacked as the options say."""
    from robustkit.classifier.classifier import Classifier
    from robustkit.host.environment import chosen_device

    return Classifier(model.to(chosen_device(options["device"])), rejects=options.get("rejects", False),
                      **remedies_of(options))  # fmt: skip


def training_data(test: "Dataset", share: float | None) -> tuple["Dataset", "Dataset"]:
    """The training images, and the validation images on which the epoch is chosen.

    Raises:
        UserError: there is no validation split and no share to hold out, a split cannot be read, or `test` is one of
            those that the training uses.
    """
    from robustkit.data import held_out, other_split

    train = other_split(test, "train")
    if test.split == "train" or (test.split == "val" and share is None):
        raise UserError(
            f"Results on {test.split} images, which the training uses, would not hold for new ones; give another "
            "--split."
        )
    if share is not None:
        return held_out(train, share)
    try:
        return train, other_split(test, "val")
    except NoSplitError:
        raise UserError(
            f"{test.name} has no validation split to choose the epoch on; hold one out, for example --val-share 0.1."
        ) from None
