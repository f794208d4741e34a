"""A search for the nearest training image inside a network: a defense that the checks of the default attack do not see.

    python bench/retrieval.py [--images 100] [--eps 0.15]

The layer moves each image a share of the way to its nearest training image. Its gradient is right until another image
becomes the nearest, and says nothing of that one. A softmax over the distances, in its place (BPDA), does.
"""

import argparse
import warnings
from collections import OrderedDict

import torch
from torch import Tensor, nn

from robustkit import Classifier, diagnose, evaluate, load_dataset, masked_defenses

SHARE = 0.7
SHARPNESS = 10.0  # of the softmax over distances


class Retrieve(nn.Module):
    """The image, mixed with the training image that is nearest in L2."""

    images: Tensor  # [N, D]

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self.register_buffer("images", images.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, *S]`."""
        nearest = torch.cdist(x.flatten(1), self.images).argmin(1)
        return SHARE * self.images[nearest].view_as(x) + (1 - SHARE) * x

    def smooth(self, x: Tensor) -> Tensor:
        """The same with a mean of training images, the nearer ones weighing more."""
        weights = (-SHARPNESS * torch.cdist(x.flatten(1), self.images)).softmax(1)
        return SHARE * (weights @ self.images).view_as(x) + (1 - SHARE) * x


def main() -> None:
    """Print a line for each way to attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--eps", default="0.15")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    train = load_dataset("digits", "train")
    retrieve = Retrieve(train.batch(range(len(train)))[0])
    network = masked_defenses.base_network()
    defended = nn.Sequential(OrderedDict(retrieve=retrieve, net=network)).eval()
    x, y = load_dataset("digits").batch(range(given.images))
    ways = {
        "undefended, default": (Classifier(network), "default", None),
        "default": (Classifier(defended), "default", None),
        "square:queries=5000": (Classifier(defended), "square:queries=5000", None),
        "default, audited by AutoAttack": (Classifier(defended), "default", 30),
        "default, smooth in its place": (Classifier(defended, bpda={"retrieve": retrieve.smooth}), "default", None),
    }
    for name, (classifier, attack, audit) in ways.items():
        run = evaluate(classifier, dataset=(x, y), attacks=attack, eps=given.eps, audit=audit, checks="standard")
        row = run.results[run.results["role"] == "worst-case"].iloc[0]
        alarms = [check.name for check in run.checks if check.status in ("failed", "warning")]
        print(
            f"{name:32} {100 * row.accuracy:5.1f} %  clean {100 * run.results.accuracy[0]:.1f} %  {alarms}", flush=True
        )
    print("diagnose:", diagnose(defended, x, y, eps=given.eps).verdict)


if __name__ == "__main__":
    main()
