"""Whether a randomized model answers each row on its own.

After the same seed, other neighbours must not change an answer. What changes it may be harmless: a model that draws as
many numbers as its input calls for (Poisson noise) moves the numbers of later rows. So an answer that changed is
compared as a distribution, over many seeds, before the model is refused.
"""

import math

import torch
from torch import Tensor

from robustkit.classifier.generators import reseed
from robustkit.classifier.logit_sizes import sizes
from robustkit.classifier.logits import require_finite
from robustkit.classifier.session import Session
from robustkit.errors import UserError

_TOLERANCE = 1e-3  # of the sizes of the logits, as for models that are not randomized
_SEEDS = 64  # draws of the distribution in each company
_LEVEL = 1e-4  # of the test whether both companies have the same mean


def check_rows_apart(session: Session, tile: Tensor) -> None:
    """Check that the answer for an image does not depend on the other images of its batch.

    Args:
        session: of a randomized model.
        tile: `[B, *S]` images, an even number.

    Raises:
        UserError: it does, or the model returns NaN.
    """
    logits = _answer(session, tile, 0)
    require_finite(logits)
    allowed = _TOLERANCE * sizes(logits)
    for company in _companies(tile):
        kept = (company == tile).flatten(1).all(1)
        changed = (_answer(session, company, 0) - logits).abs() > allowed
        if bool(changed[kept].any()) and _means_differ(session, tile, company, kept):
            raise UserError(
                "The model draws random numbers, and its answer for an image depends on the other images of its batch, "
                "so its verdict would too; put BatchNorm and the like in eval mode, or feed one image at a time "
                "inside the model."
            )


def _companies(tile: Tensor) -> list[Tensor]:
    """The same batch with one half of its images replaced by bright negatives, then the other half by dark images.

    Their means and variances differ from those of the images, as a plain negative's need not.
    """
    half = len(tile) // 2
    return [torch.cat([tile[:half], 1 - tile[half:] / 4]), torch.cat([tile[:half] / 4, tile[half:]])]


def _answer(session: Session, tile: Tensor, number: int) -> Tensor:
    reseed(session.seed + number)
    return session.reference.forward(tile)


def _means_differ(session: Session, tile: Tensor, company: Tensor, kept: Tensor) -> bool:
    """Student's test of the mean difference of each kept row, for each class, with the same seeds in both batches."""
    from scipy.stats import t

    one, other = (
        torch.stack([_answer(session, batch, number)[kept] for number in range(_SEEDS)]).double().cpu()
        for batch in (tile, company)
    )
    change = one - other
    bound = float(t.isf(_LEVEL / change[0].numel() / 2, _SEEDS - 1))
    return bool((change.mean(0).abs() > bound * change.std(0) / math.sqrt(_SEEDS)).any())
