"""Open the storage of a location."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.config import StorageSettings
from deltasql.storage.local import LocalStorage
from deltasql.storage.location import parse_location
from deltasql.storage.object_store import ObjectStorage

if TYPE_CHECKING:
    from deltasql.storage.base import Storage

_DEFAULTS = StorageSettings()


def open_storage(location: str, settings: StorageSettings | None = None) -> Storage:
    """Return the storage of a location; the call is cheap because clients are shared.

    >>> open_storage("file:///data/sales%20eu")
    LocalStorage('file:///data/sales%20eu')
    """
    place = parse_location(location)
    if place.is_local:
        return LocalStorage(place)
    return ObjectStorage.open(place, settings or _DEFAULTS)
