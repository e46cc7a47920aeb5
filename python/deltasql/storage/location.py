"""Locations (the path or URL of the files of a table), and names and addresses of files.

The name of a file is relative to a location. Its address is the decoded path or URL. Paths are used
unchanged. URLs are percent-decoded, as in deltalake.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from deltasql.exceptions import RefusedFileError, TxnLogConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEMES = ("file", "s3", "s3a", "s3n", "gs", "az", "azure", "adl", "abfs", "abfss")
# Different schemes of the same store.
_ONE_SCHEME = {"s3a": "s3", "s3n": "s3"}
_ONE_SCHEME_IN_KEY = {"azure": "az", "adl": "az", "abfs": "abfss"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_URL_SAFE = "/=-_.~!$&'()*+,;@:"
# A path with a part that is empty, "." or "..", or with a NUL character, at which the operating
# system would end the name.
_NOT_INSIDE = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")
# Relative paths that need no decoding: no percent sign, no scheme, no `..`.
_UNENCODED = re.compile(r"(?:[A-Za-z0-9_=-][A-Za-z0-9_=. -]*/)*[A-Za-z0-9_=-][A-Za-z0-9_=. -]*")


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location."""

    text: str
    scheme: str
    root: str
    """The bucket as a URL (`s3://lake`); empty for local files."""
    path: str
    """The absolute local path, or the prefix of all keys; no slash at the end."""

    @property
    def is_local(self) -> bool:
        """Whether the files are on a local disk."""
        return self.scheme == "file"


def parse_location(text: str) -> Location:
    """Parse a path or URL.

    >>> parse_location("s3a://lake/sales%20eu/")
    Location(text='s3a://lake/sales%20eu', scheme='s3', root='s3://lake', path='sales eu')
    >>> parse_location("/data/sales 100%").path
    '/data/sales 100%'
    """
    # Make a relative path absolute before the cached call, because the working directory may
    # change.
    is_fixed = text.startswith("/") or _URL.match(text)
    return _parse(text if is_fixed else str(Path(text).absolute()))


def local_path(location: str) -> Path:
    """Return the local folder of a location.

    >>> local_path("file:///data/sales%20eu/")
    PosixPath('/data/sales eu')
    """
    place = parse_location(location)
    if not place.is_local:
        raise TxnLogConfigError(
            f"{location} is not on a local disk", help="Give an absolute path or a file:// URL."
        )
    return Path(place.path)


def absolute_location(text: str) -> str:
    """Return a location as an absolute path or URL without a slash at the end.

    >>> absolute_location("s3://lake/sales/"), absolute_location("/data/sales/")
    ('s3://lake/sales', '/data/sales')
    """
    return parse_location(text).text


def join_location(root: str, *names: str) -> str:
    """Return the location of a subfolder. If the root is a URL, names are percent-encoded.

    >>> join_location("s3://lake/", "crm", "50% off"), join_location("/data", "50% off")
    ('s3://lake/crm/50%25%20off', '/data/50% off')
    """
    parts = [quote(name, safe=_URL_SAFE) for name in names] if _URL.match(root) else names
    return "/".join([root.rstrip("/"), *parts])


def location_url(text: str) -> str:
    """Return a location as a URL without a slash at the end; a path becomes `file://`.

    >>> location_url("/data/sales eu"), location_url("s3a://lake/sales/")
    ('file:///data/sales%20eu', 's3://lake/sales')
    """
    place = parse_location(text)
    path = quote(place.path, safe=_URL_SAFE)
    return f"file://{path}" if place.is_local else f"{place.root}/{path}".rstrip("/")


def location_key(text: str) -> str:
    """Return a normalized key of a folder. Two locations with the same key are the same folder.

    Symbolic links are resolved. The key ends with a slash, so the key of a subfolder starts with
    the key of its parent.

    >>> location_key("s3n://Lake/a%20b/"), location_key("file:///no/where/../sales")
    ('s3://lake/a b/', 'file:///no/sales/')
    """
    place = parse_location(text)
    return _key(place, os.path.realpath(place.path) if place.is_local else place.path)


