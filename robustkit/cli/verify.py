"""`robustkit verify`: whether a run folder can be believed."""

from pathlib import Path

import click

from .terminal import echo

FAILED = 1


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
def verify(run: Path) -> int:
    """Compute every derived file of a run folder again from its evidence, and look for contradictions in that.

    The status is 1 if a file says something else than the evidence, or the evidence contradicts itself. No model is
    needed.
    """
    from robustkit.evidence.consistency import contradictions_in
    from robustkit.evidence.reading import load_run

    from .wings import reports

    loaded = load_run(run)
    files = reports.derived_files(loaded, run)
    contradictions = list(contradictions_in(loaded))
    for file in files:
        echo(f"{_WORD[file.state]}  {file.name}: {_MEANING[file.state]}")
    for each in contradictions:
        echo(f"FAIL  {each.model}: {each.what}")
    if not contradictions:
        verdicts, pictures = len(loaded.samples), len(loaded.pictures)
        echo(f"pass  run.sqlite: {verdicts} verdicts and {pictures} pictures agree with each other")
    return FAILED if contradictions or any(file.state == "different" for file in files) else 0


_WORD = {"equal": "pass", "missing": "    ", "another version": "    ", "different": "FAIL"}
_MEANING = {
    "equal": "follows from the evidence, byte by byte",
    "missing": "not there; `robustkit report` writes it",
    "another version": "not checked: the run was made by other versions of robustkit, numpy or pandas",
    "different": "is not what the evidence says; `robustkit report` writes it again",
}
