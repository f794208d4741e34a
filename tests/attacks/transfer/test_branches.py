import torch
from robustkit.attacks.transfer._branches import CallSite, anatomies
from torch import Tensor, nn

from robustkit.testing.problems import SmallResidualNet
from tests.problems import hooks, problem


class Block(nn.Module):
    """One ReLU in two places, as in torchvision's blocks, and layers on the skip connection if asked."""

    def __init__(self, channels: int, down: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Linear(channels, channels) if down else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(self.relu(self.first(x)))
        out += x if self.down is None else self.down(x)
        return self.relu(out)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 3), nn.Linear(7, 2), nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for layer in (self.one, self.two):
            seen.append(layer(torch.cat(seen, 1)))
        return self.head(torch.cat(seen, 1))


class Untraceable(nn.Module):
    """Does what no trace can follow."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.seen = inner, []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return self.inner(x) if x.sum() > -1e9 else x


def ends(network: nn.Module) -> list[CallSite]:
    return [part.made[branch.end] for part in anatomies(network) for branch in part.branches]


def test_the_longer_path_of_a_sum_is_the_branch():
    network = nn.Sequential(Block(4), Block(4, down=True))
    (part,) = anatomies(network)

    assert ends(network) == [CallSite("0.second", 0), CallSite("1.second", 0)]
    assert [part.heads(branch) for branch in part.branches] == [[CallSite("0.first", 0)], [CallSite("1.first", 0)]]
    assert part.made[part.branches[1].skip] == CallSite("1.down", 0)
    assert part.branches[0].skip is part.branches[0].start
    assert part.times["0.relu"] == 2


def test_concatenated_layers_are_branches_too():
    assert set(ends(Dense())) == {CallSite("one", 0), CallSite("two", 0)}


def test_parallel_paths_of_equal_length_are_no_branches():
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.one(x) + self.two(x), self.one(x)], 1)

    assert ends(Parallel()) == []


def test_a_network_that_cannot_be_traced_is_traced_part_by_part():
    network = Untraceable(nn.Sequential(Block(4), Untraceable(Block(4))))
    before = [list(module.seen) for module in (network, network.inner[1])]

    assert ends(network) == [CallSite("inner.0.second", 0), CallSite("inner.1.inner.second", 0)]
    assert [list(module.seen) for module in (network, network.inner[1])] == before


class Weighed(nn.Module):
    """A branch that ends in a product: with a parameter, or of two layers."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.one, self.two, self.gated = nn.Linear(4, 4), nn.Linear(4, 4), gated
        self.scale = nn.Parameter(torch.full((4,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.one(x) * (self.two(x) if self.gated else self.scale)


def test_the_outlet_is_the_last_layer_that_all_of_a_branch_passes():
    for gated, outlet in ((False, CallSite("one", 0)), (True, None)):
        (part,) = anatomies(Weighed(gated))

        assert [part.outlet(branch) for branch in part.branches] == [outlet]


def test_a_replayed_branch_runs_no_hooks():
    made = problem("residual mlp", 6)
    calls = []
    handle = made.model.branch[1].register_forward_hook(lambda *_: calls.append(1))
    (part,) = anatomies(made.model)
    value = torch.rand(3, 16)
    replayed = part.replay(made.model, part.branches[0], value)
    handle.remove()

    assert not calls
    assert torch.equal(replayed, made.model.branch(value))
    assert hooks(made.model) == 0


def test_a_changed_network_is_traced_again():
    made = problem("residual mlp", 6)
    assert ends(made.model) == [CallSite("branch.2", 0)]

    made.model.branch = nn.Sequential(nn.Linear(16, 16))
    assert ends(made.model) == [CallSite("branch.0", 0)]


def test_a_traced_network_is_garbage_collected():
    import gc
    import weakref

    network = SmallResidualNet(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    ends(network)
    gone = weakref.ref(network)
    del network
    gc.collect()

    assert gone() is None
