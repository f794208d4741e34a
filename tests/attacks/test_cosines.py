import pytest
import torch
from robustkit.attacks._cosines import cosines, smooth_noise


@pytest.mark.parametrize("side", [1, 2, 5, 8])
def test_the_cosines_are_orthonormal_and_begin_with_the_constant(side):
    waves = cosines(side)

    assert torch.allclose(waves @ waves.t(), torch.eye(side, dtype=torch.float64))
    assert torch.allclose(waves[0], torch.tensor(side**-0.5, dtype=torch.float64))
    assert ((waves[:, :-1] * waves[:, 1:] < 0).sum(1) == torch.arange(side)).all()


def test_smooth_noise_is_normal_in_the_low_frequencies_and_zero_in_the_others():
    x, key = torch.zeros(20, 2, 32, 48), torch.arange(20) * 31
    spectrum = cosines(32).float() @ smooth_noise(x, key, torch.zeros_like(key), 0.25) @ cosines(48).float().t()

    assert spectrum[:, :, :8, :12].std().item() == pytest.approx(1, abs=0.05)
    assert spectrum[:, :, 8:].abs().max() < 1e-5
    assert spectrum[:, :, :, 12:].abs().max() < 1e-5
