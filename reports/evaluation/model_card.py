"""The metadata block of a Hugging Face model card: `model-index` with each accuracy, and the table below it.

The keys are those of huggingface_hub's `EvalResult`. The block is YAML; each text is written as a JSON string, which is
a YAML scalar too, so no name can add a key.
"""

import json
import math
from collections.abc import Iterator, Sequence

from robustkit.evidence.run import Run
from robustkit.host.files import MARK

from .board import Board, boards
from .plain_tables import markdown
from .result_rows import ResultRow


def model_card(runs: Sequence[Run]) -> str:
    """The beginning of a README.md: copy `model-index` into the metadata of the model's own card."""
    lines = ["---", f"# {MARK}: robustkit report RUN --format model-card", "model-index:"]
    for board in boards(runs):
        for model in board.models:
            lines += [f"- name: {_text(model)}", "  results:", *_result(board, model)]
    table = markdown(runs).partition("-->\n")[2]
    return "\n".join([*lines, "---", "", "## Adversarial robustness", "", table.strip(), ""])


def _result(board: Board, model: str) -> Iterator[str]:
    images = board.images
    yield "  - task:"
    yield "      type: image-classification"
    yield "    dataset:"
    yield f"      name: {_text(f'{images.dataset} {images.split}'.strip())}"
    yield f"      type: {_text(images.dataset)}"
    yield f"      split: {_text(images.split)}"
    yield "    metrics:"
    clean = board.clean(model)
    if clean is not None:
        yield from _metric("accuracy", "Accuracy on clean images", clean)
    for threat in board.threats:
        worst, certified = board.worst(model, threat), board.certified(model, threat)
        if worst is not None:
            yield from _metric("accuracy", f"Accuracy under attack, {threat} (an upper bound)", worst)
        if certified is not None:
            yield from _metric("accuracy", f"Certified accuracy, {threat} (a lower bound)", certified)


def _metric(kind: str, name: str, row: ResultRow) -> Iterator[str]:
    yield f"    - type: {kind}"
    yield f"      name: {_text(name)}"
    yield f"      value: {row.correct / row.n if row.n else 'null'}"
    low, high = (None if math.isnan(end) else end for end in (row.low, row.high))
    yield "      args:"
    yield f"        n: {row.n}"
    yield f"        interval_95: {json.dumps([low, high])}"


def _text(text: str) -> str:
    # YAML takes the two halves of an emoji, as ASCII has them, for two characters.
    return json.dumps(text, ensure_ascii=False)
