"""Which GPU is that of this process."""

import pytest
import torch

from robustkit import UserError
from robustkit.host.processes import own_device


def as_process(monkeypatch, rank: int, size: int) -> None:
    """Set the variables that torchrun sets."""
    for name, value in {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))


def test_each_process_gets_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device(torch.device("cuda")) == torch.device("cuda")
    as_process(monkeypatch, 1, 3)

    assert own_device(torch.device("cuda")) == torch.device("cuda:1")
    assert own_device(torch.device("cuda:0")) == torch.device("cuda:0")
    assert own_device(torch.device("cpu")) == torch.device("cpu")
    as_process(monkeypatch, 2, 3)
    with pytest.raises(UserError, match="2 GPUs here, and at least 3 processes"):
        own_device(torch.device("cuda"))
