"""Run the clients in rounds with different seeds: `make serializability`.

A failed round prints its seed and the folder with the records of the clients.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import new_catalog_uri
from tests.serializability.run import in_processes, in_threads

_ROUND_S = 60.0


def main(arguments: list[str]) -> int:
    """Run rounds until the time is over; return 1 if one of them violates a guarantee."""
    parser = argparse.ArgumentParser(prog="python -m tests.serializability", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", help="of the first round; the others follow from it")
    parser.add_argument("--backends", default="sqlite,postgres,duckdb")
    parser.add_argument("--clients", type=int, default=6)
    options = parser.parse_args(arguments)
    seed, end = options.seed or secrets.token_hex(4), time.monotonic() + options.minutes * 60
    backends = options.backends.split(",")
    total: dict[str, int] = {}
    number = 0
    while number == 0 or time.monotonic() < end:
        backend, this = backends[number % len(backends)], f"{seed}-{number}"
        folder = Path(tempfile.mkdtemp(prefix=f"serializability-{this}-"))
        run = in_threads if backend == "duckdb" else in_processes
        for uri in new_catalog_uri(backend, folder):
            seconds = min(_ROUND_S, options.minutes * 60)
            result = run(uri, folder, seed=this, seconds=seconds, clients=options.clients)
        print(
            f"{backend} seed {this}: {result.transactions}, {result.changes}, "
            f"killed {result.killed}",
            flush=True,
        )
        if result.problems:
            print(f"{len(result.problems)} problems; the records of the clients are in {folder}")
            print("\n".join(result.problems[:20]))
            return 1
        for kind, count in result.transactions.items():
            total[kind] = total.get(kind, 0) + count
        number += 1
    print(f"{number} rounds, {total}, no commit lost, duplicated or partial")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
