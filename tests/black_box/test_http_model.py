"""A server as a classifier: what is sent, what is counted, and what happens where it misbehaves."""

import json
import threading

import pytest
import torch

from robustkit.black_box import HttpModel, RemoteAccess
from robustkit.black_box.query_ledger import QueryLedger
from robustkit.black_box.record import QueriesSpentError
from robustkit.black_box.wire import LARGEST
from robustkit.errors import UserError
from robustkit.models import load_model
from tests.black_box.loopback import Answer, FakeClock, label, pixels_of, scores, serving
from tests.small import data, linear

TOKEN = "s3cret-token"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("ROBUSTKIT_TOKEN", raising=False)


def pictures(count: int) -> torch.Tensor:
    return (data(count)[0] * 255).round() / 255


def model(server, clock=None, **more) -> HttpModel:
    return HttpModel(server.url, num_classes=10, clock=clock or FakeClock(), **more)


def in_turn(*answers):
    """Answers one after the other; the last one again and again."""
    left = list(answers)

    def answer(png: bytes) -> Answer:
        return (left.pop(0) if len(left) > 1 else left[0])(png)

    return answer


def always(*words: object, **more: object):
    return lambda png: Answer(*words, **more)


def test_a_server_gets_the_pictures_and_its_scores_come_back():
    x = pictures(3)
    with serving() as server:
        torch.testing.assert_close(model(server)(x), linear()(x).detach())

        assert torch.equal(torch.cat([pixels_of(each.body) for each in server.log]), x)


def test_a_label_is_the_largest_score():
    x = pictures(5)
    with serving(label) as server:
        box = model(server)

        assert torch.equal(box(x).argmax(1), linear()(x).argmax(1))
        assert box.gives == "labels"


def test_no_picture_is_sent_twice_and_every_request_is_counted():
    x = pictures(4)
    with serving() as server:
        box = model(server)
        box(x)
        box(torch.cat([x, x]))

        assert box.server.record.requests == box.server.record.answered == len(server.log) == 4


def test_answers_are_found_again_in_the_folder(tmp_path):
    x = pictures(4)
    with serving() as server:
        answers = []
        for _ in range(2):
            ledger, box = QueryLedger(tmp_path), model(server)
            with box.recorded_in(ledger):
                answers.append(box(x))
            ledger.close()

        assert torch.equal(*answers)
        assert len(server.log) == 4


def test_a_server_that_asks_for_a_pause_gets_it():
    busy = always(b"", 429, (("Retry-After", "7"),))
    until = always(b"", 503, (("Retry-After", "Tue, 01 Jan 2030 00:00:20 GMT"),))
    clock = FakeClock()
    with serving(in_turn(busy, busy, until, scores)) as server:
        box = model(server, clock)
        box(pictures(1))

        assert clock.slept == [7, 7, 6]
        assert box.server.record.requests == len(server.log) == 4


def test_failures_are_tried_again_after_longer_and_longer_pauses():
    clock = FakeClock()
    with serving(always(b"", 500)) as server:
        box = model(server, clock, access=RemoteAccess(tries=5))
        with pytest.raises(UserError, match="in 5 tries: 500 Internal Server Error"):
            box(pictures(1))

        assert clock.slept == [1, 2, 4, 8]
        assert box.server.record.requests == len(server.log) == 5


def test_a_server_that_is_not_there_is_no_request():
    with serving() as server:
        pass
    box = model(server, access=RemoteAccess(tries=2))

    with pytest.raises(UserError, match="in 2 tries: Connection refused"):
        box(pictures(1))
    assert box.server.record.requests == 0


def test_a_long_pause_ends_the_run():
    tomorrow = always(b"", 429, (("Retry-After", "86400"),))

    with serving(tomorrow) as server, pytest.raises(UserError, match=r"86,400 seconds.*goes on where it stopped"):
        model(server)(pictures(1))


def test_a_server_that_asks_for_pauses_without_end_is_given_up():
    at_once = always(b"", 503, (("Retry-After", "0"),))

    with serving(at_once) as server, pytest.raises(UserError, match="in 100 tries"):
        model(server, FakeClock())(pictures(1))


def test_requests_keep_their_distance():
    clock = FakeClock()
    with serving() as server:
        model(server, clock, access=RemoteAccess(rate=4))(pictures(3))

        assert clock.slept == [0.25, 0.25]


def test_no_request_exceeds_the_limit():
    with serving() as server:
        box = model(server, access=RemoteAccess(max_queries=3))
        with pytest.raises(QueriesSpentError, match="--max-queries"):
            box(pictures(4))

        assert len(server.log) == 3


