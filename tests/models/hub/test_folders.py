import json
import os

import pytest
import torch

from robustkit.errors import UserError
from robustkit.models.hub.folders import name_of, open_folder

hub = pytest.importorskip("huggingface_hub")
pytest.importorskip("huggingface_hub.errors")  # a part that is imported on first use


@pytest.fixture
def folder(tmp_path):
    """A folder as a model's, without a network that fits."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "vit"}')
    (path / "model.safetensors").write_bytes(b"")
    return path


def test_a_folder_needs_a_configuration(folder):
    (folder / "config.json").unlink()

    with pytest.raises(UserError, match=r"has no config\.json, .*save_pretrained"):
        open_folder(str(folder))


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_broken_configuration_is_one_line(folder, text):
    (folder / "config.json").write_text(text)

    with pytest.raises(UserError, match="copy the folder again"):
        open_folder(str(folder))


def test_weights_that_could_run_code_are_not_read(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")

    with pytest.raises(UserError, match=r"only pytorch_model\.bin, .*safe_serialization"):
        open_folder(str(folder))


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "pytorch_model.bin", "missing.safetensors"])
def test_an_index_names_safetensors_of_its_folder_only(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight": name}}))

    with pytest.raises(UserError, match="is not a safetensors file of the folder"):
        open_folder(str(folder))


def test_adapters_that_name_another_model_are_refused(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "some/body"}')

    with pytest.raises(UserError, match="merge_and_unload"):
        open_folder(str(folder))


def test_a_pipe_does_not_hang(folder):
    os.mkfifo(folder / "preprocessor_config.json")

    with pytest.raises(UserError, match="not a regular file"):
        open_folder(str(folder))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConnectionError("no route to host"), r"no route to host\); on a connected machine run hf download a/vit"),
        (hub.errors.RevisionNotFoundError, "no model a/vit@old on the Hugging Face hub .*hf auth login"),
    ],
)
def test_a_failed_download_names_the_way_out(error, sentence, monkeypatch):
    def failing(*args: object, **kwargs: object) -> None:
        raise error if isinstance(error, Exception) else error.__new__(error)

    monkeypatch.setattr(hub, "snapshot_download", failing)

    with pytest.raises(UserError, match=sentence):
        open_folder("a/vit@old")


def test_a_download_takes_settings_and_safetensors_only(folder, monkeypatch):
    asked = {}

    def downloaded(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", downloaded)

    assert open_folder("a/vit@old").name == "vit-old"
    assert (asked["name"], asked["revision"]) == ("a/vit", "old")
    assert not [pattern for pattern in asked["allow_patterns"] if pattern.endswith((".bin", ".py", "*"))]


@pytest.mark.parametrize("where", ["./nosuch", "a/b/c", "a b", "../vit", "a/vit@"])
def test_what_is_no_folder_and_no_id_is_not_asked_for(where, monkeypatch):
    monkeypatch.setattr(hub, "snapshot_download", None)

    with pytest.raises(UserError, match="There is no folder"):
        open_folder(where)


def test_names_say_which_run_a_checkpoint_is_of(tmp_path):
    folder = tmp_path / "vit-tuned" / "checkpoint-500"
    folder.mkdir(parents=True)

    assert [name_of(str(folder)), name_of("google/vit"), name_of("a/vit@v1")] == [
        "vit-tuned-checkpoint-500", "vit", "vit-v1",
    ]  # fmt: skip
