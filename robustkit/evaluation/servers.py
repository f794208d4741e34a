"""The servers of an evaluation: one ledger of their requests in the run folder, and a clean stop at their limit."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from robustkit.black_box import HttpModel
from robustkit.black_box.query_ledger import QueryLedger
from robustkit.black_box.record import QueriesSpentError
from robustkit.classifier.access import black_box_in
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import ModelRun
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch


@contextmanager
def recorded_servers(evaluation: Evaluation, store: Store, out: Path | None, watch: ProgressWatch) -> Iterator[None]:
    """Record every request to a server while the context lasts, and say at its end how many there were.

    Raises:
        UserError: the file of the requests cannot be used.
    """
    servers = _servers(evaluation)
    if not servers:
        yield
        return
    with ExitStack() as stack:
        ledger = QueryLedger(out)
        stack.callback(ledger.close)
        for box in servers.values():
            stack.enter_context(box.recorded_in(ledger))
        records = {name: box.server.record for name, box in servers.items()}
        before = {name: record.requests for name, record in records.items()}
        try:
            yield
        finally:
            counts = {name: {"sent": record.requests, "answered": record.answered} for name, record in records.items()}
            if not store.empty:
                store.set_manifest(requests=counts)
            for name, count in counts.items():
                watch.say(
                    f"{name}: {count['sent'] - before[name]:,} requests now, {count['sent']:,} in all, for "
                    f"{count['answered']:,} images."
                )


def run_as_far_as_allowed(runs: list[ModelRun], watch: ProgressWatch) -> bool:
    """Run the models; False if one of them had no requests left. Its rows so far are kept.

    Raises:
        QueriesSpentError: there is not even one row of that model.
    """
    whole = True
    for each in runs:
        try:
            each.run()
        except QueriesSpentError as error:
            if not each.ledger.clean_done:
                raise
            whole = False
            watch.say(str(error))
    return whole


def _servers(evaluation: Evaluation) -> dict[str, HttpModel]:
    found = ((each.name, black_box_in(each.model)) for each in (*evaluation.classifiers, *evaluation.surrogates))
    return {name: box for name, box in found if isinstance(box, HttpModel)}
