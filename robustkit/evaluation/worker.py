"""One worker process: it loads the models once, attacks the images of one lane after the other, and sends every row on.

It never opens the evidence file.
"""

from collections.abc import Collection
from contextlib import closing
from dataclasses import replace

import torch

from robustkit.classifier.sanity_checks import checked_batch
from robustkit.evaluation.answers import Probes, answers
from robustkit.evaluation.lanes import LaneFailed, Opening, Ready, Trying
from robustkit.evaluation.plan import Plan
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.evaluation.runner import OPENED_WITH, first_images
from robustkit.evaluation.workbench import Bench, Coordinator
from robustkit.evidence.rows import AnswerRecord
from robustkit.host.failures import as_users_error, described_error
from robustkit.models.fingerprint import fingerprint


def work(connection: Coordinator, request: EvaluationRequest, opening: Opening) -> None:
    """The whole life of a worker; called in a process of its own."""
    torch.set_num_threads(1)
    try:
        evaluation = without_audit(resolve(request, may_train=False))
        if opening.singly:
            _try_singly(evaluation, opening, connection)
        connection.send(Ready(fingerprints(evaluation), _tried(evaluation, opening.avoided)))
        with closing(Bench(evaluation, connection)) as bench:
            while True:
                bench.carry_out(bench.inbox.wait())
    except BaseException as error:
        mendable = as_users_error(error)
        if mendable is None and isinstance(error, (EOFError, BrokenPipeError, ConnectionResetError)):
            return  # the first process has closed the pipe; code of the user may raise these, too
        connection.send(LaneFailed(described_error(error) if mendable is None else str(mendable), mendable is not None))


def _try_singly(evaluation: Evaluation, opening: Opening, connection: Coordinator) -> None:
    """Query each model at the first images, one after the other, and announce them: the last one ended the process."""
    first = first_images(evaluation.ids, opening.avoided)
    for each in (*evaluation.classifiers, *evaluation.surrogates):
        for image in sorted(first, key=lambda image: image in opening.suspects):
            connection.send(Trying(each.name, image))
            answers(each, checked_batch(evaluation.data, [image])[0])
        connection.send(Trying(each.name, None))


def _tried(evaluation: Evaluation, avoided: Collection[int]) -> tuple[AnswerRecord, ...]:
    """What the models answer at the first images; whatever ends the process there ends it before any lane."""
    probes = Probes(evaluation.data, evaluation.ids, avoided)
    first = first_images(evaluation.ids, avoided)
    x, _ = checked_batch(evaluation.data, first)
    for each in (*evaluation.classifiers, *evaluation.surrogates):
        with each.session(each.input_format().moved(x), evaluation.seed):
            pass
    return tuple(probes.record(role, each) for role, each in evaluation.asked)


def fingerprints(evaluation: Evaluation) -> tuple[str, ...]:
    """Hashes of the models and surrogates, and of the first images, which on another host may be other files."""
    models = (fingerprint(each.model) for each in (*evaluation.classifiers, *evaluation.surrogates))
    return (*models, evaluation.data.fingerprint(evaluation.ids[:OPENED_WITH]))


def without_audit(evaluation: Evaluation) -> Evaluation:
    """The evaluation without what needs the survivors of all images."""
    columns = tuple(column for column in evaluation.plan.columns if column.audit is None)
    return replace(evaluation, plan=Plan(evaluation.plan.threats, columns))
