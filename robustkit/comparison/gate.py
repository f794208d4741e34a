"""Whether a run is good enough: accuracies of at least so much, and no real drop below a baseline."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from robustkit.errors import UserError, unknown
from robustkit.evidence.checked import SWITCHED_OFF, level_of, unmade
from robustkit.evidence.own_features import OWN_FEATURES, own_features
from robustkit.evidence.reading import load_run
from robustkit.evidence.run import Run
from robustkit.evidence.union import UNION
from robustkit.host.arguments import checked_arguments
from robustkit.primitives.threat import is_minimum
from robustkit.statistics.paired import holm, mcnemar, paired_difference
from robustkit.statistics.telling_digits import in_telling_digits

from .compare import LEVEL
from .conditions import Condition, CorruptionCondition, condition
from .conditions import share as share_of
from .contestants import CLEAN, Contestant, ThreatKey, called, check_same_images, contestants, verdicts_on_shared_images
from .corruption_gate import corruption_check, corruption_drops, named
from .gate_check import GateCheck as GateCheck
from .gate_check import percent_beside, share_check

JudgedBy = Literal["point", "low", "high"]

_SMALL = 0.02  # a drop that hardly matters


@dataclass(frozen=True)
class Gate:
    """All conditions on a run; `gate.passed` says whether all of them hold."""

    checks: tuple[GateCheck, ...]
    note: str = ""  # that automatic checks of the run were not made, or that there are few images

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


@checked_arguments
def gate(
    run: Run | str | Path, *, fail_under: str | Sequence[str] = (), baseline: Run | str | Path | None = None,
    max_drop: str | float = 0.0, judged_by: str = "point", allow_unreliable: bool = False,
) -> Gate:  # fmt: skip
    """Check the accuracies of every model of a run.

    Args:
        run: a finished run or its folder.
        fail_under: conditions, "Linf@8/255>=0.40", "clean>=90%", "union>=0.30" for all threats of the run together, or
            "corruptions>=0.50", "corruptions@fog>=0.4" and "mCE<=0.9" for corrupted images. Without any, and without a
            baseline, those that `evaluate --fail-under` stored in the run.
        baseline: an earlier run on the same images. A check fails if the accuracy is lower by more than `max_drop`, and
            the drop is significant too: exact one-sided McNemar test at 5 % (on corrupted images the exact sign-flip
            test), Holm's correction for all drops together.
        max_drop: the largest drop that is accepted, as a share ("0.02" or "2%").
        judged_by: what `fail_under` is compared with: "point" (the measured accuracy), "low" or "high" (an end of its
            95 % interval).
        allow_unreliable: whether a result that the run itself calls unreliable may pass, such as one with masked
            gradients.

    Raises:
        UserError: nothing to check, an unknown condition, a setting that nothing uses, an unfinished run, a threat that
            the run does not have, or a baseline on other images, or with norms, radii or corruptions that the run does
            not have.
    """
    if judged_by not in get_args(JudgedBy):
        raise unknown("way to judge", judged_by, get_args(JudgedBy))
    most = share_of(str(max_drop))
    _require_use(most, judged_by, fail_under, baseline)
    conditions = [condition(text) for text in ([fail_under] if isinstance(fail_under, str) else fail_under)]
    judged = _with_radii(_loaded(run))
    if not conditions and baseline is None:
        conditions = [condition(text) for text in judged.manifest.get("declared", ())]
        if not conditions:
            raise UserError("A gate needs something to check: --fail-under 'Linf@8/255>=0.40', or --baseline RUN.")
    models = contestants([judged])
    checks = [
        corruption_check(model, each, judged_by) if isinstance(each, CorruptionCondition)
        else _least(model, each, judged_by)
        for model in models for each in conditions
    ]  # fmt: skip
    notes = [_unchecked(judged)]
    if baseline is not None:
        before = _with_radii(_loaded(baseline))
        tests = [*_drops(models, contestants([before]), most)]
        checks += _judged_drops(tests, most)
        notes += [_coarse(tests, most), OWN_FEATURES if own_features([before.manifest["identity"]]) else ""]
    if not allow_unreliable:
        for model in models:
            threats = [each for each in conditions if isinstance(each, Condition)]
            asked = [_threat_of(model, each) for each in threats] if baseline is None else None
            checks += _unreliable(model, asked)
    return Gate(tuple(checks), " ".join(filter(None, notes)))


def _require_use(most: float, judged_by: str, fail_under: str | Sequence[str], baseline: object) -> None:
    """Refuse settings that would change nothing: what they are for was probably forgotten."""
    if most > 0 and baseline is None:
        raise UserError("--max-drop is for a drop below a baseline, and there is none; add --baseline RUN.")
    if judged_by != "point" and not fail_under and baseline is not None:
        raise UserError("--judged-by is for conditions, and a baseline is none; add --fail-under 'Linf@8/255>=0.40'.")


def _unchecked(run: Run) -> str:
    level = level_of(run.manifest)
    if level == "none":
        return SWITCHED_OFF
    names = ", ".join(unmade(run.checks, level))
    return f"Automatic checks were not run: {names}. Repeat robustkit evaluate with the same --out." if names else ""


def _with_radii(run: Run) -> Run:
    threats = run.manifest["identity"]["threats"]
    if threats and all(is_minimum(text) for _, text in threats) and run.corruptions.empty:
        raise UserError("A gate is about accuracies, and this run measures distances; give one with --eps RADIUS.")
    return run


def _loaded(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)


def _least(model: Contestant, asked: Condition, judged_by: str) -> GateCheck:
    threat = _threat_of(model, asked)
    found, counted = model.share(threat), f"n={model.count(threat)}"
    share = found.value, found.low, found.high
    return share_check(model.name, _name(model, threat), share, counted, asked.least, judged_by)


def _threat_of(model: Contestant, asked: Condition) -> ThreatKey:
    threat = model.union if asked.threat.norm == UNION else asked.threat
    if threat is not None and threat in model.threats:
        return threat
    known = ", ".join(_name(model, each) for each in sorted(model.threats))
    fix = "Evaluate in several norms" if threat is None else "Evaluate with that norm and radius"
    raise UserError(f"The run has no result for {asked.text!r}; it has {known}. {fix}.")


class _Drop(NamedTuple):
    """A result of a model against that of the baseline, in shares."""

    model: str
    threat: str
    change: float
    low: float
    high: float
    too_far: bool
    p: float
    n: int
    note: str  # about images that are left out
    corrupted: bool = False  # whether it is about corrupted images, each of which may have several verdicts


def _drops(models: Sequence[Contestant], before: Sequence[Contestant], most: float) -> Iterator[_Drop]:
    for model, old in _matched(models, before):
        yield from _tests(model, old, most)


def _coarse(tests: Sequence[_Drop], most: float) -> str:
    """A sentence if there are so few images that a drop which matters is never significant."""
    # If only the baseline gets some images right, and the new model no others, each of them halves p.
    images = next(count for count in range(1, 64) if len(tests) * 0.5**count < LEVEL)
    single = [test for test in tests if not test.corrupted]
    n = min((test.n for test in single), default=images)
    if images <= max(most, _SMALL) * n:
        return ""
    drop = f"only a drop of {100 * images / n:.3g} points or more" if images <= n else "no drop"
    where = ", clean or under attack," if len(single) < len(tests) else ""
    return f"With {n} images{where} {drop} can fail; evaluate more images."


def _judged_drops(tests: Sequence[_Drop], most: float) -> Iterator[GateCheck]:
    for test, p in zip(tests, holm([test.p for test in tests]), strict=True):
        passed = not (test.too_far and p < LEVEL)
        change = (
            f"{_signed(test.change, most)} points against the baseline "
            f"(95 %: {100 * test.low:+.1f} to {100 * test.high:+.1f}, n={test.n}{test.note})"
        )
        why = (
            ""
            if not test.too_far
            else f", more than {100 * most:g} points down"
            + (f", p = {_p_value(p)}" if not passed else f", but that may be luck: p = {_p_value(p)}")
        )
        yield GateCheck(test.model, test.threat, passed, change + why)


def _signed(change: float, most: float) -> str:
    """A change in points, in as many digits as show whether it is a larger drop than is accepted."""
    return ("+" if change >= 0 else "") + percent_beside(change, -most)


def _p_value(p: float) -> str:
    """A p-value in as many digits as show whether it is significant."""
    return in_telling_digits(lambda digits: f"{p:.{digits}g}", lambda shown: shown < LEVEL, beyond=p < LEVEL, least=2)


def _tests(model: Contestant, old: Contestant, most: float) -> Iterator[_Drop]:
    same = check_same_images(model, old)
    _require_same_way(model, old)
    shared = sorted(model.threats.keys() & old.threats.keys())
    note = ", without the images that have no verdict" if model.errors or old.errors else ""
    note += "" if same else ", of which only the labels could be compared"
    # Of all threats together there is none where one is missing, and another where the run has more.
    lost = sorted(threat for threat in old.threats if threat not in shared and threat.norm != UNION)
    if lost:
        raise UserError(
            f"The run has no result for {_name(old, lost[0])}, which the baseline has; evaluate both under the same "
            "norms and radii."
        )
    if shared == [CLEAN] and len(model.threats) > 1:
        raise UserError("The baseline has no norm and radius of this run; evaluate both under the same ones.")
    for threat in shared:
        counts = verdicts_on_shared_images(model, old, threat)
        difference, p = paired_difference(counts), mcnemar(counts, first_is_lower=True)
        # Counts are compared, not floats: a drop of exactly the accepted size passes.
        too_far = counts.second_only - counts.first_only > most * counts.n * (1 + 1e-12)
        yield _Drop(model.name, _name(model, threat), *difference, too_far, p, counts.n, note)
    for pair in corruption_drops(model, old):
        test = pair.test
        too_far = -test.difference > most * (1 + 1e-12)
        name = named(pair.corruption)
        yield _Drop(model.name, name, test.difference, test.low, test.high, too_far, test.p, test.n, note, True)


def _require_same_way(model: Contestant, old: Contestant) -> None:
    if not model.attacked_as(old):
        raise UserError(
            f"The baseline was attacked by {', '.join(old.attacks)}, this run by {', '.join(model.attacks)}, or "
            "with other settings; evaluate both in the same way."
        )
    if model.rejects != old.rejects:
        now, then = ("with" if each.rejects else "without" for each in (model, old))
        raise UserError(
            f"The baseline was evaluated {then} --rejects, this run {now}, so images count as broken for different "
            "reasons; evaluate both in the same way."
        )


def _matched(models: Sequence[Contestant], before: Sequence[Contestant]) -> Iterator[tuple[Contestant, Contestant]]:
    """Each model with that of its name, or the only one, in the baseline."""
    if len(models) == len(before) == 1:
        yield models[0], before[0]
        return
    named = {each.model: each for each in before}
    for model in models:
        if model.model not in named:
            raise unknown("model of the baseline", model.model, named)
        yield model, named[model.model]


def _unreliable(model: Contestant, asked: Sequence[ThreatKey] | None) -> Iterator[GateCheck]:
    for threat in sorted(model.threats if asked is None else set(asked)):
        if note := model.note(threat):
            reason = f"not reliable: {note}; run `robustkit diagnose`, or pass --allow-unreliable"
            yield GateCheck(model.name, _name(model, threat), False, reason)


def _name(model: Contestant, threat: ThreatKey) -> str:
    return called(threat, model.threats[threat])
