"""`robustkit verify`: whether a run folder can be believed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from robustkit.errors import UserError
from robustkit.limits import shown

from .options import data_of, data_options, device_option, server_options, weights_options
from .repeated import OneValueEach
from .requests import loading_of, remote_of
from .status import MENDABLE
from .terminal import echo

if TYPE_CHECKING:
    from robustkit.evaluation.rejudging import Rejudged
    from robustkit.evaluation.rejudging_corrupted import CorruptedRejudged
    from robustkit.evaluation.remeasuring import Remeasured
    from robustkit.evidence.run import Run

FAILED = 1
_PASS, _FAIL, _OPEN = "pass", "FAIL", "    "
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class _Finding(NamedTuple):
    word: str  # _PASS, _FAIL, or _OPEN for what was not checked
    text: str
    status: int = 0


@click.command(cls=OneValueEach)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-m", "--model", "models", multiple=True, metavar="NAME",
              help="Judge the stored adversarial examples again by this model of the run. Repeatable.")  # fmt: skip
@click.option("--weights", multiple=True, metavar="FILE|NAME", help="Checkpoint of the model, as in the evaluation.")
@click.option("--name", "names", multiple=True, metavar="TEXT", help="Name of the model in the run; one per model.")
@weights_options
@server_options("in this command, which needs all of its verdicts")
@data_options
@click.option("--mask", "masks", multiple=True, metavar="FILE|FOLDER|patch:ROW,COLUMN,HEIGHT,WIDTH",
              help="The mask of the run, to check that no other pixels change; one for each mask of merged runs. "
                   "Repeatable.")  # fmt: skip
@device_option
@click.option("--corruptions", "published", multiple=True, metavar="FOLDER",
              help="Where published corruptions of the run are; generated ones are made again.")  # fmt: skip
@click.option("--features", metavar="NAME",
              help="Network that measured the lpips distances, named as in the run.")  # fmt: skip
@click.option("--features-weights", metavar="FILE|NAME", help="Its weights, named as in the run.")
@click.option("--sha256", "published_sum", metavar="HEX", help="SHA-256 of the evidence, as it was published.")
def verify(run: Path, **options: Any) -> int:
    """Compute every derived file of a run folder again from its evidence, and look for contradictions in it.

    With --model (and the data and weights of the run) the model classifies the clean images, the stored adversarial
    examples and the corrupted images again, and distances of features are measured again. The status is 1 if something
    was changed, and 2 if the model is another one.
    """
    from robustkit.evidence.reading import load_run

    published = options["published_sum"]
    if published is not None and not _SHA256.fullmatch(published.strip()):
        raise UserError(f"--sha256 takes the 64 hexadecimal digits that were published, not {shown(published)}.")
    loaded = load_run(run)
    # A question that cannot be answered is an error before the first line.
    again = list(_judged_again(loaded, options)) if options["models"] else []
    digest = _digest(loaded, published)
    findings = [*_progress(loaded), *_derived_files(loaded, run), *_evidence(loaded, options), digest, *again]
    for finding in findings:
        echo(f"{finding.word}  {finding.text}")
    return FAILED if any(each.word == _FAIL for each in findings) else max(each.status for each in findings)


def _progress(run: "Run") -> Iterator[_Finding]:
    if run.manifest.get("shard", run.manifest)["finished"] is None:
        yield _Finding(_OPEN, "The run is unfinished: only the verdicts that it has are checked.")


def _derived_files(run: "Run", folder: Path) -> Iterator[_Finding]:
    from .wings import reports

    for file in reports.derived_files(run, folder):
        yield _Finding(_WORD[file.state], f"{file.name}: {_MEANING[file.state].format(kind=file.kind)}")


_WORD = {"equal": _PASS, "missing": _OPEN, "no file": _FAIL, "another version": _OPEN, "different": _FAIL}
_MEANING = {
    "equal": "follows from the evidence, byte by byte",
    "missing": "not there; `robustkit report` writes it",
    "no file": "is {kind}, not a file; move it away, then `robustkit report` writes the file",
    "another version": "not checked: the run was made by other versions of robustkit, numpy or pandas",
    "different": "is not what the evidence says; `robustkit report` writes it again",
}


def _evidence(run: "Run", options: dict[str, Any]) -> Iterator[_Finding]:
    """Contradictions between rows, and between rows and pixels."""
    from robustkit.data.masks import masks_of_data
    from robustkit.evidence.consistency import contradictions_in
    from robustkit.evidence.kept import check_kept
    from robustkit.evidence.planned_rows import plan_contradictions
    from robustkit.paths import user_path
    from robustkit.primitives.mask import unmasked
    from robustkit.primitives.threat import needs_network

    masks = {}
    for given in options["masks"]:
        folder = user_path(given).is_dir()
        mask = masks_of_data(given, data_of(options) if folder else None)
        of_run = run.manifest["identity"].get("masks", {})
        rectangle = [] if mask.rectangle is None else [mask.rectangle.label]
        if not {mask.label, *rectangle} & of_run.keys():
            own = " and ".join(of_run) or "none"
            yield _Finding(_FAIL, f"run.sqlite: --mask is {mask.label}, and the mask of the run is {own}")
        masks[mask.label] = mask
    kept = check_kept(run, masks)
    contradictions = [*contradictions_in(run), *plan_contradictions(run), *kept.contradictions]
    for each in contradictions:
        yield _Finding(_FAIL, f"{each.model}: {each.what}")
    if not contradictions:
        corrupted = int(run.corrupted["severities"].sum()) if len(run.corrupted) else 0
        verdicts, pictures = len(run.sample_rows) + corrupted, len(run.pictures)
        examples = f" and {kept.examples} adversarial examples" if kept.examples else ""
        yield _Finding(
            _PASS, f"run.sqlite: {verdicts} verdicts and {pictures} stored images{examples} agree with each other"
        )
    for sentence in kept.unchecked:
        yield _Finding(_OPEN, sentence)
    threats = run.manifest["identity"]["threats"]
    if kept.examples and not options["models"] and any(needs_network(unmasked(norm)) for norm, _ in threats):
        yield _Finding(_OPEN, "lpips: distances not measured again, because that needs --model")


def _digest(run: "Run", published: str | None) -> _Finding:
    from robustkit.evidence.digest import evidence_digest

    found = evidence_digest(run.folder)
    if published is None:
        return _Finding(_OPEN, f"run.sqlite: SHA-256 of the evidence {found}; compare it with --sha256 HEX")
    if published.strip().lower() == found:
        return _Finding(_PASS, f"run.sqlite: the evidence has the published SHA-256 {found}")
    return _Finding(_FAIL, f"run.sqlite: the SHA-256 of the evidence is {found}, and another one was published")


def _judged_again(run: "Run", options: dict[str, Any]) -> Iterator[_Finding]:
    from robustkit.evaluation.classifiers import attacked_classifiers
    from robustkit.evaluation.rejudging import judged_by_draws, matched, rejudged, same_data
    from robustkit.evaluation.rejudging_corrupted import rejudged_corrupted, suite_of
    from robustkit.evaluation.remeasuring import GivenFeatures
    from robustkit.evaluation.request import EvaluationRequest
    from robustkit.evidence.store import Store
    from robustkit.host.environment import chosen_device

    identity, data = run.manifest["identity"], data_of(options)
    data, ids = same_data(identity, data)
    request = EvaluationRequest(
        options["models"], weights=options["weights"] or None, names=options["names"], device=options["device"],
        remote=remote_of(options), **loading_of(options),
    )  # fmt: skip
    classifiers = attacked_classifiers(request, data, chosen_device(options["device"]))
    store = Store(run.folder, reading=True)
    try:
        for name, classifier in matched(identity, classifiers):
            if judged_by_draws(run.manifest, name):
                why = "it is randomized or smoothed, and other draws may give other answers"
                yield _Finding(_OPEN, f"{name}: not judged again: {why}")
            else:
                named = options["features"]
                features = None if named is None else GivenFeatures(named, options["features_weights"])
                judged = rejudged(store, name, classifier, data, ids, features)
                yield from _findings(judged)
                yield from _distance_findings(judged.distances)
                if "corruptions" in identity and not judged.difference:
                    suite = suite_of(identity, data, options["published"])
                    yield from _corrupted_findings(
                        name, None if suite is None else rejudged_corrupted(store, name, classifier, suite, data, ids)
                    )
    finally:
        store.close()


def _findings(judged: "Rejudged") -> Iterator[_Finding]:
    name, examples = judged.model, judged.examples
    if judged.other_images:
        yield _Finding(_FAIL, f"{name}: the stored clean image differs from the data ({_images(judged.other_images)})")
    if judged.difference:
        answers = (
            f"other classes than stored for adversarial examples of {_images(judged.not_broken)}"
            if judged.not_broken else f"the stored classes for all {examples} adversarial examples"
        )  # fmt: skip
        yield _Finding(
            _OPEN,
            f"{name}: this is not the model of the run: {judged.difference}. It predicts {answers}; that says nothing "
            "about the run",
            MENDABLE,
        )
        return
    if judged.clean_wrong:
        yield _Finding(
            _FAIL, f"{name}: the model is that of the run, but for a clean image another prediction or label is "
                   f"stored ({_images(judged.clean_wrong)}): the evidence was changed")  # fmt: skip
    if judged.not_broken:
        yield _Finding(
            _FAIL, f"{name}: the model is that of the run, but predicts another class than stored for an adversarial "
                   f"example ({_images(judged.not_broken)}): the evidence was changed")  # fmt: skip
    if not (judged.clean_wrong or judged.not_broken):
        yield _Finding(
            _PASS, f"{name}: the same model gives the stored classes at {judged.clean} clean images and "
                   f"{examples} stored adversarial examples")  # fmt: skip


def _distance_findings(measured: "Remeasured") -> Iterator[_Finding]:
    name = measured.model
    for reason in sorted(measured.reasons):
        yield _Finding(_OPEN, f"{name}: distances in lpips not measured again: {reason}")
    if measured.too_far:
        cause = "the evidence was changed" + (", or the weights of --features were" if measured.other_network else "")
        yield _Finding(
            _FAIL, f"{name}: a stored adversarial example lies outside of its ball in lpips "
                   f"({_images(tuple(sorted(measured.too_far)))}): {cause}")  # fmt: skip
    elif measured.examples:
        yield _Finding(
            _PASS, f"{name}: the features of {measured.examples} stored adversarial examples lie within the radius"
        )


def _corrupted_findings(name: str, judged: "CorruptedRejudged | None") -> Iterator[_Finding]:
    if judged is None:
        yield _Finding(_OPEN, f"{name}: corrupted images not judged again; give their folder with --corruptions")
        return
    if judged.other_pictures:
        yield _Finding(
            _OPEN, f"{name}: {judged.other_pictures} corrupted images differ from those of the run, as other files, "
                   "libraries or processors make them; they were not judged again")  # fmt: skip
    if judged.wrong:
        yield _Finding(
            _FAIL, f"{name}: the model is that of the run, but predicts another class than stored for a corrupted "
                   f"image ({_images(judged.wrong)}): the evidence was changed")  # fmt: skip
    elif judged.pictures:
        yield _Finding(_PASS, f"{name}: the same model gives the stored classes at {judged.pictures} corrupted images")


def _images(numbers: tuple[int, ...]) -> str:
    from robustkit.evidence.consistency import image_list

    return image_list(numbers)
