"""The card of a run as Markdown; names are not trusted, so whatever Markdown would interpret is escaped."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robustkit.errors import UserError
from robustkit.evidence.run import Run
from robustkit.host.files import MARK, write_text

from ..shared.words import interval, mean_interval, mean_percent, percent
from .card import card, card_json
from .plain_tables import PlainTable, as_markdown, in_markdown


def write_card(run: Run, path: Path, thresholds: Sequence[str] = ()) -> None:
    """Write the card to a file: JSON if its name ends in .json, Markdown if it ends in .md.

    Raises:
        UserError: the name ends in something else, a threshold is no condition of this run, or the file cannot be
            written.
    """
    forms = {".json": card_json, ".md": card_markdown}
    ending = path.suffix.lower()
    if ending not in forms:
        raise UserError(f"A card is written as JSON or Markdown, and {path} ends in neither .json nor .md; rename it.")
    write_text(path, forms[ending](run, thresholds))


def card_markdown(run: Run, thresholds: Sequence[str] = ()) -> str:
    """The card, with a heading for each part."""
    return "\n".join(_lines(card(run, thresholds)))


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    model, data, tool = content["threat_model"], content["data"], content["tool"]
    yield f"<!-- {MARK} -->\n"
    yield "# Adversarial robustness: evidence card\n"
    yield from _list({
        "Run": content["run"], "Tool": f"{tool['name']} {tool['version']} ({_pairs(tool['with'])})",
        "Created": content["dates"]["created"], "Finished": content["dates"]["finished"],
        "Command": content["command"], "Seed": content["seed"],
        "SHA-256 of the evidence": content["evidence_sha256"], "Terms": content["terms"],
    })  # fmt: skip
    yield "## Data\n"
    yield from _list({
        "Data set": f"{data['name']} {data['split']}".strip(), "Images": data["images"], "Classes": data["classes"],
        "SHA-256 of images and labels": data["sha256"],
    })  # fmt: skip
    yield "## Threat model\n"
    yield from _list({
        "Attack class": model["attack_class"], "Stage": model["stage"], "Goal": model["goal"],
        "Capability": model["capability"], "Knowledge": "; ".join(model["knowledge"]),
    })  # fmt: skip
    yield from ("- Budget: " + _safe(f"{each['norm']} {each['eps_text']}: {each['words']}") for each in model["budget"])
    yield ""
    for each in content["models"]:
        yield from _model(each)
    if content["notes"]:
        yield "## Notes on the numbers\n"
        yield from (f"- {_safe(text)}" for text in content["notes"])
        yield ""
    yield "## Thresholds\n"
    yield from _thresholds(content["thresholds"])
    yield "## What was tested\n"
    rows = [[each["name"], each["knowledge"], each["access"], _pairs(each["settings"])] for each in content["attacks"]]
    header = ["attack", "knowledge", "access", "settings"]
    yield as_markdown(PlainTable("The attacks and all of their settings.", header, rows)) if rows else "No attack.\n"
    yield from (
        f"- Requests to {_safe(name)}: {count['sent']:,} sent, {count['answered']:,} answered"
        for name, count in content["requests"].items()
    )
    yield "## What was not tested\n"
    yield from (f"- {_safe(text)}" for text in content["not_tested"])
    yield "\n## Warnings of the run\n"
    yield from (f"- {_safe(text)}" for text in content["warnings"] or ["none"])
    yield ""


def _model(entry: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Model {_safe(entry['name'])}\n"
    yield from _list({"SHA-256": entry["sha256"], "Source": entry["source"]})
    clean = entry["clean"]
    rows = [["clean images", _accuracy(clean), "-", "-"]]
    for each in entry["under_attack"]:
        threat = f"{each['norm']} {each['eps_text']}"
        rows.append([f"{threat}, worst case", _accuracy(each["worst_case"]), "upper bound", _drop(each["drop"])])
        if isinstance(each["certified"], Mapping):
            rows.append([f"{threat}, certified", _accuracy(each["certified"]), "lower bound", "-"])
    for each in entry["corrupted"]:
        ce = "-" if each["ce"] is None else f"CE {100 * each['ce']:.1f} %"
        rows.append([f"corrupted: {each['corruption']}, severity {each['severities']}", _mean(each), ce, "-"])
    caption = "Accuracy with its 95 % interval; the drop is against clean images, with Newcombe's paired 95 % interval."
    yield as_markdown(PlainTable(caption, ["condition", "accuracy", "bound", "drop, points"], rows))
    if entry["notes"]:
        yield from (f"- {_safe(text)}" for text in entry["notes"])
        yield ""


def _thresholds(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield f"{entries}\n"
        return
    words = {True: "met", False: "not met"}
    rows = [
        [each["condition"], each["declared"], each["model"], words.get(each["met"], str(each["met"])), each["reason"]]
        for each in entries
    ]
    header = ["condition", "declared", "model", "result", "measured"]
    yield as_markdown(PlainTable("Judged by the measured accuracy.", header, rows))


def _accuracy(share: Any) -> str:
    if not isinstance(share, Mapping) or not share["n"]:
        return "not assessed"
    bounds = interval(share["ci_low"], share["ci_high"], share["correct"], share["n"])
    return f"{percent(share['correct'], share['n'])} ({bounds}, n = {share['n']})"


def _mean(entry: Mapping[str, Any]) -> str:
    """The mean accuracy over severities, which is no share of images."""
    if not entry["n"]:
        return "not assessed"
    bounds = mean_interval(entry["ci_low"], entry["ci_high"], entry["accuracy"])
    return f"{mean_percent(entry['accuracy'])} ({bounds}, n = {entry['n']})"


def _drop(drop: Any) -> str:
    if not isinstance(drop, Mapping) or drop["value"] is None:
        return "not assessed"
    return f"{100 * drop['value']:.1f} ({100 * drop['ci_low']:.1f} to {100 * drop['ci_high']:.1f})"


def _list(entries: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"- {name}: {_safe(str(value))}" for name, value in entries.items())
    yield ""


def _pairs(entries: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in entries.items())


def _safe(text: str) -> str:
    return in_markdown(text)
