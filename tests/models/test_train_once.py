from pathlib import Path

import pytest
import torch

from robustkit.data import Dataset, load_dataset
from robustkit.errors import UntrainedError
from robustkit.evaluation.identity import fingerprint
from robustkit.models import CleanRecipe, PixelModel, cache, load_model, train_once
from robustkit.models.clean_training import Report, Trained, train

MODEL = "shufflenet_v2_x0_5"


@pytest.fixture(autouse=True)
def trainings(monkeypatch) -> list[CleanRecipe]:
    """The recipe of each training. Nothing is trained: the weights are set to values that depend on the recipe."""
    done: list[CleanRecipe] = []

    def fake(model: PixelModel, data: Dataset, held_out: Dataset, recipe: CleanRecipe, report: Report) -> Trained:
        done.append(recipe)
        with torch.no_grad():
            model.network.fc.bias.fill_(recipe.epochs)
        return Trained(recipe, 0.97)

    monkeypatch.setattr(train_once, "train", fake)
    return done


def load(lines: list[str] | None = None, **arguments: object) -> PixelModel:
    def report(text: str, share: float | None) -> None:
        if lines is not None and share is None:
            lines.append(text)

    return load_model(MODEL, **{"dataset": "digits", "report": report, **arguments})


def test_a_model_is_trained_once_and_then_read(trainings):
    first: list[str] = []
    again: list[str] = []
    model = load(first)

    assert fingerprint(load(again, dataset=load_dataset("digits", "val"))) == fingerprint(model)
    assert len(trainings) == 1
    assert first == [f"training {MODEL} once on digits (1099 images, 8 epochs); cached in {cache.entries()[0].path}"]
    assert again == []
    assert model.source == f"{MODEL}, trained here on digits (train split, 1099 images)"
    assert not model.training


def test_where_nothing_may_be_trained_only_a_cached_model_is_read(trainings):
    with pytest.raises(UntrainedError, match=f"{MODEL} must first be trained on digits"):
        load(may_train=False)
    assert trainings == []

    model = load()
    assert fingerprint(load(may_train=False)) == fingerprint(model)
    with pytest.raises(UntrainedError):
        load(may_train=False, retrain=True)
    assert len(trainings) == 1


def test_the_cache_lists_its_models_and_deletes_them_by_name(cache_folder):
    load()
    (entry,) = cache.entries()

    assert entry[1:3] == (MODEL, "digits")
    assert entry.path.parent == cache_folder
    assert entry.path.name.startswith(f"{MODEL}-digits-")
    assert (entry.bytes, entry.val_accuracy) == (entry.path.stat().st_size, 0.97)
    assert cache.clear("vgg11") == []
    assert cache.clear(MODEL) == [entry.path]
    assert cache.entries() == []


def test_a_broken_file_is_reported_and_trained_again():
    whole = fingerprint(load())
    path = cache.entries()[0].path
    path.write_bytes(path.read_bytes()[:1000])
    lines: list[str] = []

    assert cache.entries()[0].val_accuracy is None
    assert fingerprint(load(lines)) == whole
    assert "is broken, so it is trained again" in lines[0]
    assert cache.entries()[0].val_accuracy is not None


def test_retrain_trains_again_and_other_recipes_and_normalisations_have_other_files(trainings):
    load()
    load(retrain=True)
    assert (len(trainings), len(cache.entries())) == (2, 1)

    load(recipe=CleanRecipe(epochs=2))
    load(mean=(0.5,), std=(0.25,))
    assert len(cache.entries()) == 3


@pytest.mark.slow
def test_resnet18_learns_the_digits(monkeypatch):
    monkeypatch.setattr(train_once, "train", train)
    load_model("resnet18", dataset="digits")

    assert cache.entries()[0].val_accuracy > 0.95  # 0.97 where it was chosen


def test_an_unwritable_cache_is_reported_and_no_error(tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROBUSTKIT_CACHE", str(tmp_path / "file"))
    lines: list[str] = []

    assert load(lines).num_classes == 10
    assert "could not be kept" in lines[1]


def test_the_cache_may_be_empty_or_have_temporary_files(cache_folder):
    assert cache.entries() == []
    cache_folder.mkdir(parents=True)
    (cache_folder / ".a-digits-0.safetensors.x.part").write_bytes(b"half")

    assert len(cache.clear()) == 1
    assert list(cache_folder.iterdir()) == []
