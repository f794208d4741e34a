"""Mean corruption accuracy and mCE from RobustBench's tables of accuracies, against the numbers that it publishes.

    python bench/robustbench.py FOLDER

FOLDER has `cifar10/corruptions`, `cifar100/corruptions` and `imagenet/corruptions` of RobustBench's `model_info`: a
table unaggregated_results.csv, and a JSON file with the published numbers for each model.
"""

import json
import sys
from pathlib import Path

from robustkit.common_corruptions.baseline import read_accuracies
from robustkit.statistics.corruption_error import corruption_errors


def main() -> None:
    compared = furthest = 0.0
    for table in sorted(Path(sys.argv[1]).glob("*/corruptions/unaggregated_results*.csv")):
        suffix = table.stem.removeprefix("unaggregated_results")
        models = read_accuracies(table)
        for name, errors in models.items():
            # Two file names have an underscore more than the table.
            entry = table.with_name(f"{name.replace('AugMixWRN', 'AugMix_WRN').replace('MixResN', 'Mix_ResN')}.json")
            published = json.loads(entry.read_text())
            accuracy = 100 * (1 - sum(errors.corrupted.values()) / len(errors.corrupted))
            pairs = [(accuracy, published[f"corruptions_acc{suffix}"])]
            if "AlexNet" in models:
                relative = corruption_errors(errors, models["AlexNet"])
                assert relative is not None
                pairs.append((100 * relative.mean, published[f"corruptions_mce{suffix}"]))
            compared += len(pairs)
            furthest = max(furthest, *(abs(ours - float(theirs)) for ours, theirs in pairs))
            numbers = "   ".join(f"{ours:6.2f} {theirs:>6}" for ours, theirs in pairs)
            print(f"{table.parts[-3] + suffix:12} {name:42} {numbers}")
    print(f"{compared:.0f} numbers; the largest difference is {furthest:.3f}")


if __name__ == "__main__":
    main()
