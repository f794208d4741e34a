"""The manifest of a run, checked when it is read: a report relies on the types that robustkit wrote."""

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from robustkit import limits
from robustkit.checks.check import LEVELS
from robustkit.evidence.opening import not_ours
from robustkit.primitives.mask import unmasked
from robustkit.primitives.threat import MINIMUM, THREATS, radius_under

Check = Callable[[Any], bool]

_DEEPEST = 20  # lists and objects within each other
_LONGEST_NAME = 4096
_LONGEST_TEXT = 1 << 22  # more than a command line may have
# Without exponents of many digits, which an exact fraction would write out.
_NUMBER = r"\d{0,40}(\.\d{0,40})?(e[+-]?\d{1,3})?"
_RADIUS = re.compile(rf"\+?{_NUMBER}(/{_NUMBER})?", re.ASCII | re.IGNORECASE)


def checked_manifest(rows: Iterable[tuple[Any, Any]], folder: Path | None) -> dict[str, Any]:
    """The entries of a manifest from their JSON texts. Once it has an identity, it has all other entries too.

    Raises:
        UserError: an entry is not what robustkit writes; the sentence names it.
    """
    manifest = {}
    for key, text in rows:
        try:
            manifest[key] = json.loads(text)
            valid = (
                isinstance(key, str)
                and _depth(manifest[key]) <= _DEEPEST
                and (_ENTRIES | _FURTHER).get(key, _any)(manifest[key])
            )
        except (TypeError, ValueError, RecursionError):
            valid = False
        if not valid:
            raise not_ours(folder, f"its manifest has an unusable entry {str(key)[:40]!r}")
    missing = sorted(set(_ENTRIES) - set(manifest))
    if "identity" in manifest and missing:
        raise not_ours(folder, f"its manifest has no entry {missing[0]!r}")
    return manifest


def _any(value: Any) -> bool:
    return True


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(each) for each in inner), default=0)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


def _identity(value: Any) -> bool:
    if not isinstance(value, dict) or not all(check(value.get(key)) for key, check in _IDENTITY.items()):
        return False
    # In other norms nothing can be certified.
    smoothed = any("smoothing" in model for model in value["models"])
    certified = all(norm in ("Linf", "L2", "L1") for norm, _ in value["threats"])
    if bool(value["threats"]) != bool(value["attacks"]):
        return False
    checked = _audit(value) and _precision(value) and _corruptions(value.get("corruptions"))
    return checked and _masks(value.get("masks", {})) and (certified or not smoothed)


def _precision(identity: dict[str, Any]) -> bool:
    asked = identity.get("precision", {"half_width": 0.0, "images": identity["n"]})
    return isinstance(asked, dict) and _number(asked.get("half_width")) and _whole(asked.get("images"))


def _corruptions(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or not _name(value.get("source")):
        return False
    names, severities = value.get("names"), value.get("severities")
    valid = isinstance(names, list) and names and all(map(_name, names)) and len(set(names)) == len(names)
    return bool(valid) and isinstance(severities, list) and bool(severities) and all(
        _whole(each) and 1 <= each <= 5 for each in severities
    )  # fmt: skip


def _baseline(value: Any) -> bool:
    if not isinstance(value, dict) or not _name(value.get("name")):
        return False
    return "corrupted" not in value or (
        _numbers(value["corrupted"]) and (value.get("clean") is None or _number(value["clean"]))
    )


def _masks(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_name, value.values()))


def _audit(identity: dict[str, Any]) -> bool:
    """An audit has a size and members, or neither."""
    members = any(entry["name"].startswith("audit/") for entry in identity["attacks"])
    return _whole(identity["audit"]) and identity["audit"] > 0 and members if "audit" in identity else not members


def _named(value: Any) -> bool:
    """A list of objects with different names."""
    objects = isinstance(value, list) and all(isinstance(each, dict) and _name(each.get("name")) for each in value)
    return objects and len({each["name"] for each in value}) == len(value)


def _attacks(value: Any) -> bool:
    return _named(value) and all(isinstance(each.get("measures", {}), dict) for each in value)


def _models(value: Any) -> bool:
    printable = _named(value) and all(each["name"].isprintable() for each in value)  # else two may look the same
    smoothings = all(_smoothing(each["smoothing"]) for each in value if "smoothing" in each)
    return printable and smoothings and all(isinstance(each.get("rejects", False), bool) for each in value)


def _smoothing(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(value.get(key)) for key in ("sigma", "n", "n0", "alpha"))


def _randomized(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, dict) and all(_number(each.get(key)) for key in ("eot", "draws", "alpha", "fresh"))
        for each in value.values()
    )


def _shard(value: Any) -> bool:
    if not isinstance(value, dict) or not all(_whole(value.get(key)) for key in ("index", "count")):
        return False
    finished = value.get("finished")
    return 1 <= value["index"] <= value["count"] and (finished is None or _name(finished))


def _requests(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, dict) and all(_whole(each.get(key)) for key in ("sent", "answered")) for each in value.values()
    )


def _radii(value: Any) -> bool:
    return isinstance(value, dict) and all(_whole(each) and 0 < each <= limits.RADII for each in value.values())


def _dataset(value: Any) -> bool:
    return isinstance(value, dict) and all(_name(value.get(key)) for key in ("name", "split", "sha256"))


def _threats(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and _name(each[0]) and unmasked(each[0]) in THREATS
        and isinstance(each[1], str) and (each[1] == MINIMUM or _RADIUS.fullmatch(each[1].strip()) is not None)
        and radius_under(*each) >= 0
        for each in value
    )  # fmt: skip


_IDENTITY: dict[str, Check] = {
    "schema": _whole, "n": _whole, "models": _models, "dataset": _dataset, "class_names": _texts,
    "threats": _threats, "attacks": _attacks, "seed": _whole,
}  # fmt: skip
_ENTRIES: dict[str, Check] = {
    "identity": _identity, "robustkit": _name, "created": _name, "command": _text, "seconds": _numbers,
    "warnings": _texts, "environment": lambda value: isinstance(value, dict),
    "finished": lambda value: value is None or _name(value),
}  # fmt: skip
_FURTHER: dict[str, Check] = {
    "randomized": _randomized, "bisected": _radii, "requests": _requests, "corruption_baseline": _baseline,
    "adversarial": _name, "declared": _texts, "shard": _shard,
    "gradient_stops": lambda value: isinstance(value, dict) and all(map(_texts, value.values())),
    "checks": lambda value: isinstance(value, str) and value in LEVELS,
}  # fmt: skip
