"""Are the answers to an image the same bits in every place of every batch? Hundreds of layers and activations say.

    python bench/exactness.py --threads 1 --every 3
    MKL_ENABLE_INSTRUCTIONS=AVX2 python bench/exactness.py --threads 2

Each layer, with a linear layer behind it, is queried through a session as attacks and verdicts query it: images in
several orders, in batches of 64, 24 and 100. Counted are networks whose logits or input gradients depend on the place
in a plain batch of 64 (`raw`), and whose answers in a session depend on place or batch size (`session`). Other
processors' kernels are met by MKL_ENABLE_INSTRUCTIONS.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace

import torch
from layers import LAYERS, Layer
from robustkit.attacks import PGD
from torch import Tensor

from robustkit.classifier import Classifier
from robustkit.classifier.oracle import made_up
from robustkit.classifier.session import Session
from robustkit.primitives.protocol import State, Trials

_COUNT = 64


def main() -> None:
    """Print a table with a row for each kind of layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="take every so many-th layer")
    parser.add_argument("--offset", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    start = time.process_time()
    kinds: dict[str, Counter[str]] = {}
    for layer in list(LAYERS)[options.offset :: options.every]:
        kinds.setdefault(layer.kind, Counter()).update(tried(layer))
    print(f"{'kind':12}{'shapes':>8}{'raw':>6}{'session':>9}   of a tile: some rows, one image, no promise")
    rows = [*kinds.items(), ("all", sum(kinds.values(), Counter()))]
    for kind, count in rows:
        print(f"{kind:12}{count['shapes']:8}{count['raw']:6}{count['session']:9}", end="   ")
        print(f"{count['some rows']:16}{count['one image']:11}{count['no promise']:12}")
    print(f"{time.process_time() - start:.0f} s of processor time")


def tried(layer: Layer) -> Counter[str]:
    """What is counted of one layer."""
    torch.manual_seed(0)
    model = layer.network()
    images = made_up(torch.arange(_COUNT) + 1000, torch.empty(1, *layer.shape))
    with Classifier(model, fold=False, channels_last=False).session(images) as session:
        count = Counter(shapes=1, raw=int(not raw_holds(session, images)), session=int(not holds(session, images)))
        layouts = session.sizes.layouts.values()
        count["no promise"] = int(not all(layout.repeats for layout in layouts))
        count["one image"] = int(any(layout.size == 1 for layout in layouts))
        count["some rows"] = int(any(not layout.whole for layout in layouts))
    return count


def raw_holds(session: Session, images: Tensor) -> bool:
    """Whether plain batches of 64 give each image the same bits in each place."""
    first = answers_raw(session, images)
    return all(_same([each[order] for each in first], answers_raw(session, images[order])) for order in _orders())


def answers_raw(session: Session, images: Tensor) -> list[Tensor]:
    """Logits and input gradients of one plain batch."""
    points = images.clone().requires_grad_()
    logits = session.reference.model(points)
    (grad,) = torch.autograd.grad(logits.logsumexp(1).sum(), points)
    return [session.reference.forward(images), logits.detach(), grad]


def holds(session: Session, images: Tensor) -> bool:
    """Whether a session's answers are the same bits for any order and size."""
    first = answers(session, images, _COUNT)
    return all(
        _same([each[order] for each in first], answers(session, images[order], size))
        for order, size in zip(_orders(), (24, 100), strict=True)
    )


def answers(session: Session, images: Tensor, size: int) -> list[Tensor]:
    """Logits of verdicts, and logits and gradients as an attack gets them, in batches of a size."""
    attack = PGD(eps=0.1, norm="Linf", steps=1)
    judged = torch.cat([session.logits(part) for part in images.split(size)])
    kept, grads = [], []
    for part in images.split(size):
        length = session.sizes.fit(len(part), size, attack.sees)
        seen = session.query(attack, _state(attack, part, length))
        kept.append(seen.logits[: len(part)])
        grads.append(seen.grad[: len(part)])
    return [judged, torch.cat(kept), torch.cat(grads)]


def _state(attack: PGD, images: Tensor, length: int) -> State:
    points = images[torch.arange(length) % len(images)]
    zeros = torch.zeros(length, dtype=torch.int64)
    state = attack.init(Trials(points, zeros, zeros - 1, zeros - 1, key=zeros, restart=zeros))
    return replace(state, query=points)


def _orders() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randperm(_COUNT, generator=generator) for _ in range(2)]


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
