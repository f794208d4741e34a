"""`--config FILE`: the options of a command from a TOML file."""

import sys
from pathlib import Path
from typing import Any

import click

from robustkit.errors import UserError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LARGEST = 1_000_000  # bytes of a configuration


def read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Use the file's entries as the defaults of all other options; click calls this before it reads those.

    Raises:
        UserError: the file cannot be read, is not TOML, or has an entry that is not an option.
    """
    if value is None:
        return
    try:
        if not value.is_file():
            raise UserError(f"There is no file {value}; check --config.")
        if value.stat().st_size > _LARGEST:
            raise UserError(f"{value} is larger than {_LARGEST // 1000:,} kB; check --config.")
        entries = tomllib.loads(value.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The file {value} cannot be read ({error.strerror}); check --config.") from None
    except RecursionError:
        raise UserError(f"{value} is nested too deeply; check --config.") from None
    except UserError:
        raise
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise UserError(f"{value} is not valid TOML ({error}).") from None
    ctx.default_map = _by_parameter(ctx.command, entries)


def _by_parameter(command: click.Command, entries: dict[str, Any]) -> dict[str, Any]:
    options = {}
    for option in command.params:
        for flag in option.opts:
            if flag.startswith("--") and flag != "--config":
                options[flag[2:].replace("-", "_")] = option
    values = {}
    for key, value in entries.items():
        name = key.replace("-", "_")
        if name not in options:
            raise unknown("option", key, options)
        option = options[name]
        assert option.name is not None
        values[option.name] = _text(key, value, option)
    return values


def _text(key: str, value: Any, option: click.Parameter) -> Any:
    """The value as it would be on the command line: a text, a list of texts, or a flag."""
    if isinstance(value, bool) and getattr(option, "is_flag", False):
        return value
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, (dict, list, bool)) for item in items) or getattr(option, "is_flag", False):
        raise UserError(f"The entry {key} = {value!r} of the configuration has the wrong type.")
    if any("\0" in str(item) for item in items):  # which no command line can contain, and no path
        raise UserError(f"The entry {key} of the configuration contains a zero byte.")
    if option.multiple:
        return [str(item) for item in items]
    if isinstance(value, list) and option.name not in ("mean", "std"):
        raise UserError(f"The entry {key} takes one value, not a list.")
    return ",".join(str(item) for item in items)