def is_same_location(one: str, other: str) -> bool:
    """Return whether two locations are the same folder.

    >>> is_same_location("s3a://lake/sales/", "s3://lake/sales")
    True
    """
    return location_key(one) == location_key(other)


def location_keys(text: str) -> list[str]:
    """Return the keys that a catalog may have stored for a location, `location_key` first.

    In the second key, symbolic links are not resolved. It finds a folder that was moved and
    replaced by a symbolic link after its key was stored.
    """
    place = parse_location(text)
    as_named = _key(place, os.path.normpath(place.path) if place.is_local else place.path)
    return list(dict.fromkeys([location_key(text), as_named]))


def keys_above(key: str) -> list[str]:
    """Return the keys of all parent folders of the folder with this key.

    >>> keys_above("s3://lake/crm/sales/")
    ['s3://lake/', 's3://lake/crm/']
    """
    root, mark, path = key.partition("://")
    parts = path.rstrip("/").split("/")
    return [f"{root}{mark}{'/'.join(parts[:end])}/" for end in range(1, len(parts))]


def _key(place: Location, path: str) -> str:
    if place.is_local:
        return f"file://{path.rstrip('/')}/"
    scheme, _, host = place.root.partition("://")
    root = f"{_ONE_SCHEME_IN_KEY.get(scheme, scheme)}://{host.lower()}/"
    return f"{root}{path}/" if path else root


def data_name(place: Location, path: str) -> str:
    """Return the name of the file to which the `path` of an action refers, relative to the root.

    The path is percent-decoded once.

    >>> data_name(parse_location("s3://lake/sales"), "day=1%2F2/part%2525.parquet")
    'day=1/2/part%25.parquet'
    >>> data_name(parse_location("s3://lake/sales"), "s3a://lake/sales/part.parquet")
    'part.parquet'
    """
    if path.startswith("/") and place.is_local:
        return _below(place, Location(path, "file", "", unquote(path)), path)
    if _URL.match(path):
        return _below(place, parse_location(path), path)
    name = unquote(path)
    if not is_inside(name):
        raise _outside(place, path)
    return name


def data_address(location: str, path: str) -> str:
    """Return the decoded path or URL of the file that an action's `path` refers to.

    >>> data_address("/lake/sales", "day=2024-05-01/part%201.parquet")
    '/lake/sales/day=2024-05-01/part 1.parquet'
    >>> data_address("s3a://lake/sales", "s3://old/part%201.parquet")
    's3://old/part 1.parquet'
    """
    return _address(resolve_path(location, path))


def data_addresses(location: str, paths: Sequence[str]) -> list[str]:
    """Return the decoded path or URL of each file, faster than `data_address` for plain paths.

    >>> data_addresses("/lake/sales", ["part-1.parquet", "part%202.parquet"])
    ['/lake/sales/part-1.parquet', '/lake/sales/part 2.parquet']
    """
    root = root_address(location).rstrip("/")
    return [
        f"{root}/{path}" if _UNENCODED.fullmatch(path) else data_address(location, path)
        for path in paths
    ]


def data_urls(location: str, paths: Sequence[str]) -> list[str]:
    """Return the percent-encoded URL of each file, faster than `address_url` for plain paths.

    >>> data_urls("/lake/my sales", ["a b.parquet", "part%252.parquet"])
    ['file:///lake/my%20sales/a%20b.parquet', 'file:///lake/my%20sales/part%252.parquet']
    """
    root = address_url(root_address(location).rstrip("/"))
    return [
        f"{root}/{path.replace(' ', '%20')}"
        if _UNENCODED.fullmatch(path)
        else address_url(data_address(location, path))
        for path in paths
    ]


def address_url(address: str) -> str:
    """Return a decoded path or URL as a percent-encoded URL.

    >>> address_url("/lake/day=1%2F2/a b.parquet"), address_url("s3://lake/a b")
    ('file:///lake/day=1%252F2/a%20b.parquet', 's3://lake/a%20b')
    """
    if address.startswith("/"):
        return f"file://{quote(address, safe=_URL_SAFE)}"
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{quote(rest, safe=_URL_SAFE)}"


