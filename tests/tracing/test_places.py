import pytest
import torch

from robustkit.tracing.places import as_map, layout

SHAPES = {
    "a feature map": ((64, 7, 7), (3, 224, 224), "channels first"),
    "channels last": ((7, 7, 64), (3, 224, 224), "channels last"),
    "as many channels as places": ((8, 8, 8), (1, 8, 8), "channels first"),
    "an image that is wide": ((16, 4, 8), (3, 32, 64), "channels first"),
    "one place": ((512, 1, 1), (1, 8, 8), None),
    "tokens": ((49, 96), (3, 224, 224), "tokens"),
    "tokens behind a class token": ((197, 192), (3, 224, 224), "tokens"),
    "a number of tokens that is no square": ((50, 96, 1, 1), (3, 224, 224), None),
    "a vector": ((10,), (1, 8, 8), None),
    "no image": ((64, 7, 7), (6,), None),
}


@pytest.mark.parametrize(("shape", "image", "kind"), SHAPES.values(), ids=SHAPES)
def test_the_layout_follows_from_the_proportions_of_the_image(shape, image, kind):
    assert layout(shape, image) == kind


def test_all_layouts_become_the_same_map():
    maps = torch.arange(2 * 5 * 9.0).reshape(2, 5, 3, 3)
    last = maps.permute(0, 2, 3, 1)
    tokens = last.reshape(2, 9, 5)
    classed = torch.cat([torch.full((2, 1, 5), -1.0), tokens], 1)

    for values in (maps, last, tokens, classed):
        assert torch.equal(as_map(values, (1, 6, 6)), maps)
