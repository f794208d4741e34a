"""What Ray says when something is wrong, in one line and without Ray."""

import socket
from unittest.mock import MagicMock

import pytest
import torch

from robustkit import evaluate
from robustkit.errors import UserError
from robustkit.evaluation import ray_cluster, ray_workers
from robustkit.evaluation.command import without_addresses
from robustkit.evaluation.lanes import HOST_LOST
from robustkit.evaluation.ray_cluster import Cluster, refusal
from robustkit.evaluation.ray_workers import RayWorker, RayWorkers, end_of
from robustkit.evaluation.request import EvaluationRequest

ADDRESS = "head:6379"
# The ends of what Ray 2.60 wrote when these things were done to it.
SAID = {
    "RAY_AUTH_TOKEN": "gcs_client.cc:210: Failed to get cluster ID from GCS server: Unauthenticated: RPC error: "
    "InvalidAuthToken: Authentication token is missing or incorrect\nConnectionError: Failed to connect to Ray cluster",
    "RAY_AUTH_MODE=token": "ray.exceptions.AuthenticationError: Token authentication is enabled but no authentication "
    "token was found. Ensure that the token for the cluster is available in a local file",
    "another version": "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n"
    "    Python: 3.11.7\nThis process on 10.77.0.1:6379 was started with:\n    Ray: 2.54.0\n    Python: 3.11.7\n",
    "not a node": "raylet_ipc_client.cc:85: Failed to connect to socket at address:/tmp/ray/session/sockets/raylet\n"
    "*** StackTrace Information ***\n/tmp/ray/_raylet.so(+0x1812b9a) ray::operator<<()\n",
    "did not answer": "gcs_client.cc:210: Failed to get cluster ID from GCS server: TimedOut\nTimeoutExpired",
    "cannot connect": "",
}


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: name)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("named", SAID)
def test_a_refused_connection_is_one_line_with_its_reason(named):
    line = refusal(SAID[named], ADDRESS)

    assert named in line
    assert "\n" not in line


def test_ray_that_is_not_installed_names_the_command(monkeypatch):
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)

    with pytest.raises(UserError, match=r"pip install ray"):
        Cluster(None)


@pytest.mark.parametrize("address", ["head", "head:", ":1", "head:x", "head:70000", "ray://head:10001"])
def test_what_is_no_address_is_refused(address, installed):
    with pytest.raises(UserError, match=r"Ray (address is|Client)"):
        _ = Cluster(address).ray


def test_an_address_where_nothing_listens_is_refused_at_once(installed):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"

    with pytest.raises(UserError, match="Nothing answers at the Ray address"):
        _ = Cluster(address).ray


def test_a_server_that_is_no_cluster_is_given_up(installed, monkeypatch):
    monkeypatch.setattr(ray_cluster, "_TRIAL", "import time; time.sleep(600)")  # what ray.init does there
    monkeypatch.setattr(ray_cluster, "_TRY", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UserError, match="did not answer"):
        _ = Cluster(f"127.0.0.1:{server.getsockname()[1]}").ray


def test_a_cluster_without_a_free_processor_is_given_up(installed, monkeypatch):
    monkeypatch.setattr(ray_workers, "_PATIENCE", -1.0)
    monkeypatch.setattr(ray_workers, "_POLL", 0.0)
    workers = RayWorkers(EvaluationRequest("resnet18"), torch.device("cpu"), None)

    with pytest.raises(UserError, match="free CPU"):
        workers.heard_of([])


def test_a_worker_that_no_node_starts_is_ended_and_blamed_on_its_host(monkeypatch):
    monkeypatch.setattr(ray_workers, "_START", -1.0)
    ray = MagicMock(exceptions=MagicMock(RayError=RuntimeError))
    ray.wait.return_value = ([], ["starting"])
    worker = RayWorker(ray, MagicMock())

    assert worker.receive() is None
    assert worker.ended() == HOST_LOST
    ray.kill.assert_called_once_with(worker.actor)


def test_an_address_is_for_ray():
    with pytest.raises(UserError, match="add --backend ray"):
        evaluate("resnet18", ray_address="head:6379")


@pytest.mark.parametrize(
    ("kind", "text", "end"),
    [
        ("ActorDiedError", "The actor is dead because its worker process has died. End of file. OOM", "worker lost"),
        ("ActorDiedError", "The actor died because its node has died. Node Id: 12", HOST_LOST),
        ("ActorUnavailableError", "The actor 12 is unavailable: the connection is broken", HOST_LOST),
        ("ActorDiedError", "Task was killed due to the node running low on memory.", "out of memory"),
    ],
)  # fmt: skip
def test_the_end_of_a_worker_has_no_address(kind, text, end):
    assert end_of(type(kind, (Exception,), {})(f"ip: 10.0.0.7\n{text}")) == end


@pytest.mark.parametrize(
    "words", [["--backend", "ray", "--ray-address", "10.0.0.7:6379"], ["--ray-address=10.0.0.7:6379", "-q"]]
)
def test_the_command_in_the_evidence_has_no_address(words):
    shown = without_addresses(["evaluate", *words])

    assert "10.0.0.7" not in " ".join(shown)
    assert len(shown) == len(words) + 1