def root_address(location: str) -> str:
    """Return the path or URL of a table's folder.

    >>> root_address("file:///lake/sales%20eu/")
    '/lake/sales eu'
    """
    return _address(parse_location(location))


def is_absolute(path: str) -> bool:
    """Return whether the path of an action is absolute, not relative to its table."""
    return path.startswith("/") or _URL.match(path) is not None


def resolve_path(location: str, path: str) -> Location:
    """Return the location of the file to which the `path` of an action refers."""
    table = parse_location(location)
    if not is_absolute(path):
        return replace(table, path=f"{table.path}/{data_name(table, path)}".removeprefix("//"))
    # A shallow clone refers to files of another table.
    return parse_location(path if _URL.match(path) else unquote(path))


def is_inside(name: str) -> bool:
    """Return whether a name is a normalized relative path below the root.

    >>> [is_inside(name) for name in ("a/b c", "../b", "/etc/x", "a//b", "a/./b", "")]
    [True, False, False, False, False, False]
    """
    return _NOT_INSIDE.search(name) is None


def checked(location: str, name: str, operation: str) -> str:
    """Return the name; raise RefusedFileError if it is not below the root."""
    if not is_inside(name):
        raise RefusedFileError(
            f"{name!r} is not the name of a file below {location}",
            location=location,
            name=name,
            operation=operation,
            help="Use a name relative to the location, without empty, '.' or '..' parts.",
        )
    return name


def folder_of(location: str, prefix: str) -> str:
    """Return the folder of a listing without a slash at the end; empty for the root."""
    folder = prefix.removesuffix("/")
    return checked(location, folder, "list") if folder else ""


def _address(resolved: Location) -> str:
    path = resolved.path
    return path if resolved.is_local else f"{resolved.root}/{path}".rstrip("/")


@lru_cache(maxsize=4096)
def _parse(text: str) -> Location:
    found = _URL.match(text)
    if found is None:
        path = str(Path(text))
        return Location(path, "file", "", path)
    scheme = found.group(1).lower()
    if scheme not in _SCHEMES:
        raise TxnLogConfigError(
            f"locations that begin with {scheme}:// are not supported",
            allowed=", ".join(f"{each}://" for each in _SCHEMES),
            help="Give an absolute path, or a URL with a supported scheme.",
        )
    kept = text.rstrip("/")
    authority, _, rest = text[found.end() :].removeprefix("/").partition("/")
    path = unquote(rest).strip("/")
    if scheme == "file":
        return Location(kept, "file", "", _file_path(text[found.end() :]))
    if not authority or set("?#") & set(text) or ":" in authority or (path and not is_inside(path)):
        raise TxnLogConfigError(
            f"{text} is not a location",
            help="Write scheme://bucket/folder. Percent-encode '?', '#' and '%' in the name of a "
            "folder, and put credentials in storage.options.",
        )
    one_scheme = _ONE_SCHEME.get(scheme, scheme)
    return Location(kept, one_scheme, f"{one_scheme}://{authority}", path)


def _below(place: Location, file: Location, path: str) -> str:
    start = f"{place.path}/" if place.path not in ("", "/") else place.path
    name = file.path.removeprefix(start)
    if file.root != place.root or not file.path.startswith(start) or not is_inside(name):
        raise _outside(place, path)
    return name


def _outside(place: Location, path: str) -> RefusedFileError:
    return RefusedFileError(
        f"the file {path} is not below {place.text}",
        location=place.text,
        name=path,
        operation="data_name",
        help="Name a file below the table's own location.",
    )


def _file_path(rest: str) -> str:
    """Return the absolute path from the part after `file:/`: `//host/path`, `/path` or `path`."""
    path = rest
    if path.startswith("/"):
        _, _, path = path[1:].partition("/")
    return str(Path("/" + unquote(path).strip("/")))
