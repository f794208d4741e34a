"""Linear CKA between two sets of features of the same images, from the unbiased estimate of HSIC.

Kornblith et al. 2019, arXiv:1905.00414, define CKA as HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) with Gram matrices
K = A A' and L = B B'. With their plug-in estimate of HSIC, CKA approaches 1 when there are more features than images,
which is always the case here; the estimate of Song et al. 2012 (JMLR 13, eq. 5) has no bias. It needs at least four
images, and all of them at once: a mean over mini-batches would depend on the batch size.
Bad at: few images. Its spread decreases as 1 / n, and values for unrelated features may be below 0.
"""

import torch
from torch import Tensor

LEAST = 4  # images; the estimate divides by n - 3
MOST = 2048  # images; the work for each layer grows with their square


def gram(features: Tensor) -> Tensor:
    """`[n, n]` float64 inner products of the rows of `[n, ...]` after subtraction of their mean.

    HSIC does not depend on the mean, but rounding errors relative to its square would.
    """
    rows = features.detach().flatten(1).double()
    rows = rows - rows.mean(0)
    return rows @ rows.T


def cka(k: Tensor, other: Tensor) -> float:
    """CKA of two Gram matrices, at most 1; NaN below four images, or where one side's features do not vary."""
    if len(k) < LEAST:
        return float("nan")
    first, second = _centred(k), _centred(other)
    if torch.equal(first, second):
        return 1.0 if bool(first.any()) else float("nan")
    norms = torch.linalg.matrix_norm(first) * torch.linalg.matrix_norm(second)
    return ((first * second).sum() / norms).item() if norms > 0 else float("nan")


def _centred(k: Tensor) -> Tensor:
    """The U-centred matrix (Szekely & Rizzo 2014): zero diagonal, zero row sums.

    The sum of the products of two such matrices is eq. 5 of Song et al. up to a factor. It is an inner product, so the
    Cauchy-Schwarz inequality bounds the CKA by 1.
    """
    n = len(k)
    k = k - torch.diag(k.diagonal())
    rows = k.sum(1)
    k = k - (rows[:, None] + rows[None, :]) / (n - 2) + rows.sum() / ((n - 1) * (n - 2))
    return k - torch.diag(k.diagonal())
