"""`robustkit list`: the names that the command line accepts."""

import click

from .terminal import echo


@click.command("list")
@click.argument("kind", type=click.Choice(["attacks", "models", "datasets"]))
def catalogue(kind: str) -> None:
    """Names of attacks (with their hyper-parameters), models or data sets."""
    {"attacks": _attacks, "models": _models, "datasets": _datasets}[kind]()


def _attacks() -> None:
    from robustkit.primitives import ensembles, registry

    for name in ensembles.names():
        usual, in_l1 = ensembles.members(name, "Linf"), ensembles.members(name, "L1")
        other = f"; in L1 {' -> '.join(in_l1)}" if in_l1 != usual else ""
        echo(f"{name:<15} ensemble: {' -> '.join(usual)}{other}")
    for name in registry.names():
        base, preset = registry.VARIANTS.get(name, (name, {}))
        attack = registry.classes()[base]
        defaults = {key: field.default for key, field in registry.parameters(attack).items()}
        values = ",".join(f"{key}={value}" for key, value in {**defaults, **preset}.items())
        nearest = "nearest" if attack.seeks_nearest else ""
        echo(f"{name:<15} {'/'.join(attack.norms):<14} sees {attack.sees:<10} {nearest:<8} {values}")
    for name, kind in registry.universal_classes().items():
        values = ",".join(f"{key}={field.default}" for key, field in registry.parameters(kind).items())
        norms = "/".join(kind.norms) or "no radius"
        echo(f"{name:<17} universal: {norms}, one perturbation for all images (`robustkit universal`); {values}")
    _plugins()
    echo("path/file.py:Class for an attack of your own; see docs/new-attack.md")


def _plugins() -> None:
    """Attacks of other distributions, each with its own, and why one cannot be used."""
    from robustkit.errors import UserError
    from robustkit.primitives import ensembles, registry
    from robustkit.primitives.plugins import plugin_class, plugins
    from robustkit.primitives.protocol import Attack

    for name, same in plugins().items():
        where = f"of {' and '.join(plugin.distribution for plugin in same)}"
        if name in registry.names() or name in registry.universal_classes() or ensembles.is_ensemble(name):
            echo(f"{name:<15} refused: {where}; robustkit has an attack of that name")
            continue
        try:
            kind = plugin_class(name, Attack)
        except UserError as error:
            echo(f"{name:<15} refused: {error}")
            continue
        assert kind is not None
        values = ",".join(f"{key}={field.default}" for key, field in registry.parameters(kind).items())
        echo(f"{name:<15} {'/'.join(kind.norms):<14} sees {kind.sees:<10} {where}; {values}")


def _models() -> None:
    from robustkit.models import model_names

    echo("\n".join(model_names()))
    echo("timm:NAME (with the extra 'timm'), path/file.py:NAME for a function that returns a module, or for a module")


def _datasets() -> None:
    from robustkit.data import NAMES

    echo("\n".join(NAMES))
    echo("a folder with one sub-folder of pictures per class, FILE.npz, FILE.safetensors (arrays x and y)")
