"""`clip:ID-or-folder`: CLIP models as zero-shot classifiers of a data set's classes."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.limits import shortened
from robustkit.models import checkpoint
from robustkit.models.pixels import PixelModel
from robustkit.models.pretrained import PublishedImages
from robustkit.models.sources import ModelRequest
from robustkit.paths import no_file, user_path

from .building import built, require_plain
from .classifier import classes_of, pixel_model
from .folders import HubFolder, open_folder, require_address
from .labels import order_of
from .library import quiet_transformers, require_transformers
from .processors import read_processing
from .zero_shot import ZeroShotClassifier, class_features

PREFIX = "clip:"
TEMPLATE = "a photo of a {}."
_OPTIONS = ("templates", "classes")
WITH_OPTIONS = re.compile(r"(?P<where>.+)\((?P<options>\s*\w+\s*=.*)\)", re.DOTALL)
_CHANNELS = 3
_TOKENIZERS = ("tokenizer.json", "vocab.json")


class ClipAddress(NamedTuple):
    """ "FOLDER(templates=FILE, classes=FILE)" taken apart."""

    where: str
    templates: Path | None
    classes: Path | None


def parsed(text: str) -> ClipAddress:
    """What stands after "clip:".

    Raises:
        UserError: there is no such option.
    """
    match = WITH_OPTIONS.fullmatch(text)
    if match is None:
        return ClipAddress(text, None, None)
    files: dict[str, Path] = {}
    for option in match["options"].split(","):
        key, _, value = (part.strip() for part in option.partition("="))
        if key not in _OPTIONS:
            raise unknown("option of clip", key, _OPTIONS)
        files[key] = user_path(value)
    return ClipAddress(match["where"], files.get("templates"), files.get("classes"))


def require(text: str) -> None:
    """Check that there may be such a model, without asking the network.

    Raises:
        UserError: transformers is not installed, or there is no such folder, ID, option or file.
    """
    require_transformers(PREFIX + text)
    address = parsed(text)
    require_address(address.where)
    for file in (address.templates, address.classes):
        if file is not None:
            _lines(file)


def load(request: ModelRequest) -> PixelModel:
    """The model of a request whose name begins with "clip:".

    Raises:
        UserError: it is no CLIP model, cannot be downloaded, has no safetensors, or there are no class names.
    """
    text = request.name.removeprefix(PREFIX)
    require(text)
    address = parsed(text)
    classes = classes_of(request.images) if address.classes is None else _ordered(address.classes, request)
    templates = [TEMPLATE] if address.templates is None else _templates(address.templates)
    if not classes:
        raise UserError(
            f"{shortened(request.name)} classifies by the names of classes, and there are none; pass --dataset, or "
            f"{PREFIX}{shortened(address.where)}(classes=FILE) with one name per line."
        )
    _require_distinct(classes, address.where)
    if request.num_classes not in (None, len(classes)):
        raise UserError(f"There are {len(classes)} names of classes; leave out --num-classes.")
    folder = open_folder(address.where)
    network = _network(folder, address.where, templates, classes)
    source = f"CLIPModel from {folder.source}, {len(classes)} classes in {_counted(len(templates), 'template')}"
    if request.weights is not None:
        source += checkpoint.load_file(network, request.weights, request.name, adapts=False)
    processing = read_processing(folder.path, address.where, _CHANNELS)
    return pixel_model(request, folder, network, processing, len(classes), source)


def images(text: str) -> PublishedImages:
    """The images that a model is for; no weights are read.

    Raises:
        UserError: there is no such model or no image processor.
    """
    require(text)
    address = parsed(text)
    processing = read_processing(open_folder(address.where, weights=False).path, address.where, _CHANNELS)
    classes = () if address.classes is None else tuple(_lines(address.classes))
    return PublishedImages(processing.resize, processing.side, classes)


def _network(folder: HubFolder, where: str, templates: Sequence[str], classes: Sequence[str]) -> ZeroShotClassifier:
    require_plain(folder.config, where)
    if folder.config["model_type"] != "clip":
        raise UserError(
            f"{shortened(where)} is a {shortened(folder.config['model_type'])} and no CLIP model; for image "
            f"classifiers pass --model hf:{shortened(where)}."
        )
    # Without its files, the library makes a tokenizer that knows no word.
    if not any((folder.path / name).is_file() for name in _TOKENIZERS):
        raise UserError(
            f"{shortened(where)} has no tokenizer ({' or '.join(_TOKENIZERS)}); save it beside the model: "
            "processor.save_pretrained(FOLDER)."
        )
    with quiet_transformers() as transformers:
        clip = built(transformers, "AutoModel", folder, where)
        try:
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                folder.path, trust_remote_code=False, local_files_only=True
            )
            features = class_features(clip, tokenizer, templates, [_as_text(name) for name in classes])
        except Exception as error:  # settings of any kind reach the library's own code
            reason = shortened(str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__)
            raise UserError(
                f"The tokenizer of {shortened(where)} cannot be used ({reason}); save it beside the model: "
                "processor.save_pretrained(FOLDER)."
            ) from error
    scale = clip.logit_scale.detach().exp()
    return ZeroShotClassifier(clip.vision_model, clip.visual_projection, features, scale).eval()


def _ordered(file: Path, request: ModelRequest) -> list[str]:
    """The lines of a file of classes; in the order of the data, if its classes are among them."""
    names = _lines(file)
    order = order_of(names, classes_of(request.images))
    return names if order is None else [names[number] for number in order]


def _require_distinct(classes: Sequence[str], where: str) -> None:
    """Refuse two classes of one name: their logits are equal, so no image is ever classified as the second."""
    (twice, count), *_ = Counter(map(_as_text, classes)).most_common(1)
    if count > 1:
        raise UserError(
            f"Several classes are called {shortened(twice)!r}, and zero-shot classification knows classes by their "
            f"names; pass {PREFIX}{shortened(where)}(classes=FILE) with another name for each class, one per line."
        )


def _as_text(name: str) -> str:
    return name.replace("_", " ")


def _templates(file: Path) -> list[str]:
    templates = _lines(file)
    for template in templates:
        if template.count("{}") != 1:
            raise UserError(
                f"The template {shortened(template)!r} of {shortened(file)} must contain {{}} once, where the name of "
                f"the class goes, as in {TEMPLATE!r}."
            )
    return templates


def _lines(file: Path) -> list[str]:
    """The lines of a text file that are not empty."""
    if not file.is_file():
        raise no_file(f"There is no file {shortened(file)}", file, "check the path")
    if file.stat().st_size > limits.TABLE_BYTES:
        most = limits.TABLE_BYTES // limits.MIB
        raise UserError(f"{shortened(file)} has more than {most} MiB; write one name per line.")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        raise UserError(f"{shortened(file)} cannot be read as text; save it as UTF-8.") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or max(map(len, lines)) > limits.CLASS_NAME:
        raise UserError(f"{shortened(file)} must have lines of 1 to {limits.CLASS_NAME} letters.")
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
