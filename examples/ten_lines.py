"""Write two Delta tables in one transaction and read one with deltalake. Use an empty folder."""

import deltalake
import pyarrow as pa

import deltasql

with deltasql.begin("deltasql://sqlite/lake/meta.db") as tx:  # both writes are committed, or none
    tx.write("orders", pa.table({"id": [1, 2], "sku": ["pen", "ink"]}))
    tx.write("stock", pa.table({"sku": ["pen", "ink"], "left": [99, 49]}))
print("committed:", tx.versions)

stock = deltasql.DeltaTable("deltasql://sqlite/lake/meta.db?table=stock")
stock.update({"left": "left - 1"}, predicate="sku = 'pen'")
rows = deltalake.DeltaTable(stock.table_uri).to_pyarrow_table()  # with stock deltalake
print("read by deltalake:", rows.sort_by("sku").to_pylist())
