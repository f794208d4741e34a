"""The verdict on the network: from what was measured layer by layer, and from what the attacks of the proof show.

A low fidelity alone is no masking: a straight-through estimator or a recurrent network can have one, and attacks
succeed. And a high fidelity does not exclude it. So a verdict needs a proof, except where the measurements leave no
doubt: no gradient reaches the image, the model is randomized, or rounding destroys the gradient of the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .assessment import LOST, Assessment
from .calls import CallRun
from .proof import ENOUGH, Proof
from .record import Verdict
from .subject import Subject
from .verdicts import MASKING, WHOLE_FAITHFUL, median, share


@dataclass(frozen=True)
class Conclusion:
    """The verdict on the network, and one sentence that gives the reason."""

    verdict: Verdict
    reason: str


def conclude(assessment: Assessment, proof: Proof | None) -> Conclusion:
    """The verdict that follows from the verdicts of all calls, the numbers of the whole network and the proof."""
    causes, whole, verdicts = assessment.causes, assessment.whole, assessment.verdicts
    kinds = {verdicts[run.site] for run in causes}
    places = _places(causes)
    zero = share(whole.zero)
    if kinds & {*MASKING} and (assessment.blocked or (proof is not None and proof.shows_masking)):
        return Conclusion("masked", f"Gradients are masked at {places}, so a robust accuracy measured with them "
                          "says nothing about robustness.")  # fmt: skip
    if proof is not None and proof.shows_masking and not causes:
        return Conclusion("masked", f"{_missed(proof)}, so a robust accuracy measured with gradient attacks says "
                          f"nothing about robustness; {_unexplained(assessment)}.")  # fmt: skip
    if "randomized" in kinds:
        return Conclusion("randomized", f"Outputs are randomized at {places}, so an attack must average gradients over "
                          "draws, and a verdict must count many answers.")  # fmt: skip
    if "loss saturated" in kinds:
        return Conclusion("loss saturated", "The loss has no usable gradient for "
                          f"{_percent(share(whole.lost))} of the images.")  # fmt: skip
    if zero > LOST and share(whole.still) == 1:
        return Conclusion("inconclusive", _constant(assessment))
    if zero > LOST:
        return Conclusion("inconclusive", f"The input gradient is exactly zero for {_percent(zero)} of the images, "
                          "and no layer says why.")  # fmt: skip
    suspects = f" at {places}" if causes else ""
    if proof is None:
        tested = f"Gradients may mislead{suspects}" if causes else _unsuspected(assessment)
        return Conclusion("inconclusive", f"{tested}, but no attack was run; run the command without --no-proof.")
    return _from_proof(assessment, proof, suspects)


def _unexplained(assessment: Assessment) -> str:
    stops = assessment.unexplained_stops
    if not stops:
        return "no layer that was examined explains it"
    return f"they do not see what follows {stops}"


def _constant(assessment: Assessment) -> str:
    """The reason where no logit changes with the image."""
    flat = [run for run in assessment.runs if assessment.verdicts[run.site] == "flat"]
    first = f" The first call whose output stays the same is {_places(flat[:1])}." if flat else ""
    return (
        "No logit changes when an image moves by eps, so there is no gradient to mask: the model ignores its input, or "
        f"is constant around these images.{first} Correct the model, or attack it without gradients (--attack square)."
    )


def _from_proof(assessment: Assessment, proof: Proof, suspects: str) -> Conclusion:
    """The verdict where the proof shows no masking."""
    if proof.before is None:
        return Conclusion("inconclusive", "No attack with the model's own gradients could run, so nothing shows "
                          "whether they mislead.")  # fmt: skip
    if not proof.attack_search:
        return Conclusion("inconclusive", "No attack without gradients could be tried, so masked gradients cannot "
                          "be excluded.")  # fmt: skip
    most = f"{100 * proof.most_missed:.0f} points"
    if not proof.excludes_masking:
        why = "too few to show that gradients are masked, too many to exclude it"
        why = f"too few to tell; give at least {ENOUGH} images" if proof.n < ENOUGH else why
        return Conclusion("inconclusive", f"{_missed(proof)}{suspects and f' (suspected{suspects})'}: {why}. Robust "
                          f"accuracy may be up to {most} too high (95 % bound).")  # fmt: skip
    ties = "tied logits" in assessment.verdicts.values()
    tied = " The model's wrong classes tie, so trust targeted attacks." if ties else ""
    calls = _unsuspected(assessment)
    calls = f"The gradient{suspects} is not faithful, but attacks succeed with it" if suspects else calls
    return Conclusion("clear", f"{calls}: after gradient attacks, the proof's other attacks lower robust accuracy "
                      f"by at most {most} (95 % bound).{tied}")  # fmt: skip


def _missed(proof: Proof) -> str:
    return f"Of {proof.n} images another attack breaks {proof.missed or 'none'} that gradient attacks do not"


def _unsuspected(assessment: Assessment) -> str:
    examined = len(assessment.runs)
    return f"No layer masks its gradient ({examined} call{'s' * (examined != 1)} examined)"


def notes(assessment: Assessment, proof: Proof | None, subject: Subject, final: Conclusion) -> tuple[str, ...]:
    """What else a reader should know."""
    whole, sentences, loss = assessment.whole, [], subject.loss
    explained = final.verdict == "masked" and bool(assessment.causes)
    if final.verdict == "masked" and proof is not None and proof.remedy_gains_nothing:
        sentences.append(
            "The remedy alone breaks no more images than the model's own gradients, so it is not enough here: attack "
            "without gradients (--attack square), and try a smooth function in place of the layer (--bpda "
            "LAYER=file.py:smooth)."
        )
    if median(whole.fidelity) < WHOLE_FAITHFUL and not explained:
        sentences.append(
            "From image to margin the gradient does not predict a move of size eps, because of depth or of curved code "
            "in a forward method; use many small steps, restarts, and an attack without gradients."
        )
    stops = assessment.unexplained_stops
    if proof is not None and stops and final.verdict != "masked":
        sentences.append(f"The proof's attacks followed gradients straight through {stops}, too.")
    if assessment.unseen and share(whole.zero) < 1:
        sentences.append(
            "Values of the image at which the gradient is exactly zero move the logits "
            f"{_percent(median(whole.unseen))} as far as all values do: attacks with gradients do not see them. Look "
            "for a threshold, a clamp, a mask or pooling in front of the first layer, and attack without gradients, "
            "too (--attack square). A clamp in a layer of its own, as nn.Hardtanh, has a remedy: --bpda LAYER."
        )
    if share(whole.correct) < 0.5:
        sentences.append(
            f"Only {_percent(share(whole.correct))} of the images are classified correctly; few can be attacked."
        )
    if loss != "ce" and share(whole.lost_ce) > LOST:
        sentences.append(
            f"Cross-entropy would have no usable gradient for {_percent(share(whole.lost_ce))} of the images; {loss} "
            "has. Attacks on cross-entropy fail here."
        )
    classifier = subject.classifier
    if classifier.bpda or classifier.straight_through or classifier.eot or classifier.probabilities:
        sentences.append(
            "The remedies given with the model are used by the attacks of the proof, not by the measurements."
        )
    return tuple(sentences)


def _places(runs: Sequence[CallRun]) -> str:
    return ", ".join(f"'{run.site.layer}'" if run.site.layer else "the model's own forward" for run in runs)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
