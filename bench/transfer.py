"""Transfer success, source by target: points crafted on one network and judged by others.

Digits' test split, images that all networks of a seed classify rightly. A seed is one training of every network; the
interval is Wilson's over all images of all seeds and takes them as independent, which the same image under two seeds
is not. Attacks that find no place in a network (PNA and TGR want attention, LinBP nn.ReLU) say so and have no row.

    python bench/transfer.py [--images 40] [--seeds 0] [--eps 0.1,0.2] [--sources resnet18,mobilenet_v3_small,vit]

With --inputs, the attacks that transform the network's input instead, ours and those of torchattacks, with the same
steps, copies and momentum. Theirs climb cross-entropy; ours do in the rows that say so, and log-odds in the others.

    python bench/transfer.py --inputs --images 40 --seeds 0,1,2 --eps 0.2 --sources resnet18,vit [--alone]
    python bench/transfer.py --parity
"""

import argparse
import time
from collections import defaultdict
from itertools import product
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from robustkit import Classifier, UserError, attack, load_dataset, load_model
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
# About fifty queries for each attack on several copies; five neighbours are the default of torchattacks.
INPUTS = (
    "mifgsm", "nifgsm", "difgsm", "tifgsm", "tifgsm:diversity=0.5", "sinifgsm", "vmifgsm:copies=5", "vnifgsm:copies=5",
    "vmifgsm:copies=5,diversity=0.5,kernel=3", "ssa:copies=5", "bsr:copies=5", "pgn:copies=3",
    "admix:copies=2", "admix:copies=2,blocks=1", "admix:copies=2,portion=0", "mifgsm:loss=ce",
    "difgsm:loss=ce", "tifgsm:loss=ce", "sinifgsm:loss=ce", "vmifgsm:loss=ce,copies=5",
)  # fmt: skip
# Kernels of 3 x 3, as ours take them for images of 8 x 8.
PEERS: dict[str, dict[str, Any]] = {
    "torchattacks MIFGSM": {}, "torchattacks DIFGSM": {"decay": 1.0},
    "torchattacks TIFGSM": {"decay": 1.0, "diversity_prob": 0.0, "len_kernel": 3},
    "torchattacks TIFGSM, diverse": {"decay": 1.0, "len_kernel": 3}, "torchattacks SINIFGSM": {},
    "torchattacks VMIFGSM": {}, "torchattacks VNIFGSM": {},
}  # fmt: skip


class Count(NamedTuple):
    broken: int = 0
    images: int = 0

    def __str__(self) -> str:
        share = proportion(*self)
        return f"{100 * share.value:5.1f} ({100 * share.low:4.1f}-{100 * share.high:5.1f})"


class Cell(NamedTuple):
    eps: str
    method: str
    source: str
    target: str
    seed: int


def main() -> None:
    options = arguments()
    if options.parity:
        parity()
        return
    methods = (*INPUTS, *(() if options.alone else PEERS)) if options.inputs else METHODS
    torch.set_num_threads(1)
    began = time.process_time()
    counts: dict[Cell, Count] = {}
    for seed in map(int, options.seeds.split(",")):
        models = networks(seed)
        x, y = rightly(models, options.images)
        for source, eps in product(options.sources.split(","), options.eps.split(",")):
            print(f"seed {seed}: {len(x)} images, {time.process_time() - began:.0f} s of CPU time", flush=True)
            for method in methods:
                for target, broken in transferred(models, source, method, eps, x, y, seed).items():
                    counts[Cell(eps, method, source, target, seed)] = Count(broken, len(x))
        for eps in options.eps.split(","):
            print(f"\nLinf {eps}: mean success on held-out networks in %, seeds so far (each seed)")
            print_means({cell: count for cell, count in counts.items() if cell.eps == eps})
    for eps in options.eps.split(","):
        print(f"\nLinf {eps}: success in %, 95 % interval; * white-box")
        print_table({cell: count for cell, count in counts.items() if cell.eps == eps}, not options.inputs)
    print(f"\n{time.process_time() - began:.0f} s of CPU time")


