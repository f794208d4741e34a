"""Whether each model of a run measured distances by its own features: then a radius is another ball for each model."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from robustkit.primitives.mask import unmasked
from robustkit.primitives.perceptual import OWN
from robustkit.primitives.threat import needs_network

OWN_FEATURES: Final = (
    "Each model measured the lpips distance by its own features, so a radius is another ball for each of them: these "
    "accuracies cannot rank models. Evaluate with network=NAME."
)


def own_features(identities: Iterable[Mapping[str, Any]]) -> bool:
    """Whether that is so for one of some runs, by their identities."""
    return any(
        any(needs_network(unmasked(norm)) for norm, _ in identity["threats"])
        and any(entry.get("network") == OWN for entry in identity["attacks"])
        for identity in identities
    )
