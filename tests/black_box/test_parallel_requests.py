"""Several requests at once: the same answers and the same ledger as one after the other, whatever the server does."""

import _thread
import itertools
import signal
import sqlite3
import sys
import threading

import pytest
import torch

from robustkit.black_box import HttpModel, RemoteAccess
from robustkit.black_box.query_ledger import LOST, QueryLedger
from robustkit.black_box.record import QueriesSpentError
from robustkit.errors import UserError
from tests.black_box.loopback import Answer, FakeClock, pixels_of, scores, serving
from tests.small import data, evaluated, linear

_PATIENCE = 20  # seconds, after which a test fails instead of hanging


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def pictures(count: int) -> torch.Tensor:
    return (data(count)[0] * 255).round() / 255


def model(server, parallel: int, **more) -> HttpModel:
    access = RemoteAccess(parallel=parallel, **more)
    return HttpModel(server.url, num_classes=10, clock=FakeClock(), access=access)


def requests_of(folder):
    opened = sqlite3.connect(folder / "queries.sqlite")
    try:
        return sorted(opened.execute("SELECT picture, outcome FROM request").fetchall())
    finally:
        opened.close()


class Together:
    """Answers the first requests at once, then holds others until so many are there, and answers the last one first."""

    def __init__(self, count: int) -> None:
        self.count, self.most = count, 0
        self.left = count  # requests that are answered at once
        self.there: list[bytes] = []
        self.turn = threading.Condition()

    def __call__(self, png: bytes) -> Answer:
        with self.turn:
            if self.left:
                self.left -= 1
                return scores(png)
            self.there.append(png)
            self.most = max(self.most, len(self.there))
            self.turn.notify_all()
            self.turn.wait_for(lambda: self.most >= self.count and self.there[-1] == png, _PATIENCE)
            self.there.remove(png)
            self.turn.notify_all()
        return scores(png)


def test_answers_that_come_in_another_order_stay_with_their_pictures():
    x, together = pictures(30), Together(4)
    with serving(together) as server:
        torch.testing.assert_close(model(server, parallel=4)(x), linear()(x).detach())

    assert together.most == 4


def test_as_many_at_once_as_one_likes_give_the_same_run_and_ledger(tmp_path):
    request = {"dataset": (pictures(4), data(4)[1]), "attacks": ["square:queries=6", "rays:queries=8"], "eps": "0.25"}
    runs, logs = [], []
    with serving() as server:
        for parallel in (1, 3, 16):
            server.log.clear()
            runs.append(
                evaluated(server.url, tmp_path / str(parallel), **request, remote=RemoteAccess(parallel=parallel))
            )
            logs.append(sorted(each.body for each in server.log))

    assert all(run.samples.equals(runs[0].samples) for run in runs)
    assert all(run.manifest["requests"] == runs[0].manifest["requests"] for run in runs)
    assert all(log == logs[0] for log in logs)
    assert all(requests_of(tmp_path / name) == requests_of(tmp_path / "1") for name in ("3", "16"))


def test_the_requests_that_are_allowed_go_to_the_first_pictures():
    x = pictures(20)
    with serving() as server:
        with pytest.raises(QueriesSpentError):
            model(server, parallel=5, max_queries=12)(x)

        assert {each.body for each in server.log} == set(sent_alone(x[:12]))


def sent_alone(x: torch.Tensor) -> list[bytes]:
    with serving() as server:
        model(server, parallel=1)(x)
        return [each.body for each in server.log]


