"""Evaluate models: every attack in every threat model on every image, with evidence that survives a kill.

The headline is the mean over images of the worst case over attacks. It is an upper bound on robust accuracy, and only
that; a smoothed classifier has its certified accuracy beside it, a lower bound.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from robustkit.checks.check import highest
from robustkit.checks.facts import Level
from robustkit.data.copies import ABOUT_COPIES, warning_of_copies
from robustkit.errors import UserError
from robustkit.evaluation.answers import Probes
from robustkit.evaluation.checking import ModelChecks
from robustkit.evaluation.command import this_command
from robustkit.evaluation.crew import Crew, one_thread
from robustkit.evaluation.identity import compared, digest, identity_of, identity_of_part
from robustkit.evaluation.precision import looks
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.evaluation.runner import ModelRun
from robustkit.evaluation.servers import recorded_servers, run_as_far_as_allowed
from robustkit.evaluation.shard import Shard
from robustkit.evaluation.stages import expected_work
from robustkit.evidence.checked import facts_of_run, level_of, makes_passes
from robustkit.evidence.opening import not_ours
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.evidence.tables import summarised
from robustkit.evidence.witnesses import KEPT
from robustkit.host.arguments import bound_arguments
from robustkit.host.environment import environment, mixed, now
from robustkit.host.progress import ProgressWatch, WorkWatch
from robustkit.paths import user_path

P = ParamSpec("P")


def _with_parameters_of(
    request: Callable[P, EvaluationRequest],
) -> Callable[[Callable[[EvaluationRequest], Run]], Callable[P, Run]]:
    """Give a function of a request the parameters of the request itself, so that they are listed once."""

    signature = inspect.signature(request).replace(return_annotation=Run)

    def decorate(function: Callable[[EvaluationRequest], Run]) -> Callable[P, Run]:
        @wraps(function)
        def evaluate(*args: P.args, **kwargs: P.kwargs) -> Run:
            bound_arguments(function.__name__, signature, args, kwargs)
            return function(request(*args, **kwargs))

        evaluate.__signature__ = signature  # type: ignore[attr-defined]
        evaluate.__annotations__ = {**request.__annotations__, "return": Run}
        return evaluate

    return decorate


@_with_parameters_of(EvaluationRequest)
def evaluate(request: EvaluationRequest) -> Run:
    """Accuracy of models under attack: a `Run` whose `results` is a tidy data frame.

    With `out` the folder gets results.csv, samples.csv and report.html beside run.sqlite, as from the command line. The
    parameters are those of `EvaluationRequest`, which describes each of them.

    Raises:
        UserError: something cannot be done as asked; the sentence names the fix.
    """
    return _evaluated(request)


def _evaluated(request: EvaluationRequest) -> Run:
    out = None if request.out is None else user_path(request.out)
    if out is None and request.keep_adversarial:
        raise UserError("keep_adversarial stores examples in a run folder; name one with out.")
    with request.watched() as watched:
        evaluation = resolve(watched)
        if out is None and evaluation.shard is not None:
            raise UserError("A shard is for a run folder, which is merged with those of the others; add out=.")
        out = None if out is None else evaluation.folder(out)
        run = carry_out(evaluation, out, watched.watch)
    if out is not None:
        run.write()
    return run


@_with_parameters_of(EvaluationRequest)
def corruptions(request: EvaluationRequest) -> Run:
    """Accuracy of models on corrupted images, without any attack: `evaluate` with the 15 generated corruptions.

    The parameters are those of `EvaluationRequest`; `corruptions` names others, and `attacks` is not used.

    Raises:
        UserError: something cannot be done as asked; the sentence names the fix.
    """
    return _evaluated(replace(request, attacks=(), corruptions=request.corruptions or "generated"))


def carry_out(evaluation: Evaluation, out: Path | None, watch: ProgressWatch) -> Run:
    """Run what is not yet in the evidence of folder `out`, and return everything that is."""
    store = Store(out)
    try:
        with recorded_servers(evaluation, store, out, watch), _crew(evaluation, store, watch) as crew:
            _run(evaluation, store, watch, crew)
        return summarised(store, out or Path())
    finally:
        store.close()


def _crew(evaluation: Evaluation, store: Store, watch: ProgressWatch) -> AbstractContextManager[Crew | None]:
    """The worker processes, if there are to be any."""
    return nullcontext() if evaluation.origin is None else one_thread(Crew(evaluation, store, watch))


def _run(evaluation: Evaluation, store: Store, watch: ProgressWatch, crew: Crew | None) -> None:
    """Run what is not yet in the evidence, or as much of it as a server may be asked."""
    probes = Probes(evaluation.data, evaluation.ids)
    whole = identity_of(evaluation)
    _check_same(store, whole, evaluation, probes)
    evaluation = _keeping(store, evaluation)
    _note_level(store, evaluation.checks)
    stored = 0 if store.empty else store.manifest()["identity"]["n"]
    runs: list[ModelRun] = []
    for part in looks(evaluation, stored, runs, watch):
        runs[:] = [ModelRun(part, classifier, store, watch) for classifier in part.classifiers]
        identity = identity_of_part(whole, part)
        if isinstance(watch, WorkWatch):
            watch.expect(expected_work(part))
        if not all(each.complete for each in runs):
            _begin(store, part, identity)
            _remember_answers(store, part, probes, crew)
            if crew is not None:
                crew.run(part)
                runs[:] = [ModelRun(part, classifier, store, watch) for classifier in part.classifiers]
            if not run_as_far_as_allowed(runs, watch):
                return
    _keep_baseline(store, evaluation)
    _check(store, part, identity, watch)
    _finish(store, identity, evaluation.shard)


def _finish(store: Store, identity: dict[str, Any], shard: Shard | None) -> None:
    """Note that there is nothing left to do; the run of a shard stays unfinished."""
    manifest = store.manifest()
    finished = manifest.get("finished") if shard is None else manifest["shard"]["finished"]
    # An attack that has nothing to do, or models in another order, change the request and add no row.
    if finished is None or digest(manifest["identity"]) != digest(identity):
        store.set_manifest(identity=identity, **_state(shard, now()))


def _state(shard: Shard | None, finished: str | None) -> dict[str, Any]:
    """The entries of a manifest that say whether the run, or its shard, is finished."""
    if shard is None:
        return {"finished": finished}
    return {"finished": None, "shard": {"index": shard.index, "count": shard.count, "finished": finished}}


def _keep_baseline(store: Store, evaluation: Evaluation) -> None:
    """Remember whose errors corruption errors are divided by; another one changes no row."""
    if evaluation.baseline is not None:
        name, errors = evaluation.baseline
        noted = {} if errors is None else {"clean": errors.clean, "corrupted": dict(errors.corrupted)}
        store.set_manifest(corruption_baseline={"name": name, **noted})


def _note_level(store: Store, asked: Level) -> None:
    """Keep the level of checks, the highest that the evidence was asked for."""
    noted = level_of(store.manifest())
    level = asked if store.empty else highest(asked, noted)
    if level != noted:
        store.set_manifest(checks=level)


def _check(store: Store, evaluation: Evaluation, identity: dict[str, Any], watch: ProgressWatch) -> None:
    """Make the passes of the checks; those that a run had before stay."""
    manifest = store.manifest()
    level = level_of(manifest)
    facts = facts_of_run(store, identity, manifest, level) if makes_passes(identity, manifest, level) else {}
    for each in evaluation.classifiers if facts else ():
        ModelChecks(evaluation, each, facts[each.name], store, watch).run()


def _check_same(store: Store, identity: dict[str, Any], evaluation: Evaluation, probes: Probes) -> None:
    """A folder without a single row may be used for anything; else only for what it was begun for, or more of it."""
    if store.empty:
        return
    before = store.manifest().get("identity")
    if before is None:
        raise not_ours(store.folder, "it holds results and does not say of what")
    _check_same_shard(store, evaluation.shard)
    compared(before, identity, evaluation)
    for role, each in evaluation.asked:
        probes.check(store, role, each)


def _check_same_shard(store: Store, shard: Shard | None) -> None:
    noted = store.manifest().get("shard")
    before = None if noted is None else Shard(noted["index"], noted["count"])
    if before != shard:
        was, now = ("all images" if each is None else f"shard {each.text}" for each in (before, shard))
        raise UserError(f"The folder {store.folder} holds results of {was}, not of {now}; give another --out.")


def _keeping(store: Store, evaluation: Evaluation) -> Evaluation:
    """The evaluation that keeps adversarial examples if its folder was begun so.

    Raises:
        UserError: they are asked for, and the folder has results without them.
    """
    kept = store.manifest().get("adversarial") == KEPT
    if evaluation.keep_adversarial and not kept and not store.empty:
        raise UserError(
            "This run folder was begun without --keep-adversarial, so the adversarial examples of its results were "
            "not stored; give another --out, or leave --keep-adversarial out."
        )
    return replace(evaluation, keep_adversarial=evaluation.keep_adversarial or kept)


def _begin(store: Store, evaluation: Evaluation, identity: dict[str, Any]) -> None:
    manifest, here = store.manifest(), environment(evaluation.device)
    if store.empty:
        store.set_manifest(created=now(), command=this_command(), seconds={}, warnings=[])
        store.set_manifest(**({"adversarial": KEPT} if evaluation.keep_adversarial else {}))
        store.set_manifest(**({"declared": list(evaluation.declared)} if evaluation.declared else {}))
        manifest = {}
    changes = mixed([manifest.get("environment", here), here])
    # A run that grew has other copies.
    noted = [each for each in manifest.get("warnings", []) if not each.endswith(ABOUT_COPIES)]
    store.set_manifest(
        robustkit=here["robustkit"], identity=identity, environment=here, **_state(evaluation.shard, None),
        warnings=[*noted, *changes, *warning_of_copies(evaluation.data, evaluation.ids)],
    )  # fmt: skip


def _remember_answers(store: Store, evaluation: Evaluation, probes: Probes, crew: Crew | None) -> None:
    # Without rows, the answers in the store are those of a model that failed.
    missing = [(role, each) for role, each in evaluation.asked if store.empty or store.answer(role, each.name) is None]
    if missing and crew is not None:
        # Whatever a model does to its process there, it does to a worker.
        names = {(role, each.name) for role, each in missing}
        store.set_answers(each for each in crew.answers() if (each.role, each.model) in names)
        return
    store.set_answers(probes.record(role, each) for role, each in missing)
