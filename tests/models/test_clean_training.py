import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from robustkit.data import DatasetPart, TensorData, from_tensors
from robustkit.errors import UserError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import CleanRecipe, PixelModel
from robustkit.models.clean_training import batches, train

# 65 images: the last batch of 64 would be one image alone.
RECIPE = CleanRecipe(epochs=4, lr=0.5)


def bright_rows(n: int, classes: int = 4) -> TensorData:
    """Images of `classes` kinds: which row is bright is the class."""
    y = torch.arange(n) % classes
    x = torch.rand(n, 1, classes, 6, generator=torch.Generator().manual_seed(0)) / 2
    x[torch.arange(n), 0, y] += 0.5
    return from_tensors(x, y, name="rows")


def small_model(classes: int = 4) -> PixelModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=0.01), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(),
            nn.Linear(8 * classes * 6, classes),
        )  # fmt: skip
    return PixelModel(layers, name="small", source="", num_classes=classes)


def trained(recipe: CleanRecipe = RECIPE) -> tuple[PixelModel, float, list[float]]:
    model, data, shares = small_model(), bright_rows(65), []
    accuracy = train(model, data, DatasetPart(data, tuple(range(40))), recipe, lambda _, share: shares.append(share))
    return model, accuracy, shares


def test_an_easy_task_is_learnt():
    model, accuracy, _ = trained()

    assert accuracy == 1.0
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_same_recipe_gives_the_same_bits():
    assert fingerprint(trained()[0]) == fingerprint(trained()[0])
    assert fingerprint(trained()[0]) != fingerprint(trained(replace(RECIPE, seed=1))[0])


def test_progress_rises_to_the_whole():
    shares = trained()[2]

    assert shares == sorted(shares)
    assert math.isclose(shares[-1], 1.0)


def test_statistics_are_those_of_the_final_weights():
    model, data = trained()[0], bright_rows(65)

    seen = model.network[0](data.images)
    assert torch.allclose(model.network[1].running_mean, seen.mean((0, 2, 3)), atol=1e-5)  # another order of the sum
    assert model.network[1].momentum == 0.01


def test_a_model_that_learns_nothing_is_refused():
    with pytest.raises(UserError, match=r"learnt nothing on rows .* --weights FILE"):
        trained(replace(RECIPE, epochs=1, lr=1e-9))


def test_one_image_alone_is_no_batch():
    assert [len(some) for some in batches(range(129), 64)] == [64, 64]
    assert [len(some) for some in batches(range(1), 64)] == [1]
