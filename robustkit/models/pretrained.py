"""Networks with weights that their makers publish: torchvision's enums and timm's hub."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from robustkit.errors import UserError, unknown

DEFAULT = "default"


class Pretrained(NamedTuple):
    """A network with published weights, and what they were trained on."""

    network: nn.Module
    weights: str
    num_classes: int
    side: int  # of the images they were trained on
    mean: Sequence[float]
    std: Sequence[float]


def torchvision_names() -> list[str]:
    """The classification models of torchvision."""
    import torchvision

    # Detection, segmentation, video and quantised models live in modules below this one.
    return list(torchvision.models.list_models(module=torchvision.models))


def weight_names(name: str) -> list[str]:
    """The published weights of torchvision's model of that name, "DEFAULT" among them."""
    import torchvision

    return ["DEFAULT", *(weights.name for weights in torchvision.models.get_model_weights(name))]


def torchvision_pretrained(name: str, weights: str) -> Pretrained:
    """The torchvision model with its published weights, from torch's cache or the network.

    Raises:
        UserError: there are no such weights, or they cannot be fetched.
    """
    import torchvision

    chosen = {known.upper(): known for known in weight_names(name)}.get(weights.upper())
    if chosen is None:
        raise unknown(f"checkpoint file or published weights of {name}", weights, weight_names(name))
    entry = getattr(torchvision.models.get_model_weights(name), chosen)
    try:
        network = torchvision.models.get_model(name, weights=entry)
    except (OSError, RuntimeError) as error:  # URLError is an OSError, a wrong hash a RuntimeError
        raise _unreachable(name, error) from error
    seen: Any = entry.transforms()
    return Pretrained(network, entry.name, len(entry.meta["categories"]), seen.crop_size[0], seen.mean, seen.std)


def timm_build(name: str, num_classes: int) -> nn.Module:
    """The timm model with random weights."""
    network: nn.Module = _timm(name).create_model(name, pretrained=False, num_classes=num_classes)
    return network


def timm_pretrained(name: str) -> Pretrained:
    """The timm model with its published weights.

    Raises:
        UserError: timm is not installed, has no such model or weights, or they cannot be fetched.
    """
    timm = _timm(name)
    try:
        network = timm.create_model(name, pretrained=True)
    except (OSError, RuntimeError) as error:
        raise _unreachable(name, error) from error
    config = network.pretrained_cfg
    tag = config.get("tag") or DEFAULT
    return Pretrained(network, tag, config["num_classes"], config["input_size"][1], config["mean"], config["std"])


def _timm(name: str) -> Any:
    try:
        import timm
    except ImportError as error:
        raise UserError(f"timm:{name} needs timm; install it: pip install 'robustkit[timm]'.") from error
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models())
    return timm


def _unreachable(name: str, error: Exception) -> UserError:
    reason = str(error).split("\n")[0].rstrip(".")
    return UserError(
        f"The weights of {name} could not be fetched ({reason}); fetch them on a connected machine, "
        "copy the file here and pass --weights FILE."
    )
