"""An attack of the user's own gets one image alone first: the outcome must not depend on the images beside it."""

from typing import NamedTuple

import torch

from robustkit.classifier.oracle import Plain
from robustkit.classifier.session import Session
from robustkit.engine.jobs import Job, Outcome
from robustkit.engine.scheduler import run
from robustkit.primitives.protocol import Attack


class AttackedAlone(NamedTuple):
    """What an attack found with nothing beside the image."""

    attack: Attack
    outcome: Outcome

    def difference(self, among_others: Outcome) -> str:
        """A warning, if the same image has another outcome among others, for another cause than the loss; or empty."""
        one = self.outcome
        same = (one.success, one.label, one.queries) == (among_others.success, among_others.label, among_others.queries)
        if same and torch.equal(one.x_adv, among_others.x_adv):
            return ""
        if self.attack.faults:  # which the run says, with the cause
            return ""
        name = type(self.attack).__name__
        return (
            f"{name} finds another point for image {one.sample} alone than among other images, so its results depend "
            f"on the batch. robustkit.testing.check_attack({name}(...)) names the cause, such as a mean over the "
            "batch, the global random generator, or a state that the attack keeps."
        )


def answers_alike(session: Session) -> bool:
    """Whether a model's answers must have equal bits alone and among others, at no cost.

    Not on a GPU, nor on a model whose answers depend on the batch or on chance; nor on a server, which counts queries.
    """
    plain = isinstance(session.oracle, Plain) and session.sizes.note is None
    return plain and session.input.device.type == "cpu"


def attacked_alone(attack: Attack, job: Job, session: Session, surrogate: Session | None, seed: int) -> AttackedAlone:
    """The outcome of one image with nothing beside it."""
    (outcome,) = run(session, attack, [job], slots=1, seed=seed, surrogate=surrogate)
    return AttackedAlone(attack, outcome)
