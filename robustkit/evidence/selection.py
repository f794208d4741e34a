"""Part of a run: some of its models, attacks, norms or radii, or one of its images."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import pandas as pd

from robustkit.errors import UserError, unknown
from robustkit.evidence.corruptions import ROLE
from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import PLACE, SampleRows
from robustkit.primitives.threat import canonical, exact, is_minimum

_ROUNDING: Final = Fraction(1, 10**6)  # of a radius, between one that was typed and that of the run


def selected(
    run: Run, *, models: Sequence[str] = (), attacks: Sequence[str] = (), norms: Sequence[str] = (),
    radii: Sequence[str] = (),
) -> Run:  # fmt: skip
    """The run with only these rows, besides those of clean images; nothing given leaves out nothing.

    The worst case is over all attacks of the run, so it is left out where attacks are chosen. Corrupted images are left
    out where attacks, norms or radii are.

    Args:
        run: the whole.
        models: names.
        attacks: names; that of an ensemble stands for its members too.
        norms: names in any case.
        radii: numbers and fractions, told by their value up to a millionth of it, or "minimum".

    Raises:
        UserError: the run has nothing of that name.
    """
    identity = run.manifest["identity"]
    for what, given, known in (
        ("model of the run", models, [entry["name"] for entry in identity["models"]]),
        ("attack of the run", attacks, [*dict.fromkeys(part["attack"] for part in run.sample_rows.parts)]),
        ("norm of the run", [canonical(each) for each in norms], [norm for norm, _ in identity["threats"]]),
    ):
        for name in given:
            if name not in known:
                raise unknown(what, name, known)
    texts = _texts([text for _, text in identity["threats"]], radii)

    def keep(frame: pd.DataFrame) -> "pd.Series[bool]":
        kept = pd.Series(True, index=frame.index)
        if models:
            kept &= frame["model"].isin(models)
        attacked = pd.Series(True, index=frame.index)
        if attacks:
            roots = frame["attack"].str.partition("/")[0]
            attacked &= frame["attack"].isin(attacks) | roots.isin(attacks)
        if norms:
            attacked &= frame["norm"].isin([canonical(each) for each in norms])
        if radii:
            # A severity is no radius, although it stands in the same column.
            attacked &= frame["eps_text"].isin(texts) & (frame["norm"] != ROLE)
        return kept & (attacked | (frame["norm"] == "-"))

    results = run.results[keep(run.results)].reset_index(drop=True)
    rows = run.sample_rows
    places = pd.DataFrame([{name: part[name] for name in PLACE} for part in rows.parts], columns=[*PLACE])
    kept = keep(places.astype({"attack": str})).tolist()
    samples = SampleRows([part for part, stays in zip(rows.parts, kept, strict=True) if stays], rows.columns)
    means = run.corruptions.iloc[:0] if attacks or norms or radii else _of_models(run.corruptions, models)
    return replace(run, results=results, sample_rows=samples, corruptions=means)


def of_image(run: Run, image: int) -> pd.DataFrame:
    """The rows of `Run.samples` about one image.

    Raises:
        UserError: it is not among those of the run.
    """
    rows = run.samples[run.samples["sample"] == image]
    if rows.empty:
        known = sorted(set(run.samples["sample"].tolist()))
        some = ", ".join(map(str, known[:8]))
        raise UserError(
            f"The run has no image {image}; it has {len(known)} of {run.manifest['identity']['dataset']['name']}, "
            f"numbered as there: {some}{' and others' if len(known) > 8 else ''}."
        )
    return rows.reset_index(drop=True)


def _of_models(means: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    chosen: pd.DataFrame = means[means["model"].isin(models)].reset_index(drop=True) if models else means
    return chosen


def _texts(known: Sequence[str], radii: Sequence[str]) -> list[str]:
    """The radii of the run that have the values which are asked for."""
    found: list[str] = []
    for text in radii:
        same = [each for each in known if _same(each, text)] or [each for each in known if _near(each, text)]
        if not same:
            raise unknown("radius of the run", text, list(dict.fromkeys(known)))
        found += same
    return found


def _same(one: str, other: str) -> bool:
    if is_minimum(one) or is_minimum(other):
        return is_minimum(one) and is_minimum(other)
    return exact(one) == exact(other)


def _near(one: str, other: str) -> bool:
    """Whether a radius is another one with fewer digits, such as 0.00784313725 for 2/255."""
    if is_minimum(one) or is_minimum(other):
        return False
    first, second = exact(one), exact(other)
    return abs(first - second) <= _ROUNDING * max(abs(first), abs(second))
