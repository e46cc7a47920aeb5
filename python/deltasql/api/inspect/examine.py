"""Run `doctor` on a URI: a catalog that cannot be opened is reported, not raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import is_new, resolved
from deltasql.api.inspect.checks import FAILURE, Check, unreachable
from deltasql.api.inspect.doctor import DoctorReport, doctor
from deltasql.config import Config
from deltasql.exceptions import TxnLogError, TxnLogTableNotFoundError

if TYPE_CHECKING:
    from deltasql.uri import DeltaSqlUri


def examine(
    uri: str | DeltaSqlUri, config: Config | None = None, *, table: str | None = None
) -> DoctorReport:
    """Check the catalog of a URI, without creating or migrating it.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> [check.detail for check in examine(f"deltasql://sqlite/{folder.name}/meta.db").checks]
    ['there is no catalog yet']
    """
    chosen = Config.load() if config is None else config
    place = resolved(uri, chosen)
    try:
        if not place.is_memory and is_new(place, chosen):
            found = Check(
                "connectivity", FAILURE, "there is no catalog yet", "deltasql init makes one."
            )
            return DoctorReport((found,))
        with Catalog(place, chosen, migrate=False) as catalog:
            return doctor(catalog, table)
    except TxnLogTableNotFoundError:
        raise
    except TxnLogError as error:
        return DoctorReport((unreachable(error),))
