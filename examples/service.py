"""A FastAPI service that commits an order and its change of the stock in one transaction.

`uvicorn examples.service:app` serves it. Run as a script, it sends requests to itself and prints
the responses.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pyarrow as pa
from fastapi import FastAPI, HTTPException, Request

import deltasql
from deltasql.exceptions import CommitConflictError

URI = os.environ.get("DELTASQL_URI", "deltasql://sqlite/lake/meta.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with deltasql.aio.connect(URI) as catalog:  # all requests share its connections
        if not await catalog.exists("stock"):
            async with catalog.begin() as tx:
                await tx.write("stock", pa.table({"sku": ["pen", "ink"], "left": [5, 1]}))
                await tx.create_table(
                    "orders", pa.schema([("sku", pa.string()), ("amount", pa.int64())])
                )
        app.state.catalog = catalog
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{sku}")
async def order(sku: str, request: Request, amount: int = 1) -> dict[str, int]:
    for _ in range(5):
        try:
            async with request.app.state.catalog.begin() as tx:
                stock = {row["sku"]: row["left"] for row in (await tx.read("stock")).to_pylist()}
                if stock.get(sku, 0) < amount:
                    raise HTTPException(409, f"{stock.get(sku, 0)} left")
                left = stock[sku] - amount
                rest = pa.table({"sku": [sku], "left": [left]})
                await tx.run(partial(set_stock, rows=rest))  # runs in a thread
                await tx.write("orders", pa.table({"sku": [sku], "amount": [amount]}))
            return {"left": left, "order": tx.versions["orders"]}
        except CommitConflictError:
            continue  # another order changed the stock: read it again
    raise HTTPException(503, "too many concurrent orders")


def set_stock(tx: deltasql.MultiTableTransaction, rows: pa.Table) -> None:
    tx.merge("stock", rows, "target.sku = source.sku").when_matched_update_all().execute()


@app.get("/orders")
async def orders(request: Request) -> list[dict[str, object]]:
    table = await request.app.state.catalog.table("orders")
    return [row async for batch in table.scan() for row in batch.to_pylist()]


async def main() -> None:
    inside = httpx.ASGITransport(app)  # without a network
    async with lifespan(app), httpx.AsyncClient(transport=inside, base_url="http://shop") as client:
        print("a pen:", (await client.post("/orders/pen?amount=2")).json())
        print("too much ink:", (await client.post("/orders/ink?amount=2")).json())
        answers = await asyncio.gather(*(client.post("/orders/pen") for _ in range(4)))
        print("four orders for three pens:", sorted(each.status_code for each in answers))
        sold = (await client.get("/orders")).json()
        print("sold:", sum(row["amount"] for row in sold))


if __name__ == "__main__":
    asyncio.run(main())
