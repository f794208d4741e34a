"""Does our FAB find errors as near as the authors' code does? Distances of every image, whatever the radius.

`--autoattack DIR` is a checkout of fra31/auto-attack. Both get the same images, classes and number of steps; the
label of a point is asked before its gradients by the authors' code always, by ours once there was an error.

    python bench/fab.py --zoo DIR --autoattack DIR [--images 96] [--steps 30] [--targets 3]
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from robustkit.attacks import FAB
from subjects import Subject, zoo
from torch import Tensor

from robustkit.classifier.answers import answered
from robustkit.classifier.read_gradients import answered_by_count
from robustkit.primitives import noise
from robustkit.primitives.protocol import Seen, State, Trials

ORDER = {"Linf": torch.inf, "L2": 2.0, "L1": 1.0}
NETWORKS = {"cnn_a_cifar": "cifar10", "resnet2b_cifar": "cifar10", "trades_mnist": "mnist"}


def ours(subject: Subject, norm: str, steps: int, ranking: Tensor | None) -> Tensor:
    """`[N]` distances of the nearest errors; with a ranking `[N, T]`, over trials aimed at each of its classes."""
    method = FAB(1.0, norm, steps=steps, targets=0 if ranking is None else ranking.shape[1])
    none = torch.full_like(subject.y, -1)
    keys = noise.keys(0, torch.arange(len(subject.x)))
    distances = []
    for aim in [none] if ranking is None else ranking.unbind(1):
        state = method.init(Trials(subject.x, subject.y, aim, none, keys, torch.zeros_like(none)))
        while not state.done.all():
            state = method.step(state, asked(method, state, subject))
        distances.append(state.distance)  # type: ignore[attr-defined]
    return torch.stack(distances).amin(0)


def asked(method: FAB, state: State, subject: Subject) -> Seen:
    """The answers to all rows, with the gradients that are read."""

    def ask(rows: Tensor, most: int) -> Seen:
        return answered(method, state.take(rows), subject.model, most=most)

    return answered_by_count(method.gradients_read(state), ask, state.query)


def theirs(subject: Subject, norm: str, steps: int, targets: int) -> Tensor:
    from autoattack.fab_pt import FABAttack_PT

    peer = FABAttack_PT(subject.model, norm=norm, n_iter=steps, eps=1.0, seed=0, device="cpu", targeted=targets > 0)
    distances = []
    for rank in range(2, targets + 2) if targets else [None]:
        peer.target_class = rank
        point = peer.attack_single_run(subject.x.clone(), subject.y.clone(), is_targeted=targets > 0)
        with torch.no_grad():
            wrong = subject.model(point).argmax(1) != subject.y
        distance = (point - subject.x).flatten(1).norm(p=ORDER[norm], dim=1).double()
        distances.append(torch.where(wrong, distance, torch.inf))
    return torch.stack(distances).amin(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--autoattack", type=Path, required=True)
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--targets", type=int, default=3)
    given = parser.parse_args()
    sys.path.insert(0, str(given.autoattack))
    torch.set_num_threads(1)
    print(
        "| network | norm | form | images | median, ours | median, theirs | ours / theirs nearer by 0.1 % | CPU time |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for network, images in NETWORKS.items():
        subject = zoo(given.zoo, network, images, given.images)
        with torch.no_grad():
            logits = subject.model(subject.x).scatter(1, subject.y.unsqueeze(1), -torch.inf)
        for norm in ORDER:
            for form, count in (("FAB", 0), ("FAB-T", given.targets)):
                times = [time.process_time()]
                mine = ours(subject, norm, given.steps, logits.topk(count, 1).indices if count else None)
                times.append(time.process_time())
                peer = theirs(subject, norm, given.steps, count)
                times.append(time.process_time())
                ratio = (times[1] - times[0]) / (times[2] - times[1])
                print(
                    f"| {network} | {norm} | {form} | {len(subject.x)} | {mine.median():.5f} | {peer.median():.5f} "
                    f"| {int((mine < peer * 0.999).sum())} / {int((peer < mine * 0.999).sum())} | {ratio:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
