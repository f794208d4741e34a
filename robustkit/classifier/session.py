"""A model that is ready to be queried: what is true only while `Classifier.session()` lasts."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.oracle import Oracle
from robustkit.classifier.reference import PassCount, Reference
from robustkit.classifier.search import Search
from robustkit.nethook import Trace
from robustkit.primitives.protocol import Attack, FeatureAttack, Seen, State

_JUDGED_AT_ONCE = 64


@dataclass(frozen=True)
class Session:
    """An oracle with the networks behind it."""

    name: str
    reference: Reference
    search: Search
    oracle: Oracle

    @property
    def network(self) -> nn.Module:
        """The network whose layers are meant when one is named."""
        return self.search.network

    @property
    def input(self) -> InputFormat:
        """The range, device and type of the model's input."""
        return self.reference.input

    @property
    def sizes(self) -> BatchSizes:
        """The batch sizes in which the model may be queried."""
        return self.reference.sizes

    @property
    def passes(self) -> PassCount:
        """Rows that the networks have processed in this session."""
        return self.reference.passes

    def query(self, attack: Attack, state: State) -> Seen:
        """What `attack` may see of the search network at `state.query`, row by row."""
        return self.oracle.query(attack, state)

    def logits(self, points: Tensor) -> Tensor:
        """Logits `[n, K]` of the unmodified network at points `[n, *S]`, one forward each."""
        return self.reference.logits(points)

    def judge(self, points: Tensor) -> Tensor:
        """`[N, K]` scores of the unmodified model at any number of points, on the CPU."""
        return torch.cat([self.oracle.judge(part) for part in torch.split(points, _JUDGED_AT_ONCE)]).cpu()

    def prepared(self, attack: Attack, images: Tensor) -> Attack:
        """`attack` as it can be run on this model: an attack on a layer gets the shape of the layer's output.

        Raises:
            UserError: the oracle cannot answer it.
        """
        self.oracle.check(attack)
        if not isinstance(attack, FeatureAttack) or attack.feature_shape:
            return attack
        layer = attack.layer_in(self.network)
        with Trace(self.network, [layer]) as trace:
            self.reference.forward(images[:2])
        return attack.at(tuple(trace[layer].output.shape[1:]))
