"""A server of 8-bit PNG files on this machine, which logs what it is asked, and a clock that needs no waiting."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from tests.small import linear


class Answer(NamedTuple):
    """What a server says."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    pace: threading.Semaphore | None = None  # one byte for each of its permits


def pixels_of(png: bytes) -> torch.Tensor:
    """`[1, C, H, W]` in [0, 1]."""
    levels = np.asarray(Image.open(io.BytesIO(png)))
    return torch.from_numpy(levels.astype(np.float32) / 255).reshape(1, -1, *levels.shape[:2])


def scores(png: bytes) -> Answer:
    return Answer(json.dumps({"scores": linear()(pixels_of(png))[0].tolist()}).encode())


def probabilities(png: bytes) -> Answer:
    return Answer(json.dumps({"probabilities": linear()(pixels_of(png))[0].softmax(0).tolist()}).encode())


def label(png: bytes) -> Answer:
    return Answer(json.dumps({"label": int(linear()(pixels_of(png)).argmax())}).encode())


class Request(NamedTuple):
    body: bytes
    headers: dict[str, str]


class Loopback:
    """A server; `log` has every request that reached it, `replied` those bodies that it has answered."""

    def __init__(self, answer: Callable[[bytes], Answer]) -> None:
        self.answer = answer
        self.log: list[Request] = []
        self.replied: list[bytes] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet: a second one would wait for the first one's acknowledgement

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.log.append(Request(body, dict(self.headers)))
                said = owner.answer(body)
                self.send_response(said.status)
                for header in {"Content-Length": str(len(said.body)), **dict(said.headers)}.items():
                    self.send_header(*header)
                self.end_headers()
                try:
                    for part in [said.body] if said.pace is None else [bytes([each]) for each in said.body]:
                        if said.pace is not None:
                            said.pace.acquire()
                        self.wfile.write(part)
                        self.wfile.flush()
                except OSError:  # the other side has had enough
                    return
                owner.replied.append(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a test that ends its answer with an error means it
        self.url = f"http://127.0.0.1:{self.server.server_port}/classify"


@contextmanager
def serving(answer: Callable[[bytes], Answer] = scores) -> Iterator[Loopback]:
    loopback = Loopback(answer)
    thread = threading.Thread(target=loopback.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield loopback
    finally:
        loopback.server.shutdown()
        loopback.server.server_close()


class FakeClock:
    """Time passes where somebody sleeps, and by `tick` seconds whenever somebody looks, who gives `pace` a permit."""

    def __init__(self, tick: float = 0.0, pace: threading.Semaphore | None = None) -> None:
        self.time, self.tick, self.pace = 0.0, tick, pace
        self.slept: list[float] = []

    def now(self) -> float:
        self.time += self.tick
        if self.pace is not None:
            self.pace.release()
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    def date(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=self.time)
