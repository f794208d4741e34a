import torch
from robustkit.attacks import BSR
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import rotate

from tests.attacks.transfer.copies import driven, followed, gradient, small, trials_of
from tests.problems import images, trials


def copies_of(method: BSR, x: torch.Tensor) -> torch.Tensor:
    return method.init(trials(x)).query


def test_without_rotation_a_copy_has_the_pixels_of_the_image_in_another_order():
    x = images(1, 1, 9, 14).expand(30, -1, -1, -1)
    copies = copies_of(BSR(0.1, blocks=3, angle=0), x)

    assert torch.equal(copies.flatten(1).sort(1).values, x.flatten(1).sort(1).values)
    assert len({tuple(copy.flatten().tolist()) for copy in copies}) == 30


def test_blocks_stay_whole():
    # Without rotation, a pixel and its right neighbour part only at the borders of two blocks.
    x = torch.arange(16.0 * 12).reshape(1, 1, 16, 12).expand(50, -1, -1, -1)
    copies = copies_of(BSR(0.1, blocks=2, angle=0), x)
    parted = (copies[..., 1:] - copies[..., :-1] != 1).flatten(1).sum(1)

    # At most one border between strips, or one in each of two strips of rows: 16 rows have one border each.
    assert (parted <= 16).all()
    assert (parted > 0).any()


def test_strips_are_rows_of_some_copies_and_columns_of_others():
    x = torch.arange(10.0 * 10).reshape(1, 1, 10, 10).expand(200, -1, -1, -1)
    copies = copies_of(BSR(0.1, blocks=2, angle=0), x)[:, 0]
    rows_whole = (copies // 10 == copies[:, :, :1] // 10).flatten(1).all(1)
    columns_whole = (copies % 10 == copies[:, :1] % 10).flatten(1).all(1)

    assert 0.2 < rows_whole.float().mean() < 0.8
    assert 0.2 < columns_whole.float().mean() < 0.8


def test_one_block_is_rotated_about_its_middle_as_by_torchvision():
    x = images(8, 2, 11, 11)
    method = BSR(0.1, blocks=1, angle=180 / 3)
    copies = copies_of(method, x)
    angles = torch.arange(-60, 60.5, 0.5).tolist()
    turned = torch.stack([rotate(x, angle, InterpolationMode.BILINEAR) for angle in angles], 1)
    nearest = (turned - copies.unsqueeze(1)).abs().flatten(2).mean(2).amin(1)

    # Half a degree apart, the nearest of these angles is at most a quarter off.
    assert (nearest < 0.01).all()
    assert ((copies - x).abs().flatten(1).mean(1) > 0.05).any()


def test_it_averages_the_gradients_of_its_copies():
    made, copies = small(), 3
    at, trial = gradient(made), trials_of(made)
    method = BSR(0.1, copies=copies, steps=3, loss="ce")

    def direction(step, point, velocity):
        numbers = [torch.full((4,), number) for number in range(step * copies, (step + 1) * copies)]
        return sum(at(point, lambda x, number=number: method.copied(x, trial, number)) for number in numbers) / copies

    assert torch.allclose(driven(method, made), followed(made.x, direction, 0.1), atol=1e-6)