@pytest.mark.parametrize(
    "answer",
    [
        always(b"no json"),
        always(b'{"scores": [1, 2, NaN, 4, 5, 6, 7, 8, 9, 10]}'),
        always(b'{"scores": [1e39, 2, 3, 4, 5, 6, 7, 8, 9, 10]}'),
        always(b'{"scores": [' + b"9" * 400 + b", 2, 3, 4, 5, 6, 7, 8, 9, 10]}"),
        always(b'{"scores": [1, 2, 3]}'),
        always(b'{"scores": "high"}'),
        always(b'{"probabilities": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}'),
        always(b'{"scores": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "label": 3}'),
        always(b'{"label": 10}'),
        always(b'{"label": true}'),
        always(b'{"label": "cat"}'),
        always(b'{"class": 3}'),
        always(b"[" * 100_000),
        always(b"\xff\xfe"),
        always(b""),
        always(b" " * (LARGEST + 1)),
        always(b"", 302, (("Location", "http://127.0.0.2/"),)),
        always(b"", 401),
        always(b"", 404),
        in_turn(scores, label),
    ],
)
def test_a_broken_answer_is_one_line(answer):
    with serving(answer) as server:
        with pytest.raises(UserError) as caught:
            model(server)(pictures(2))

        assert "\n" not in str(caught.value)
        assert len(server.log) <= 2


def test_a_slow_drip_is_given_up():
    pace = threading.Semaphore(0)
    with serving(always(b" " * 300 + b'{"label": 3}', pace=pace)) as server:
        box = model(server, FakeClock(tick=1.0, pace=pace), access=RemoteAccess(timeout=20, tries=1))
        with pytest.raises(UserError, match="in 1 try: it took too long"):
            box(pictures(1))
        pace.release(1000)

        assert len(server.log) == 1


def test_a_chunk_of_negative_size_is_no_answer():
    chunks = always(b"-5\r\nabc", 200, (("Transfer-Encoding", "chunked"),))
    with serving(in_turn(chunks, label)) as server:
        model(server)(pictures(1))

        assert len(server.log) == 2


def test_an_answer_that_breaks_off_is_asked_for_again():
    short = always(b'{"label": 3}', 200, (("Content-Length", "500"), ("Connection", "close")))
    with serving(in_turn(short, label)) as server:
        model(server)(pictures(1))

        assert len(server.log) == 2


def test_the_token_goes_to_the_server_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTKIT_TOKEN", TOKEN)
    said = []
    for status in (200, 400, 401, 500):
        with serving(lambda png, status=status: Answer(f"{TOKEN} is wrong".encode(), status)) as server:
            ledger = QueryLedger(tmp_path)
            box = model(server, access=RemoteAccess(tries=2))
            with box.recorded_in(ledger), pytest.raises(UserError) as caught:
                box(pictures(1))
            ledger.close()
            said += [str(caught.value), repr(box), str(vars(box))]

            assert server.log[0].headers["Authorization"] == f"Bearer {TOKEN}"
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert TOKEN not in "".join(said)
    assert TOKEN.encode() not in stored


@pytest.mark.parametrize(
    ("token", "url"), [(TOKEN, "http://example.invalid/"), ("two words", "https://example.invalid/")]
)
def test_a_token_that_could_be_read_on_the_way_is_not_sent(token, url, monkeypatch):
    monkeypatch.setenv("ROBUSTKIT_TOKEN", token)

    with pytest.raises(UserError) as caught:
        HttpModel(url, num_classes=10, clock=FakeClock())(pictures(1))
    assert token not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "ftp://host/", "http://host:99999/", "http://a b/", "http://u:p@host/"])
def test_an_address_that_is_none_is_one_line(url):
    with pytest.raises(UserError) as caught:
        HttpModel(url, num_classes=10)
    assert ":p@" not in str(caught.value)


def test_an_adapter_reads_and_writes_other_forms():
    def odd(body: bytes) -> Answer:
        asked = json.loads(body)
        return Answer(json.dumps({"result": [{"class": asked["bytes"] % 10}]}).encode())

    x = pictures(2)
    with serving(odd) as server:
        box = model(
            server,
            write=lambda png: (json.dumps({"bytes": len(png)}).encode(), "application/json"),
            read=lambda answer: answer["result"][0]["class"],
        )

        assert box(x).argmax(1).tolist() == [json.loads(each.body)["bytes"] % 10 for each in server.log]


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.delenv("no_proxy")
    with serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://user:word@"))
        HttpModel("http://example.invalid/x", num_classes=10, clock=FakeClock())(pictures(1))

        assert proxy.log[0].headers["Host"] == "example.invalid"
        assert proxy.log[0].headers["Proxy-Authorization"] == "Basic dXNlcjp3b3Jk"


def test_a_ledger_of_somebody_else_is_refused(tmp_path):
    import sqlite3

    other = sqlite3.connect(tmp_path / "queries.sqlite")
    other.execute("CREATE VIEW answer AS SELECT 1")
    other.close()

    with pytest.raises(UserError, match="was damaged or changed"):
        QueryLedger(tmp_path)


@pytest.mark.parametrize("option", [{"weights": "x.pt"}, {"train": True}, {"random_init": True}])
def test_an_option_that_a_server_does_not_take_is_refused_without_the_query_of_its_address(option):
    with pytest.raises(UserError, match="leave") as caught:
        load_model("http://127.0.0.1:9/classify?key=s3cret", dataset="digits", **option)

    assert "s3cret" not in str(caught.value)
