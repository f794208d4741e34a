"""`robustkit list`: the names that the command line accepts."""

from typing import TYPE_CHECKING

import click

from .options import DATASETS, MODELS
from .repeated import OneValueEach
from .terminal import echo

if TYPE_CHECKING:
    from robustkit.primitives.protocol import Attack


@click.command("list", cls=OneValueEach)
@click.argument("kind", type=click.Choice(["attacks", "models", "datasets"]))
def catalogue(kind: str) -> None:
    """Names of attacks (with their hyper-parameters), models or data sets."""
    {"attacks": _attacks, "models": _models, "datasets": _datasets}[kind]()


def _attacks() -> None:
    from robustkit.primitives import ensembles, registry

    echo(_HEAD)
    for name, attack in sorted(registry.classes().items()):
        echo(_line(name, attack))
    for name, (base, preset) in sorted(registry.VARIANTS.items()):
        values = ",".join(f"{key}={value}" for key, value in preset.items())
        echo(f"{name:<18} = {':'.join(filter(None, (base, values)))}")
    for name, kind in registry.universal_classes().items():
        values = ",".join(f"{key}={field.default}" for key, field in registry.parameters(kind).items())
        norms = "/".join(kind.norms) or "no radius"
        echo(f"{name:<18} universal: {norms}, one perturbation for all images (`robustkit universal`); {values}")
    _plugins()
    for name in ensembles.names():
        usual, in_l1 = ensembles.members(name, "Linf"), ensembles.members(name, "L1")
        other = f"; in L1 {' -> '.join(in_l1)}" if in_l1 != usual else ""
        echo(f"{name:<18} ensemble: {' -> '.join(usual)}{other}")
    echo("passes: forwards+backwards of one trial, at most; sees: what the attack gets from the model")
    echo("trial: one restart on one image, towards one target class if the attack has target classes")
    echo("kind: radius looks for an adversarial example inside the ball, nearest for the one nearest to the image")
    echo("path/file.py:Class for an attack of your own")


_COLUMNS = "{:<18} {:<14} {:<10} {:<12} {:<8} {:<47} {}"
_HEAD = _COLUMNS.format("attack", "norms", "sees", "passes", "kind", "paper", "hyper-parameters")


def _line(name: str, attack: "type[Attack]") -> str:
    """One attack: its norms, what it sees, the most passes of a trial at defaults, its kind, paper and settings."""
    from robustkit.primitives import registry
    from robustkit.primitives.ball import NORMS
    from robustkit.primitives.papers import paper_of

    values = ",".join(f"{key}={field.default}" for key, field in registry.parameters(attack).items())
    cost = attack(1, attack.norms[0]).cost
    others = [norm for norm in attack.norms if norm not in NORMS]
    norms = "/".join(norm for norm in attack.norms if norm in NORMS) or others.pop(0)
    about = f"; also {', '.join(others)}" if others else ""
    kind, paper = "nearest" if attack.seeks_nearest else "radius", paper_of(attack)
    passes, sees = f"{cost.forwards}+{cost.backwards}", "scores" if attack.sees == "logits" else attack.sees
    return _COLUMNS.format(name, norms, sees, passes, kind, paper.short if paper else "-", values + about)


def _plugins() -> None:
    """Attacks of other distributions, each with its own, and why one cannot be used."""
    from robustkit.errors import UserError
    from robustkit.primitives import ensembles, registry
    from robustkit.primitives.plugins import plugin_class, plugins
    from robustkit.primitives.protocol import Attack

    for name, same in plugins().items():
        where = f"of {' and '.join(plugin.distribution for plugin in same)}"
        if name in registry.names() or name in registry.universal_classes() or ensembles.is_ensemble(name):
            echo(f"{name:<18} refused: {where}; robustkit has an attack of that name")
            continue
        try:
            kind = plugin_class(name, Attack)
        except UserError as error:
            echo(f"{name:<18} refused: {error}")
            continue
        assert kind is not None
        echo(f"{_line(name, kind)}; {where}")


def _models() -> None:
    from robustkit.models import model_names

    echo("\n".join(model_names()))
    echo(MODELS)


def _datasets() -> None:
    from robustkit.data import DEFAULT_THREATS
    from robustkit.data.arrays import THREATS

    echo(f"{'data set':<18} default norms and radii")
    for name, threats in {**DEFAULT_THREATS, "other data": THREATS}.items():
        echo(f"{name:<18} {', '.join(f'{threat.norm} {threat.eps}' for threat in threats)}")
    echo("where there are several, evaluate attacks in all of them, other commands in the first")
    echo(f"other data: {DATASETS}")
