"""How a request differs from the run whose folder it names, setting by setting, in plain words.

What only grows is no difference: more images, attacks, models, norms and radii, and a larger audit.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from robustkit.evidence.audit import AUDIT

_CONTENT = {"sha256": "its weights, settings or code", "code": "its code"}
_LONGEST = 60


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One phrase for each setting of the run `old` that is another, or missing, in the request `new`."""
    return [
        *(f"{key} was {_said(old[key])}, now {_said(new[key])}" for key in ("schema", "seed") if old[key] != new[key]),
        *_fewer_samples(old["n"], new["n"]),
        *(f"the radius {norm} {eps} is missing" for norm, eps in old["threats"] if [norm, eps] not in new["threats"]),
        *_smaller_audit(old.get("audit", 0), new.get("audit", 0)),
        *_about_data(old["dataset"], new["dataset"]),
        *_about_corruptions(old.get("corruptions"), new.get("corruptions")),
        *(text for kind in ("models", "attacks", "surrogates") for text in _about_entries(kind, old, new)),
    ]


def _fewer_samples(old: int, new: int) -> list[str]:
    return [f"samples was {old}, now {new}"] if new < old else []


def _smaller_audit(old: int, new: int) -> list[str]:
    return [f"audit was {old}, now {new or 'not set'}"] if new < old else []


def _about_data(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    named = [key for key in ("name", "split") if old.get(key) != new.get(key)]
    if named:
        return [f"the dataset's {key} was {_said(old.get(key))}, now {_said(new.get(key))}" for key in named]
    return ["the dataset's images or labels have changed"] if old != new else []


def _about_corruptions(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Iterator[str]:
    if old is None:
        return
    if new is None:
        yield f"the corruptions ({_said(old['source'])}) are missing"
        return
    yield from (
        f"the corruptions' {key} was {_said(old.get(key))}, now {_said(new.get(key))}"
        for key in ("source", "version") if old.get(key) != new.get(key)
    )  # fmt: skip
    for kind, name in (("corruption", "names"), ("severity", "severities")):
        yield from (f"the {kind} {each} is missing" for each in old[name] if each not in new[name])
    hashes = new.get("sha256", {})
    yield from (
        f"the images of {name} have changed"
        for name, digest in old.get("sha256", {}).items() if hashes.get(name, digest) != digest
    )  # fmt: skip


def _about_entries(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    now = {entry["name"]: entry for entry in new.get(kind, [])}
    for entry in old.get(kind, []):
        if kind == "attacks" and entry["name"].startswith(f"{AUDIT}/") and "audit" not in new:
            continue  # named once, as the audit
        name = f"the {kind[:-1]} {entry['name']}"
        if entry["name"] not in now:
            yield f"{name} is missing"
            continue
        before, after = _flat(entry), _flat(now[entry["name"]])
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        phrases = [_phrase(key, before.get(key), after.get(key)) for key in keys]
        if phrases:
            yield f"{name}: {', '.join(phrases)}"


def _phrase(key: str, old: Any, new: Any) -> str:
    last = key.rpartition(".")[2]
    if last in _CONTENT:
        return f"{_CONTENT[last]} changed ({last})"
    return f"{key} was {_said(old)}, now {_said(new)}"


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with what lies one level down named as `key.inner`."""
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        flat |= {f"{key}.{inner}": each for inner, each in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _said(value: Any) -> str:
    """A plain value in words."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        text = ", ".join(f"{key} {_said(each)}" for key, each in value.items()) or "none"
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(_said, value)) or "none"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
