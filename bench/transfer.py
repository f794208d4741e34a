"""Transfer success, source by target: points crafted on one network and judged by others.

Digits' test split, images that all networks of a seed classify rightly. A seed is one training of every network; the
interval is Wilson's over all images of all seeds and takes them as independent, which the same image under two seeds
is not. Attacks that find no place in a network (PNA and TGR want attention, LinBP nn.ReLU) say so and have no row.

    python bench/transfer.py [--images 40] [--seeds 0] [--eps 0.1,0.2] [--sources resnet18,mobilenet_v3_small,vit]
"""

import argparse
import time
from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit import UserError, attack, load_dataset, load_model
from robustkit.models import cache, checkpoint
from robustkit.models.clean_training import CleanRecipe
from robustkit.primitives import registry
from robustkit.statistics.intervals import proportion

EPOCHS = 25  # of the transformer
CNNS = ("resnet18", "densenet121", "mobilenet_v3_small")
# FIA with a third of its masked copies, which cost as many passes as all its steps.
# A layer about half-way for the attacks on features: the networks' own stages are too few to have one in the middle.
MIDDLE = {
    "resnet18": "layer2",
    "densenet121": "features.denseblock2",
    "mobilenet_v3_small": "features.6",
    "vit": "1.encoder.layers.encoder_layer_1",
}
METHODS = ("bim", "mifgsm", "sgm", "linbp", "ila:layer=MIDDLE", "fia:ensemble=10,layer=MIDDLE", "ghost", "pna", "tgr")


class Count(NamedTuple):
    broken: int = 0
    images: int = 0

    def __str__(self) -> str:
        share = proportion(*self)
        return f"{100 * share.value:5.1f} ({100 * share.low:4.1f}-{100 * share.high:5.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--eps", default="0.1,0.2")
    parser.add_argument("--sources", default="resnet18,mobilenet_v3_small,vit")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    names = (*CNNS, "vit")
    counts: dict[tuple[str, str, str, str], Count] = defaultdict(Count)
    for seed in map(int, options.seeds.split(",")):
        models = networks(seed)
        x, y = rightly(models, options.images)
        print(f"seed {seed}: {len(x)} images, {time.process_time() - began:.0f} s of CPU time", flush=True)
        for source in options.sources.split(","):
            for eps in options.eps.split(","):
                for method in METHODS:
                    for target, broken in transferred(models, source, method, eps, x, y, seed).items():
                        before = counts[eps, source, method, target]
                        counts[eps, source, method, target] = Count(before.broken + broken, before.images + len(x))
    for eps in options.eps.split(","):
        print(f"\nLinf {eps}: success in %, 95 % interval; * white-box\n{'source':19}{'method':10}", end="")
        print("".join(f"{name:>24}" for name in names))
        for source in options.sources.split(","):
            for method in METHODS:
                if (eps, source, method, source) not in counts:
                    continue  # no place for it, as was said above
                shown = [f"{counts[eps, source, method, name]}{'*' * (name == source)}" for name in names]
                print(f"{source:19}{method.partition(':')[0]:10}" + "".join(f"{text:>24}" for text in shown))
    print(f"\n{time.process_time() - began:.0f} s of CPU time")


def networks(seed: int) -> dict[str, nn.Module]:
    """Every network, trained with that seed; the first time for minutes, then from the cache."""
    found: dict[str, nn.Module] = {
        name: load_model(name, dataset="digits", recipe=CleanRecipe(seed=seed)).requires_grad_(False) for name in CNNS
    }
    return found | {"vit": vit(seed)}


def vit(seed: int) -> nn.Module:
    """torchvision's vision transformer at the size of digits: patches of 2 x 2, four blocks."""
    from torchvision.models import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(Coloured(), VisionTransformer(8, 2, 4, 4, 64, 128, num_classes=10))
        path = cache.path_of("bench_vit", "digits", {"seed": seed, "epochs": EPOCHS})
        if path.exists():
            model.load_state_dict(checkpoint.read_state(path))
        else:
            fit(model)
            cache.store(path, model.state_dict(), {"model": "bench_vit", "dataset": "digits", "val_accuracy": "nan"})
    return model.eval().requires_grad_(False)


def fit(model: nn.Module) -> None:
    data = load_dataset("digits", "train")
    x, y = data.batch(range(len(data)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, EPOCHS * -(-len(x) // 64))
    for _ in range(EPOCHS):
        for part in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimiser.step()
            schedule.step()


class Coloured(nn.Module):
    """Gray images as three equal channels in [-1, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x.expand(-1, 3, -1, -1) - 1


def rightly(models: dict[str, nn.Module], count: int) -> tuple[Tensor, Tensor]:
    """The first images that every network classifies rightly."""
    data = load_dataset("digits", "test")
    x, y = data.batch(range(len(data)))
    right = torch.ones(len(x), dtype=torch.bool)
    for name, model in models.items():
        mine = labels(model, x) == y
        print(f"  {name}: clean accuracy {100 * mine.float().mean():.1f} % of {len(x)}")
        right &= mine
    chosen = right.nonzero().flatten()[:count]
    return x[chosen], y[chosen]


def transferred(
    models: dict[str, nn.Module], source: str, method: str, eps: str, x: Tensor, y: Tensor, seed: int
) -> dict[str, int]:
    """How many images each network gets wrong at points crafted on one of them; empty where the attack has no place."""
    try:
        # Judged on itself, but as a surrogate: no trial ends before its last step.
        crafted = attack(
            models[source],
            x,
            y,
            registry.build(method.replace("MIDDLE", MIDDLE[source]), "Linf", eps),
            surrogate=models[source],
            seed=seed,
        )
    except UserError as error:
        print(f"  {method} on {source}: {error}")
        return {}
    return {name: int((labels(model, crafted.x_adv) != y).sum()) for name, model in models.items()}


@torch.no_grad()
def labels(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in x.split(64)])


if __name__ == "__main__":
    main()
