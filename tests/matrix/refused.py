"""Checks that an unsupported release is refused by name before anything is written.

`python -m tests.matrix.refused COMPONENT URI` prints one line of JSON, as the behaviours do.
"""

from __future__ import annotations

import json
import sys

import deltasql
from deltasql.exceptions import UnsupportedReleaseError

REFUSED = "refused by name"


def result(component: str, uri: str) -> str:
    """Try to create a catalog; return `ok` if the error names the release and the remedy."""
    try:
        deltasql.connect(uri, create=True, table={"data_root": "/nowhere"}).close()
    except UnsupportedReleaseError as error:
        complete = error.component == component and error.supported and error.help
        return "ok" if complete else f"the error is incomplete: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "a catalog was created"


if __name__ == "__main__":
    print(json.dumps({REFUSED: result(*sys.argv[1:])}))