def test_a_server_that_drops_refuses_and_bursts_changes_no_answer(tmp_path):
    """Of the requests that arrive every third is answered, the others in all the ways in which servers fail."""
    failures = itertools.cycle([
        None, Answer(b"", 429, (("Retry-After", "2"),)), OSError("dropped"), None, Answer(b"", 500),
        Answer(b'{"label": 3}', 200, (("Content-Length", "500"), ("Connection", "close"))), None, Answer(b"", 429),
        Answer(b"", 503, (("Connection", "close"),)),
    ])  # fmt: skip
    turn = threading.Lock()

    def answer(png: bytes) -> Answer:
        with turn:
            failure = next(failures)
        if isinstance(failure, OSError):
            raise failure
        return scores(png) if failure is None else failure

    x = pictures(40)
    with serving(answer) as server:
        ledger, box = QueryLedger(tmp_path), model(server, parallel=6, tries=100)
        with box.recorded_in(ledger):
            answers = box(x)
        ledger.close()
        answered = [body for body in server.replied if body]
        torch.testing.assert_close(answers, linear()(x).detach())

        assert len(requests_of(tmp_path)) == len(server.log)
        assert len([outcome for _, outcome in requests_of(tmp_path) if outcome == 200]) == len(x)
        assert set(answered) == {each.body for each in server.log}


def test_a_server_of_one_request_at_a_time_is_not_given_up():
    """It refuses all that come while it is at work; whoever sent all of them again at once would be refused again."""
    free = threading.Lock()
    refused = 0

    def busy(png: bytes) -> Answer:
        nonlocal refused
        if not free.acquire(blocking=False):
            refused += 1
            return Answer(b"", 429)
        try:
            return scores(png)
        finally:
            free.release()

    x = pictures(30)
    with serving(busy) as server:
        torch.testing.assert_close(model(server, parallel=8)(x), linear()(x).detach())


@pytest.fixture
def _python_takes_ctrl_c():
    """Also in a background job, for which a shell ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_python_takes_ctrl_c")
def test_ctrl_c_does_not_wait_for_the_server_and_leaves_a_ledger_that_can_be_used(tmp_path):
    x, silent = pictures(9), threading.Event()
    arrived, turn = [], threading.Lock()

    def answer(png: bytes) -> Answer:
        with turn:
            arrived.append(png)
            number = len(arrived)
        if number in (5, 6, 7):
            if number == 7:
                _thread.interrupt_main()
            silent.wait(_PATIENCE)
        return scores(png)

    with serving(answer) as server:
        ledger = QueryLedger(tmp_path)
        box = model(server, parallel=3)
        with box.recorded_in(ledger):
            with pytest.raises(KeyboardInterrupt):
                box(x)
            lost = [outcome for _, outcome in requests_of_open(ledger) if outcome == LOST]
            assert not silent.is_set()
            silent.set()
            torch.testing.assert_close(box(x), linear()(x).detach())
        ledger.close()

    assert 1 <= len(lost) <= 3
    assert len(requests_of(tmp_path)) == len(arrived)


def requests_of_open(ledger: QueryLedger):
    return ledger._connection.execute("SELECT picture, outcome FROM request").fetchall()


def test_after_an_error_the_answers_under_way_are_kept(tmp_path):
    refused = pictures(12)[5:6]

    def answer(png: bytes) -> Answer:
        return Answer(b"", 404) if torch.equal(pixels_of(png), refused) else scores(png)

    with serving(answer) as server:
        ledger, box = QueryLedger(tmp_path), model(server, parallel=3)
        with box.recorded_in(ledger):
            with pytest.raises(UserError, match="404"):
                box(pictures(12))

            assert box.server.record.answered == len(server.log) - 1
            assert len(server.log) >= 6
        ledger.close()


def test_threads_end_with_their_model():
    before = set(threading.enumerate())
    with serving() as server:
        box = model(server, parallel=4)
        box(pictures(20))
        threads = [each for each in threading.enumerate() if each not in before and each.name == "request"]
        del box
        for each in threads:
            each.join(_PATIENCE)

    assert len(threads) == 4
    assert not any(each.is_alive() for each in threads)


def test_a_ledger_that_is_collected_in_another_thread_closes_without_a_word(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    ledgers = [QueryLedger(tmp_path)]
    connection = ledgers[0]._connection
    collecting = threading.Thread(target=ledgers.clear)
    collecting.start()
    collecting.join(_PATIENCE)

    assert not said
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.parametrize("count", [0, 257])
def test_a_number_at_once_that_is_none_is_one_line(count):
    with pytest.raises(UserError, match="parallel must be 1 to 256"):
        RemoteAccess(parallel=count)
