"""Does a run with an attack that a user names, or of a randomized model, tell that gradients mislead?

The network of the masked defenses behind the functions of `bench/fronts.py`, attacked with PGD; and the same with noise
added to the image before, so that the model is randomized. What the quick checks find: `gradients_mislead`, of which
some survivors are looked at, and the others together.

    python bench/gradient_sample.py [--only L2,waves] [--images 100] [--noise 0.05]
"""

import argparse

import torch
from fronts import EPS, GROUPS, Behind
from torch import nn
from torch.utils.data import TensorDataset

from robustkit import Classifier, evaluate, load_dataset
from robustkit.masked_defenses import base_network
from robustkit.masked_defenses.layers import NoiseLayer


def found(model: Classifier, dataset: TensorDataset, attack: str, norm: str, eps: str) -> list[str]:
    """Accuracy under attack, images that mislead, and the checks that fail."""
    run = evaluate(model, dataset=dataset, attacks=attack, norm=norm, eps=eps, samples=None)
    (check,) = (each for each in run.checks if each.name == "gradients_mislead")
    others = [each.name for each in run.checks if each.status == "failed" and each is not check]
    share = f"{check.numbers['misled']:.0f} of {check.numbers['images']:.0f}" if check.numbers else check.finding
    return [
        f"{run.results.accuracy.iloc[-1]:.0%}", f"{share}{', fails' * (check.status == 'failed')}",
        ", ".join(others) or "-",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="norms and groups of fronts, separated by commas")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.05)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = set(options.only.split(",")) - {""}
    network, dataset = base_network(), TensorDataset(*load_dataset("digits").batch(range(options.images)))
    groups = [name for name in GROUPS if name in chosen] or list(GROUPS)
    print("| norm | in front | PGD | mislead | other checks | with noise | mislead | other checks |")
    print("|---|---|---|---|---|---|---|---|")
    for norm in [name for name in EPS["digits"] if name in chosen] or list(EPS["digits"]):
        eps = EPS["digits"][norm]
        for text, front in ((text, front) for group in groups for text, front in GROUPS[group].items()):
            model = Behind(front, network).eval()
            noisy = Classifier(nn.Sequential(NoiseLayer(options.noise), model).eval(), eot=4, draws=64)
            row = [
                *found(Classifier(model), dataset, "pgd:steps=40", norm, eps),
                *found(noisy, dataset, "pgd:steps=10", norm, eps),
            ]
            print("|", " | ".join([f"{norm} {eps}", f"`{text}`", *row]), "|", flush=True)


if __name__ == "__main__":
    main()
