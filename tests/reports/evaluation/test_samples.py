from collections.abc import Callable

import pandas as pd
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.samples import broken_only_by, class_rows

from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows


def test_an_image_that_one_attack_alone_broke_counts_for_it(make_run: Callable[..., Run]) -> None:
    run = make_run()
    samples = run.samples
    here = samples[(samples["model"] == "resnet18") & (samples["norm"] == "L2") & (samples["eps_text"] == "1/2")]
    fell = {name: set(rows.loc[rows["verdict"] == "broken", "sample"]) for name, rows in here.groupby("attack")}
    board = boards([run])[0]
    threat = next(threat for threat in board.threats if str(threat) == "L2 1/2")

    only = broken_only_by(board, "resnet18", threat)

    ensemble = fell["apgd-ce"] | fell["apgd-t"] | fell["square"]
    assert only["pgd"] == len(fell["pgd"] - fell["fgsm"] - ensemble)
    assert only["standard"] == len(ensemble - fell["pgd"] - fell["fgsm"])
    assert only["apgd-t"] == len(fell["apgd-t"] - fell["apgd-ce"] - fell["square"] - fell["pgd"] - fell["fgsm"])
    assert only["standard"] > 0


def test_the_classes_add_up_to_the_worst_case_of_the_results(run: Run) -> None:
    board = boards([run])[0]

    for model in board.models:
        rows = class_rows(board, model)
        for number, threat in enumerate(board.threats):
            worst = board.worst(model, threat)
            shares = [row.worst[number] for row in rows]
            assert worst
            assert sum(share.k for share in shares if share) == worst.correct
            assert sum(share.n for share in shares if share) == worst.n


def test_without_rows_per_image_nothing_is_claimed_per_image(make_run: Callable[..., Run]) -> None:
    run = make_run(n=30, models=("m",), threats=(("Linf", 0.2, "0.2"),), hardness=0.001)
    rows = SampleRows.of_frame(pd.DataFrame(columns=run.samples.columns))
    bare = Run(run.folder, run.manifest, run.results, rows, [], run.class_names)
    board = boards([bare])[0]

    assert class_rows(board, "m") == []
    assert "pgd" not in broken_only_by(board, "m", board.threats[0])