def parity() -> None:
    """How many points of attacks without random numbers are those of torchattacks, in float64 and unfolded."""
    model, data = vit(0).double(), load_dataset("digits", "test")
    classifier, (x, y) = Classifier(model, fold=False), data.batch(range(12))
    for ours, theirs in (("mifgsm:loss=ce", "torchattacks MIFGSM"), ("sinifgsm:loss=ce", "torchattacks SINIFGSM")):
        mine = attack(classifier, x.double(), y, registry.build(ours, "Linf", "0.2"), surrogate=classifier)
        away = (mine.x_adv - by_torchattacks(model, theirs, 0.2, x.double(), y, 0)).abs().flatten(1).amax(1)
        right = mine.clean_correct
        print(f"{ours}: {int((away[right] < 1e-6).sum())} of {int(right.sum())} points are those of {theirs}")


def print_table(counts: dict[Cell, Count], short: bool) -> None:
    """A line for each attack on each source, a column for each target; seeds are added up."""
    rows: dict[tuple[str, str], dict[str, list[Count]]] = defaultdict(lambda: defaultdict(list))
    for cell, count in counts.items():
        name = cell.method.partition(":")[0] if short else cell.method
        rows[cell.source, name][cell.target].append(count)
    width = 2 + max(len(name) for _, name in rows)
    print(f"{'source':19}{'method':{width}}" + "".join(f"{name:>24}" for name in (*CNNS, "vit")))
    for (source, name), targets in rows.items():
        added = {target: Count(*map(sum, zip(*each, strict=True))) for target, each in targets.items()}
        shown = [f"{added[target]}{'*' * (target == source)}" for target in (*CNNS, "vit")]
        print(f"{source:19}{name:{width}}" + "".join(f"{text:>24}" for text in shown))


def print_means(counts: dict[Cell, Count]) -> None:
    """Mean success over all pairs of a source and another target, and the same of each seed."""
    shares: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell, count in counts.items():
        if cell.source != cell.target:
            shares[cell.method][cell.seed].append(100 * count.broken / count.images)
    for method, seeds in shares.items():
        means = [mean(each) for each in seeds.values()]
        print(f"{method:45}{mean(means):6.1f} ({', '.join(f'{each:.1f}' for each in means)})", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--eps", default="0.1,0.2")
    parser.add_argument("--sources", default="resnet18,mobilenet_v3_small,vit")
    parser.add_argument("--inputs", action="store_true")
    parser.add_argument("--parity", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without torchattacks")
    return parser.parse_args()


def networks(seed: int) -> dict[str, nn.Module]:
    """Every network, trained with that seed; the first time for minutes, then from the cache."""
    found: dict[str, nn.Module] = {
        name: load_model(name, dataset="digits", recipe=CleanRecipe(seed=seed, good=0.0)).requires_grad_(False)
        for name in CNNS
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


class Gray(nn.Module):
    """A network for gray images that is given three channels; equal ones stay equal along its gradients."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x.mean(1, keepdim=True))
        return logits


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
    if method in PEERS:
        points = by_torchattacks(models[source], method, float(eps), x, y, seed)
    else:
        made = registry.build(method.replace("MIDDLE", MIDDLE[source]), "Linf", eps)
        try:
            # Judged on itself, but as a surrogate: no trial ends before its last step.
            points = attack(models[source], x, y, made, surrogate=models[source], seed=seed).x_adv
        except UserError as error:
            print(f"  {method} on {source}: {error}")
            return {}
    return {name: int((labels(model, points) != y).sum()) for name, model in models.items()}


def by_torchattacks(model: nn.Module, method: str, eps: float, x: Tensor, y: Tensor, seed: int) -> Tensor:
    """Points of torchattacks, in batches of 20."""
    import torchattacks

    kind = getattr(torchattacks, method.split()[1].rstrip(","))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Its TIFGSM convolves three channels, whatever the image has.
        peer = kind(Gray(model).eval(), eps=eps, alpha=eps / 10, steps=10, **PEERS[method])
        parts = [peer(images.expand(-1, 3, -1, -1), of) for images, of in zip(x.split(20), y.split(20), strict=True)]
    return torch.cat(parts)[:, :1]


@torch.no_grad()
def labels(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in x.split(64)])


if __name__ == "__main__":
    main()
