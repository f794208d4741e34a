"""Stored adversarial examples whose distance is one of features, measured again by the network that has them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from robustkit.classifier.features import feature_map
from robustkit.classifier.session import Session
from robustkit.errors import UserError
from robustkit.evidence.store import Store
from robustkit.evidence.witnesses import KeptWitness, kept_witnesses
from robustkit.limits import shortened
from robustkit.primitives.lpips_ball import FeatureMap
from robustkit.primitives.mask import unmasked
from robustkit.primitives.perceptual import OWN
from robustkit.primitives.reachable_code import code_of
from robustkit.primitives.threat import exact, needs_network
from robustkit.primitives.user_code import address, user_function

_SLACK = 1e-6  # features differ in their last digits between machines; a point counts from 1e-4 within the radius


@dataclass(frozen=True)
class GivenFeatures:
    """A network that the caller names again, as a run's evidence is no reason to execute a file or to download one.

    Args:
        network: as the run's attacks named it.
        weights: likewise.
    """

    network: str
    weights: str | None = None

    def difference(self, entry: Mapping[str, Any]) -> str:
        """Why it is another network than that of an attack in a manifest; empty if it is not."""
        where = address(self.network)
        if (self.network if where is None else where.name) != entry["network"]:
            return f"the run's features are those of {shortened(str(entry['network']))}"
        if where is not None and code_of(user_function(where)) != entry.get("network.code"):
            return f"the code of {shortened(self.network)} is another one than that of the run"
        if self.weights != entry["weights"]:
            return f"the weights of the run's network are {shortened(str(entry['weights']))}"
        return ""


@dataclass(frozen=True)
class _Named:
    """Whose features are compared."""

    network: str
    weights: str | None
    layers: str | None


@dataclass
class Remeasured:
    """What a network says about the distances of one model's examples."""

    model: str
    examples: int = 0  # that were measured
    too_far: set[int] = field(default_factory=set)  # images of which an example lies outside of its ball
    other_network: bool = False  # whether features of another network than the model were compared
    reasons: set[str] = field(default_factory=set)  # why others were not measured


def remeasured(store: Store, name: str, session: Session, given: GivenFeatures | None) -> Remeasured:
    """Measure the examples of a model again whose distance is one of features.

    Args:
        store: the evidence.
        name: of the run's model.
        session: of the same model.
        given: the network whose features are compared, unless they are the model's own.
    """
    attacks = {entry["name"]: entry for entry in store.manifest()["identity"]["attacks"]}
    found, maps = Remeasured(name), dict[str, FeatureMap]()
    for witness in kept_witnesses(store, name):
        entry = attacks.get(witness.row.attack)
        if entry is None or not needs_network(unmasked(witness.row.norm)):
            continue
        reason = _unknown(entry, given)
        if reason:
            found.reasons.add(reason)
            continue
        key = f"{entry['network']} {entry['layers']}"
        if key not in maps:
            maps[key] = _features(entry, given, session, witness)
        found.examples += 1
        found.other_network |= entry["network"] != OWN
        if _distance(maps[key], session, witness) > float(exact(witness.row.eps_text)) * (1 + _SLACK):
            found.too_far.add(witness.row.sample)
    return found


def _unknown(entry: Mapping[str, Any], given: GivenFeatures | None) -> str:
    """Why the features of an attack cannot be had; empty if they can."""
    if entry.get("network") == OWN:
        return ""
    if "network" not in entry:
        return f"{shortened(str(entry['name']))} does not say whose features it compares"
    if given is None:
        return f"it takes the network {shortened(str(entry['network']))}; name it again with --features"
    return given.difference(entry)


def _features(
    entry: Mapping[str, Any], given: GivenFeatures | None, session: Session, witness: KeptWitness
) -> FeatureMap:
    network, weights = (OWN, None) if given is None or entry["network"] == OWN else (given.network, given.weights)
    images = session.input.moved(torch.from_numpy(witness.x.copy()).unsqueeze(0))
    return feature_map(_Named(network, weights, entry["layers"]), session.reference, torch.cat([images, images]))


def _distance(features: FeatureMap, session: Session, witness: KeptWitness) -> float:
    pair = torch.stack([torch.from_numpy(part.copy()) for part in (witness.x, witness.x_adv)])
    near, far = features(session.input.moved(pair)).double()
    away: float = (far - near).norm().item()
    if not math.isfinite(away):
        raise UserError("The features of a stored adversarial example are not finite; is it the network of the run?")
    return away
