"""The undefended network that the defenses are added to, trained on scikit-learn's digits in seconds."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.data import load_dataset


def base_network(seed: int = 0, epochs: int = 8, label_smoothing: float = 0.0) -> nn.Module:
    """A small convolutional network for `[B, 1, 8, 8]` images in [0, 1], trained on digits, in eval mode.

    Takes about one second on one core; test accuracy is about 97 %. The global random state does not change.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, 16, 3, padding=1), relu1=nn.ReLU(),
                conv2=nn.Conv2d(16, 32, 3, stride=2, padding=1), relu2=nn.ReLU(),
                flatten=nn.Flatten(), fc1=nn.Linear(512, 64), relu3=nn.ReLU(), fc2=nn.Linear(64, 10),
            )
        )  # fmt: skip
    return fit(network, seed=seed, epochs=epochs, label_smoothing=label_smoothing)


@torch.enable_grad()
def fit(network: nn.Module, *, seed: int = 0, epochs: int = 8, label_smoothing: float = 0.0) -> nn.Module:
    """Train `network` in place on the training split of digits (Adam, batches of 64); returns it in eval mode."""
    x, y = _training_images()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    shuffle = torch.Generator().manual_seed(seed)
    network.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(y), generator=shuffle, device="cpu"), 64):
            optimiser.zero_grad()
            loss = F.cross_entropy(network(x[rows]), y[rows], label_smoothing=label_smoothing)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    network.zero_grad(set_to_none=True)
    return network.eval()


def _training_images() -> tuple[Tensor, Tensor]:
    data = load_dataset("digits", "train")
    return data.batch(range(len(data)))
