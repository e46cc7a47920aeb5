"""The sources of settings: arguments, environment variables, files. Each source is one layer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from deltasql.exceptions import MissingDriverError, TxnLogConfigError

CALL = "the call"
PREFIX = "DELTASQL_"
_OUR_TABLE = re.compile(r"""tool\s*["']?\s*\.\s*["']?deltasql|^\s*\[\s*["']?tool["']?\s*\]""", re.M)
_LOCAL_FILES = ("deltasql.toml", "deltasql.yaml", "deltasql.yml")
_FOLDER_VARIABLES = ("XDG_CONFIG_HOME", "HOME")
# Variables with the prefix DELTASQL_ that are not settings.
OTHER_VARIABLES = ("DELTASQL_CONFIG", "DELTASQL_URI")
_seen: tuple[dict[object, object], object, list[str]] | None = None


@dataclass(frozen=True)
class Layer:
    """The settings of one source, nested by section."""

    name: str
    values: dict[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    def source(self, key: str) -> str:
        """Return the source of a key: the file, or the environment variable."""
        return self.variables.get(key.lower(), self.name)


def environment(settings: type[BaseModel]) -> Layer:
    """Read `DELTASQL_SECTION__KEY`; keep unknown sections, so that validation rejects them."""
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return Layer("environment", {})
    values: dict[str, Any] = {}
    variables = {}
    # A variable of one key takes precedence over a variable of its whole section.
    for name in sorted(os.environ, key=lambda each: each.count("__")):
        if not name.upper().startswith(PREFIX) or name in OTHER_VARIABLES:
            continue
        path = name[len(PREFIX) :].lower().split("__")
        if len(path) == 1 and path[0] not in settings.model_fields:
            continue
        text = os.environ[name]
        merge(values, _nest(path, _parsed(text, name) if _has_keys(settings, path) else text))
        if len(path) > 1:
            variables[".".join(path)] = f"environment variable {name}"
    return Layer("environment", values, variables)


def _has_keys(kind: Any, path: list[str]) -> bool:
    """Return whether a path in a model is a section or a dict, and not a single value."""
    if get_origin(kind) is dict:
        return not path or _has_keys(get_args(kind)[1], path[1:])
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return False
    found = kind.model_fields.get(path[0]) if path else None
    return not path or (found is not None and _has_keys(found.annotation, path[1:]))


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TxnLogConfigError(
            f"the variable {name} names a whole section, and its value is not JSON",
            source="environment",
            help="Set each key in its own variable, for example DELTASQL_POOL__MAX_SIZE=4.",
        ) from error


def files(path: str | Path | None) -> list[Layer]:
    """Read the existing files in order of precedence; raise if a requested file does not exist."""
    layers = []
    requested = path or os.environ.get("DELTASQL_CONFIG")
    if requested:
        layers.append(_read(Path(requested).expanduser(), f"given as {requested}"))
    found = [each for each in _LOCAL_FILES if os.path.isfile(each)]
    if len(found) > 1:
        raise TxnLogConfigError(f"{' and '.join(found)} both exist", help="Keep one of them.")
    others = [*found, "pyproject.toml", _user_file(os.environ.get("XDG_CONFIG_HOME"))]
    layers += [_read(Path(each), "found") for each in others if os.path.isfile(each)]
    return layers


def fingerprint() -> tuple[object, ...]:
    """Return a value that changes if variables, files or the working directory may have changed."""
    variables, places = _of_variables()
    return (os.getcwd(), variables, *[_stamp(place) for place in places])


def _of_variables() -> tuple[object, list[str]]:
    """Return the relevant variables, and the paths of the configuration files."""
    global _seen
    # Comparing the whole environment is cheaper than looking up every name. A test may have
    # replaced os.environ by a plain dict, which has no `_data`.
    everything = getattr(os.environ, "_data", None)
    if _seen is not None and everything is not None and _seen[0] == everything:
        return _seen[1:]
    # Use one copy of the environment. If another thread changes it now, the next call detects it.
    before = dict(os.environ if everything is None else everything)
    values = {os.fsdecode(name): os.fsdecode(value) for name, value in before.items()}
    names = [name for name in values if name[: len(PREFIX)].upper() == PREFIX]
    known = {name: values.get(name) for name in [*names, *_FOLDER_VARIABLES]}
    variables = tuple((name, value) for name, value in known.items() if value is not None)
    requested = known.get("DELTASQL_CONFIG")
    places = [*_LOCAL_FILES, "pyproject.toml", _user_file(known["XDG_CONFIG_HOME"])]
    if requested:
        places.append(os.path.expanduser(requested))
    _seen = None if everything is None else (before, variables, places)
    return variables, places


def _user_file(config_home: str | None) -> str:
    return f"{config_home or os.path.expanduser('~/.config')}/deltasql/config.toml"


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keywords, which are sections or keys such as `pool__max_size`, to nested dicts."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        merge(values, _nest(name.split("__"), _plain(value)))
    return values


def merge(into: dict[str, Any], stronger: Mapping[str, Any]) -> None:
    """Merge `stronger` into `into`, key by key; its values take precedence."""
    for key, value in stronger.items():
        below = into.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            merge(below, value)
        else:
            into[key] = _plain(value)


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted keys of nested values.

    >>> list(leaves({"pool": {"max_size": 4}, "catalogs": {}}))
    ['pool.max_size']
    """
    for key, value in values.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}.")
        else:
            yield path


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def _nest(path: list[str], value: Any) -> dict[str, Any]:
    return {path[0]: value if len(path) == 1 else _nest(path[1:], value)}


def _read(path: Path, why: str) -> Layer:
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise TxnLogConfigError(
            f"{path} is neither TOML nor YAML",
            source=str(path),
            help="Give the file a name that ends with .toml, .yaml or .yml.",
        )
    try:
        values = parse(path.read_text(encoding="utf-8"), path)
        if path.name == "pyproject.toml":
            values = values.get("tool", {}).get("deltasql", {})
        plain = _plain(values)
    except TxnLogConfigError:
        raise
    except OSError as error:
        raise TxnLogConfigError(
            f"the configuration file {path}, {why}, cannot be read: {error.strerror}",
            source=str(path),
            help="Correct the path or DELTASQL_CONFIG, or create the file.",
        ) from error
    except UnicodeDecodeError as error:
        raise TxnLogConfigError(
            f"{path} is not UTF-8", source=str(path), help="Save it as UTF-8."
        ) from error
    except (ValueError, AttributeError, RecursionError):
        # The cause may be a number with too many digits, an impossible date, or a value that
        # contains itself.
        raise TxnLogConfigError(
            f"{path} has a value that cannot be parsed, or values that are nested too deeply",
            source=str(path),
            help="Correct the file.",
        ) from None
    if not isinstance(plain, dict):
        raise TxnLogConfigError(
            f"{path} has no sections",
            source=str(path),
            help="Put the keys into sections, for example max_size = 4 below [pool].",
        )
    place = f"{path} [tool.deltasql]" if path.name == "pyproject.toml" else str(path)
    return Layer(place, plain)


def _toml(text: str, path: Path) -> Any:
    # Most pyproject.toml files have no such table, and parsing them is slow.
    if path.name == "pyproject.toml" and not _OUR_TABLE.search(text):
        return {}
    import tomllib  # lazy import: most processes have no configuration file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TxnLogConfigError(
            f"{path} is not valid TOML: {error}", source=str(path), help="Correct the file."
        ) from error


def _yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingDriverError(
            f"{path} needs PyYAML, which is not installed", driver="pyyaml", extra="yaml"
        ) from error
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        # The message of the error quotes the line, which may contain a secret.
        raise TxnLogConfigError(
            f"{path} is not valid YAML{place}", source=str(path), help="Correct the file."
        ) from None
    return {} if values is None else values


_PARSERS: dict[str, Callable[[str, Path], Any]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml}


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
