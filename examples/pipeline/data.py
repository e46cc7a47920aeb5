"""Generate the raw data of a web shop; the same seed generates the same files.

Every batch is a folder with the data of one day: `orders.csv`, `customers.csv`, and a
`manifest.json` with the number of rows. As in practice, some orders are late, duplicate, changed
later or invalid.
"""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2024, 3, 1, tzinfo=UTC)
CITIES = ("Bergen", "Porto", "Gdansk", "Lyon", "Graz", "Turku")
SKUS = {"pen": 120, "ink": 740, "paper": 455, "lamp": 3990, "desk": 18900}  # prices in cents

ORDER_COLUMNS = (
    "order_id",
    "customer_id",
    "ordered_at",
    "updated_at",
    "status",
    "sku",
    "quantity",
    "unit_price",
)
CUSTOMER_COLUMNS = ("customer_id", "name", "email", "city", "updated_at")

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """The folder of one batch."""

    number: int
    folder: Path

    @property
    def manifest(self) -> dict[str, int]:
        """The number of rows that the sender wrote to each file."""
        loaded: dict[str, int] = json.loads((self.folder / "manifest.json").read_text())
        return loaded


def make_batches(folder: Path, *, batches: int, rows: int, seed: int = 7) -> list[Batch]:
    """Write the raw files and return the batches in the order of their arrival.

    The batch in the middle arrives twice: first with some of its orders missing, then complete.
    """
    shop = Shop(random.Random(seed), rows)
    arrived = []
    for number in range(batches):
        customers, orders = shop.customers_of(number), shop.orders_of(number)
        if number == batches // 2:
            cut = orders[: len(orders) * 2 // 3]
            arrived.append(_write(folder / f"{number:02}-cut", number, customers, cut, len(orders)))
        arrived.append(_write(folder / f"{number:02}", number, customers, orders, len(orders)))
    return arrived


class Shop:
    """Generates rows; it keeps customers and orders, so that later batches can change them."""

    def __init__(self, chance: random.Random, rows: int) -> None:
        self._chance, self._rows = chance, rows
        self._customers: dict[str, Row] = {}
        self._orders: dict[str, Row] = {}

    def customers_of(self, day: int) -> list[Row]:
        """Return new customers, changed ones, outdated updates, and one row without an id."""
        chance = self._chance
        known = list(self._customers)
        sent = []
        for _ in range(max(3, self._rows // (20 if known else 5))):
            number = len(self._customers) + 1
            name = f"Customer {number}"
            sent.append(
                {
                    "customer_id": f"C{number:06}",
                    "name": name,
                    "email": f" {name.replace(' ', '.').upper()}@example.com ",
                    "city": chance.choice(CITIES),
                    "updated_at": self._timestamp(day),
                }
            )
            self._customers[sent[-1]["customer_id"]] = sent[-1]
        for customer_id in chance.sample(known, len(known) // 20):
            before = self._customers[customer_id]
            moved = {**before, "city": chance.choice(CITIES), "updated_at": self._timestamp(day)}
            self._customers[customer_id] = moved
            sent.append(moved)
        for customer_id in chance.sample(known, len(known) // 50):
            sent.append({**self._customers[customer_id], "updated_at": "2024-01-01T00:00:00Z"})
        sent.append({**sent[0], "customer_id": ""})
        return sent

    def orders_of(self, day: int) -> list[Row]:
        """Return the orders of a day, and late, changed, outdated, duplicate and invalid ones."""
        chance = self._chance
        earlier = list(self._orders)
        sent = []
        for _ in range(self._rows):
            kind = chance.random()
            if earlier and kind < 0.08:
                sent.append(self._changed(chance.choice(earlier), day))
            elif earlier and kind < 0.10:
                old = self._orders[chance.choice(earlier)]
                sent.append({**old, "status": "placed", "updated_at": old["ordered_at"]})
            elif kind < 0.22:
                sent.append(self._new(max(0, day - chance.randint(1, 3)), day))
            elif kind < 0.26:
                sent.append(self._broken(self._new(day, day, keep=False)))
            elif sent and kind < 0.28:
                sent.append(sent[-1])
            else:
                sent.append(self._new(day, day))
        return sent

    def _new(self, day: int, arrives: int, *, keep: bool = True) -> Row:
        chance = self._chance
        sku = chance.choice(list(SKUS))
        ordered_at = self._timestamp(day)
        order = {
            "order_id": f"O{chance.getrandbits(48):012x}",
            "customer_id": chance.choice(list(self._customers)) if self._customers else "",
            "ordered_at": ordered_at,
            "updated_at": ordered_at if day == arrives else self._timestamp(arrives),
            "status": "placed",
            "sku": sku,
            "quantity": str(chance.randint(1, 5)),
            "unit_price": f"{SKUS[sku] / 100:.2f}",
        }
        if keep:
            self._orders[order["order_id"]] = order
        return order

    def _changed(self, order_id: str, day: int) -> Row:
        status = self._chance.choice(("shipped", "shipped", "returned", "cancelled"))
        changed = {**self._orders[order_id], "status": status, "updated_at": self._timestamp(day)}
        self._orders[order_id] = changed
        return changed

    def _broken(self, order: Row) -> Row:
        """Return the order with one invalid field."""
        spoilt: dict[str, str] = self._chance.choice(
            [
                {"quantity": "two"},
                {"unit_price": "-5.00"},
                {"customer_id": ""},
                {"ordered_at": "31.13.2024"},
                {"customer_id": "C999999"},
            ]
        )
        return {**order, **spoilt}

    def _timestamp(self, day: int) -> str:
        seconds = self._chance.randrange(86_400)
        return (START + timedelta(days=day, seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _write(
    folder: Path, number: int, customers: list[Row], orders: list[Row], sent_orders: int
) -> Batch:
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "customers.csv", CUSTOMER_COLUMNS, customers)
    _write_csv(folder / "orders.csv", ORDER_COLUMNS, orders)
    manifest: dict[str, Any] = {"customers": len(customers), "orders": sent_orders}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Batch(number, folder)


def _write_csv(path: Path, columns: tuple[str, ...], rows: list[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
