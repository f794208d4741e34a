import numpy as np
import pytest
import torch
from scipy import stats

from robustkit.primitives import noise

KEY = torch.tensor([1234567])


def test_the_numbers_are_those_of_splitmix64():
    # The published test vector of SplitMix64 with seed 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]

    assert [number % 2**64 for number in noise.bits(KEY, 0, 5)[0].tolist()] == known


def test_a_draw_starts_where_a_longer_one_would():
    assert torch.equal(noise.bits(KEY, 3, 10)[:, :4], noise.bits(KEY, 3, 4))


def test_a_row_has_its_numbers_in_any_batch():
    keys, draws = torch.arange(40) * 977 - 300, torch.arange(40) % 3
    together = noise.normal(keys, draws, (2, 3))

    assert all(torch.equal(noise.normal(keys[i : i + 1], draws[i : i + 1], (2, 3))[0], together[i]) for i in range(40))


def test_keys_differ_in_each_of_their_parts():
    sample, restart, target = torch.meshgrid(torch.arange(20), torch.arange(5), torch.arange(-1, 9), indexing="ij")
    made = [noise.keys(seed, sample.flatten(), restart.flatten(), target.flatten()) for seed in (0, 1, -1, 2**32)]

    assert torch.cat(made).unique().numel() == 4 * 1000


def test_the_parts_of_a_key_are_not_interchangeable():
    one, two = torch.tensor([1]), torch.tensor([2])

    assert noise.keys(0, one, two) != noise.keys(0, two, one)


@pytest.mark.parametrize("draw", [0, 1, 10_000])
def test_uniform_numbers_are_uniform(draw):
    values = noise.uniform(KEY, draw, (20_000,)).numpy().ravel()
    counts, _ = np.histogram(values, bins=50, range=(0, 1))

    assert values.min() >= 0
    assert values.max() < 1
    # One fixed stream each: either it passes for ever or never.
    assert stats.chisquare(counts).pvalue > 0.01


def test_first_numbers_of_neighbouring_keys_are_uniform():
    keys = noise.keys(0, torch.arange(20_000), torch.zeros(20_000, dtype=torch.int64))
    counts, _ = np.histogram(noise.uniform(keys, 0, (1,)).numpy().ravel(), bins=50, range=(0, 1))

    assert stats.chisquare(counts).pvalue > 0.01


def test_draws_and_keys_are_uncorrelated():
    keys = noise.keys(0, torch.arange(8))
    table = torch.cat([noise.normal(keys, draw, (4000,)) for draw in range(3)])

    # 276 correlations of 4000 numbers, each of standard deviation 0.016: six of them are never passed by chance.
    assert (torch.corrcoef(table) - torch.eye(24)).abs().max() < 0.095


def test_normal_numbers_are_normal():
    assert stats.kstest(noise.normal(KEY, 0, (20_000,)).numpy().ravel(), "norm").pvalue > 0.01


def test_signs_are_fair():
    values = noise.signs(KEY, 0, (20_000,))

    assert set(values.unique().tolist()) == {-1.0, 1.0}
    assert abs(values.mean()) < 0.02


def test_the_largest_and_the_smallest_uniform_give_finite_normals(monkeypatch):
    for value in (0.0, 1 - 2.0**-24):
        monkeypatch.setattr(noise, "uniform", lambda key, draw, shape, value=value: torch.full((1, *shape), value))

        assert noise.normal(KEY, 0, (3,)).isfinite().all()


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_large_rows_are_made_in_parts_with_the_same_numbers(rows):
    key, draws = noise.keys(5, torch.arange(rows)), torch.arange(rows) * 3
    together = noise.uniform(key, draws, (3, 40, 40))

    for row in range(0, rows, 6):
        top = (noise.bits(key[row : row + 1], int(draws[row]), 4800) >> 40) & 0xFFFFFF
        assert torch.equal(together[row].flatten(), top[0].float() * 2.0**-24)
