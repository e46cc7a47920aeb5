"""Run a service for the program that starts this process: `python -m deltasql.serve`.

The first line of standard input is the catalog, which may contain a secret and so is not an
argument. The first line of standard output says how to connect, as JSON. The service ends when
standard input is closed, which also happens when the other program is killed.
"""

from __future__ import annotations

import json
import logging
import signal
import sys

from deltasql.exceptions import TxnLogError
from deltasql.serve.service import Service
from deltasql.telemetry import JsonFormatter


def main() -> int:
    """Serve until standard input is closed; return the exit code of the process."""
    # Ctrl-C in a shell such as pyspark reaches this process too, and must only stop the job there.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handler = logging.StreamHandler()  # stderr is that of the other program
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    catalog = sys.stdin.readline().strip()
    try:
        service = Service(catalog)
    except TxnLogError as error:
        print(json.dumps({"error": error.full_message}), flush=True)
        return 1
    with service:
        print(json.dumps(service.access), flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
