"""A model that is ready to be queried: what is true only while `Classifier.session()` lasts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustkit.classifier import rejection
from robustkit.classifier.access import require_access
from robustkit.classifier.batch_sizes import BatchSizes
from robustkit.classifier.features import feature_map
from robustkit.classifier.gradient_stops import gradient_stops
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.logits import of_probabilities
from robustkit.classifier.metered import Metered
from robustkit.classifier.oracle import Look, Oracle, PointVerdicts
from robustkit.classifier.read_gradients import answered_by_count, gradients_read
from robustkit.classifier.reference import PassCount, Reference
from robustkit.classifier.repeatability import Repeatability
from robustkit.classifier.search import Search
from robustkit.errors import UserError
from robustkit.nethook import Trace
from robustkit.nethook.op_sites import GradientStop
from robustkit.primitives import noise
from robustkit.primitives.levels import at_whole_levels
from robustkit.primitives.perceptual import PerceptualAttack
from robustkit.primitives.protocol import Attack, ClasswiseAttack, FeatureAttack, Seen, State
from robustkit.primitives.rows import padded
from robustkit.statistics.single_draw import FreshDraws

_JUDGED_AT_ONCE = 64
_CLEAN = 1 << 40  # apart from the seeds of attacks' noise


@dataclass(frozen=True)
class Session:
    """An oracle with the networks behind it."""

    name: str
    reference: Reference
    search: Search
    oracle: Oracle
    seed: int
    repeatability: Repeatability
    answers_only: bool = False  # whether the model is a black box
    rejects: bool = False  # whether the model's last output is that of a rejection

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

    @property
    def metered(self) -> bool:
        """Whether the model is a server, which gets pictures of 8 bits."""
        return isinstance(self.oracle, Metered)

    @property
    def replaces_gradients(self) -> bool:
        """Whether attacks follow gradients that replace the network's own."""
        return bool(self.search.options.bpda) or self.search.options.straight_through

    def require_access(self, attack: Attack) -> None:
        """Check that the model gives what the attack needs to see, and has the layers whose gradients are replaced.

        Raises:
            UserError: it does not; the sentence names the way out.
        """
        replaced = self.search.options.bpda
        if self.answers_only or replaced:
            require_access(self.name, self.reference.model, attack, replaced)

    def in_its_levels(self, attack: Attack) -> Attack:
        """The attack at the radius that its points can use where this model judges them.

        Raises:
            UserError: pictures of 8 bits have none inside the ball but the clean one, or are not rounded into it.
        """
        if self.metered and attack.ball.needs_network:
            raise UserError(f"{self.name} is a server, which returns no features; give a norm in place of lpips.")
        return at_whole_levels(attack) if self.metered else attack

    def query(self, attack: Attack, state: State) -> Seen:
        """What `attack` may see of the search network at `state.query`, row by row; of gradients what it reads."""
        if attack.reads_all_gradients:
            return self.oracle.query(attack, state)

        def ask(rows: Tensor, most: int) -> Seen:
            size = self.sizes.fit(len(rows), len(state), self.search.kind_of(attack, most))
            seen = self.oracle.query(attack, state.take(padded(rows, size)), most=most)
            return seen.take(self.sizes.numbers(len(rows), rows.device))

        return answered_by_count(gradients_read(attack, state), ask, state.query)

    def logits(self, points: Tensor) -> Tensor:
        """Logits `[n, K]` of the unmodified network at points `[n, *S]`, one forward each."""
        return self.reference.logits(points)

    def logits_for_attacker(self, points: Sequence[Tensor], y: Tensor, near: Tensor) -> list[Tensor]:
        """Logits `[n, K]` of the unmodified network, as attacks see them that follow a gradient from nearby.

        One forward for each point, and one more for each row where the model rejects. Of a network that returns
        probabilities, their logarithms.

        Args:
            points: each `[n, *S]` in [0, 1].
            y: `[n]` int64 true classes, in whose place an attack sees a rejection.
            near: `[n, *S]` where the gradient is.
        """
        answers = [self._searched_logits(each) for each in points]
        if not self.rejects:
            return answers
        there, scale = self._searched_logits(near), self.search.rejection_scale
        return [rejection.near(each, y, scale, there) for each in answers]

    def _searched_logits(self, points: Tensor) -> Tensor:
        logits = self.logits(points)
        return of_probabilities(logits.to(points.dtype)) if self.search.options.probabilities else logits

    def judge(self, points: Tensor) -> Tensor:
        """`[N, K]` scores of the unmodified model for its classes at any number of points, on the CPU."""
        scores = torch.cat([self.oracle.judge(part) for part in torch.split(points, _JUDGED_AT_ONCE)]).cpu()
        return rejection.of_classes(scores) if self.rejects else scores

    def classes(self, images: Tensor) -> int:
        """The number of classes of the model, by one forward pass of images `[n, *S]`; a rejection is none."""
        return self.reference.forward(images).shape[1] - self.rejects

    def gradient_stops(self, image: Tensor) -> tuple[GradientStop, ...]:
        """The operations of the model's forward on an image `[1, *S]`, and on noise, that pass no gradient on."""
        model, given = self.reference.model, self.input
        stops = gradient_stops(lambda points: model(given.fed(points)), model, image)
        self.passes.forwards += 2
        self.passes.backwards += 2 if stops else 0
        return stops

    def clean_verdicts(self, images: Tensor, numbers: Sequence[int]) -> PointVerdicts:
        """What the unmodified model says about clean images, on the CPU.

        Args:
            images: `[N, *S]` in [0, 1].
            numbers: name the images, and so their noise.
        """
        looks = self._clean_looks(numbers)
        parts = [
            self.oracle.verdicts(images[start : start + _JUDGED_AT_ONCE], looks[start : start + _JUDGED_AT_ONCE])
            for start in range(0, len(images), _JUDGED_AT_ONCE)
        ]
        scores, labels = torch.cat([part.scores for part in parts]), torch.cat([part.labels for part in parts])
        forwards = [spent for part in parts for spent in part.forwards]
        return PointVerdicts(scores.cpu(), labels.cpu(), forwards, self.rejects)

    def clean_draws(self, images: Tensor, y: Sequence[int], numbers: Sequence[int]) -> list[FreshDraws] | None:
        """How often single answers to clean images are their classes `y`; None where every answer is the same."""
        return self.oracle.fresh_draws(images, y, self._clean_looks(numbers))

    def _clean_looks(self, numbers: Sequence[int]) -> list[Look]:
        keys = noise.keys(self.seed + _CLEAN, torch.tensor(list(numbers), dtype=torch.int64, device="cpu"))
        return [Look(key) for key in keys.tolist()]

    def prepared(self, attack: Attack, images: Tensor) -> Attack:
        """`attack` as it can be run on this model: it gets the number of classes, or of its features, if it asks.

        Raises:
            UserError: the model cannot answer it.
        """
        self.require_access(attack)
        self.oracle.check(attack)
        if isinstance(attack, ClasswiseAttack) and not attack.classes:
            return attack.of(self.classes(images[:2]))
        if isinstance(attack, PerceptualAttack) and attack.features is None:
            return attack.with_features(feature_map(attack, self.reference, images))
        if not isinstance(attack, FeatureAttack) or attack.feature_shape:
            return attack
        layer = attack.layer_in(self.network)
        for some in (images[:1], images[:2]):
            with Trace(self.network, [layer]) as trace:
                self.reference.forward(some)
            rows = len(trace[layer].output)
            if rows != len(some):
                raise UserError(
                    f"Layer {layer!r} makes {rows} rows out of {len(some)} image{'s' * (len(some) > 1)}, and "
                    f"{type(attack).__name__} needs one for each; choose another with layer=."
                )
        return attack.at(tuple(trace[layer].output.shape[1:]))
