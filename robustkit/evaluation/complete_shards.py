"""Whether runs that are merged are the shards of one run: each of them there, once, finished, of the same plan."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from robustkit.errors import UserError
from robustkit.evaluation.differences import changed
from robustkit.evaluation.shard import Shard

_NAMED = 8  # missing shards that are listed


def are_shards(names: Sequence[str], manifests: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the runs are all shards of one run; false if none is a shard.

    Args:
        names: of the run folders, for messages.
        manifests: of the runs.

    Raises:
        UserError: only some are shards, or one is missing, given twice, unfinished, or of another run.
    """
    noted = [manifest.get("shard") for manifest in manifests]
    if not any(noted):
        return False
    shards: dict[Shard, str] = {}
    for name, entry in zip(names, noted, strict=True):
        if entry is None:
            raise UserError(f"{name} is a run of all images, and others are shards; merge the shards by themselves.")
        shard = Shard(entry["index"], entry["count"])
        first = next(iter(shards), shard)
        if shard.count != first.count:
            raise UserError(
                f"{name} is one of {shard.count} shards, and {shards[first]} one of {first.count}; merge shards of one "
                "run."
            )
        if shard in shards:
            raise UserError(f"Shard {shard.text} is given twice, as {shards[shard]} and as {name}; leave one out.")
        if entry["finished"] is None:
            raise UserError(f"Shard {shard.text}, {name}, is unfinished; repeat its command, which continues it.")
        shards[shard] = name
    _require_all(shards)
    _require_same_plan(names, [manifest["identity"] for manifest in manifests])
    return True


def _require_all(shards: Mapping[Shard, str]) -> None:
    # The number comes from the folders, and can be as large as somebody wants: count no further than a sentence needs.
    count, given = next(iter(shards)).count, {shard.index for shard in shards}
    missing = list(islice((index for index in range(1, count + 1) if index not in given), _NAMED + 1))
    if missing:
        listed = ", ".join(map(str, missing[:_NAMED])) + (", ..." if len(missing) > _NAMED else "")
        what = f"shard {listed} of {count} is" if len(missing) == 1 else f"shards {listed} of {count} are"
        raise UserError(f"Of the run, {what} missing; give the folders of all {count}.")


def _require_same_plan(names: Sequence[str], identities: Sequence[Mapping[str, Any]]) -> None:
    first = _without_sources(identities[0])
    for name, identity in zip(names[1:], identities[1:], strict=True):
        other = _without_sources(identity)
        if other != first:
            differences = [*changed(first, other), *changed(other, first)]
            what = differences[0] if differences else "its settings are others"
            raise UserError(f"{name} is a shard of another run than {names[0]}: {what}; merge shards of one command.")


def _without_sources(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is about; where the file of a model lies does not matter."""
    entries = {
        kind: [{key: value for key, value in entry.items() if key != "source"} for entry in identity[kind]]
        for kind in ("models", "surrogates") if kind in identity
    }  # fmt: skip
    return {**identity, **entries}
