"""The passes that `robustkit evaluate --dry-run` predicts against those of the run itself.

The sizes of the pilot were chosen on the cases that bench/default.py calls "chosen"; the others were not looked at. The
run has seed 0; each seed of the dry run draws other images for its pilot.

    python bench/dry_run.py --zoo DIR [--only trades] [--held-out] [--attack default] [--images 500] [--seeds 3]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import torch
from default import CASES, Case
from subjects import Subject, digits, zoo
from torch import Tensor
from torch.utils.data import TensorDataset

from robustkit.classifier.oracle import OracleCost
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.prediction import pilot_of, predicted
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.host.progress import Silent

_SAMPLES = 1000
DIGITS = Case("resnet18", "digits", "Linf", "0.1", False)


def subject_of(case: Case, folder: Path, count: int) -> Subject:
    return digits(case.network, count) if case is DIGITS else zoo(folder, case.network, case.images, count)


def evaluation_of(subject: Subject, case: Case, attack: str, seed: int) -> Evaluation:
    images = TensorDataset(subject.x, subject.y)
    return resolve(EvaluationRequest(
        subject.model, dataset=images, attacks=attack, norm=case.norm, eps=case.eps, samples=None, seed=seed,
    ))  # fmt: skip


class Passes(NamedTuple):
    whole: int  # of the run
    images: Tensor  # [N] of each image

    def within_two(self, size: int) -> float:
        """The share of samples of so many images whose passes, scaled up, are within a factor of two of the run's."""
        generator = torch.Generator().manual_seed(0)
        samples = [self.images[torch.randperm(len(self.images), generator=generator)[:size]] for _ in range(_SAMPLES)]
        ratios = torch.stack(samples).mean(1) * len(self.images) / self.whole
        return float(((ratios > 0.5) & (ratios < 2)).double().mean())


def passes_of(evaluation: Evaluation) -> Passes:
    run = carry_out(evaluation, None, Silent())
    counted = run.results[run.results.role.isin(["clean", "worst-case"])]
    rows = run.samples[run.samples.attack == evaluation.plan.columns[0].name]
    attacked = torch.tensor((rows.forwards + rows.backwards).fillna(0).astype(int).to_numpy())
    return Passes(int(counted.forwards.sum() + counted.backwards.sum()), (attacked + 1).double())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--only", default="", help="text in a case's network, norm or eps")
    parser.add_argument("--held-out", action="store_true", help="only cases on which nothing was chosen")
    parser.add_argument("--attack", default="default")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3, help="of the dry run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| network | norm | eps | attack | n | at most | predicted | run | ratio | pilot, % | seconds | of 1,000, % |"
    )
    for case in (*CASES, DIGITS):
        if options.only not in " ".join(map(str, case)) or (options.held_out and case.chosen):
            continue
        subject = subject_of(case, options.zoo, options.images)
        whole = evaluation_of(subject, case, options.attack, 0)
        most = len(subject.x) * sum(sum(each.at_most(OracleCost(1, 1))) for each in whole.plan.attacks)
        start = time.perf_counter()
        passes = passes_of(whole)
        run = passes.whole
        middle = time.perf_counter()
        dry = []
        for seed in range(options.seeds):
            evaluation = evaluation_of(subject, case, options.attack, seed)
            dry.append(predicted(evaluation, evaluation.classifiers[0], Silent()))
        seconds = (time.perf_counter() - middle) / options.seeds
        totals = [each.forwards + each.backwards for each in dry]
        print(
            f"| {case.network}{'' if case.chosen else ' (held out)'} | {case.norm} | {case.eps} | {options.attack} | "
            f"{len(subject.x)} | {most / run:.0f} x | {' '.join(f'{total:,.0f}' for total in totals)} | {run:,} | "
            f"{' '.join(f'{total / run:.2f}' for total in totals)} | "
            f"{100 * sum(each.spent for each in dry) / len(dry) / run:.0f} | {seconds:.0f} / {middle - start:.0f} | "
            f"{100 * passes.within_two(len(pilot_of(whole).ids)):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
