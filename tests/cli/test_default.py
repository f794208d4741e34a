"""The README's first command, on the real network."""

import pandas as pd
import pytest

from tests.cli.test_runs import FILES


@pytest.mark.slow
def test_the_first_command_of_the_readme_trains_once_and_gives_a_table(robustkit, place):
    first = robustkit("evaluate", "--model", "resnet18", "-n", "50")
    again = robustkit("evaluate", "--model", "resnet18", "-n", "60")
    (folder, _) = sorted((place / "robustkit-runs").iterdir())
    table = pd.read_csv(folder / "results.csv").set_index("attack")

    assert (first.status, again.status) == (0, 0)
    assert "training resnet18 once on digits" in first.err
    assert "training" not in again.err
    assert {file.name for file in folder.iterdir()} == FILES
    assert table.accuracy["clean"] > 0.9
    assert table.accuracy["worst-case"] == table.accuracy["rk-14"] < table.accuracy["clean"]
