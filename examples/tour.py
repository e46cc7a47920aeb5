"""A tour of the API. Run it as a script, or cell by cell in an editor that supports `# %%`."""

# %% Create a catalog in a file, and two tables in one transaction
import polars as pl

import deltasql

catalog = deltasql.connect("deltasql://sqlite/lake/meta.db")
with catalog.begin() as tx:
    tx.write("orders", pl.DataFrame({"id": [1, 2, 3], "sku": ["pen", "ink", "pen"]}))
    tx.write("stock", pl.DataFrame({"sku": ["pen", "ink"], "left": [98, 49]}))
print(tx.versions)

# %% Query the tables with SQL
query = "SELECT sku, count(*) AS sold FROM orders GROUP BY sku ORDER BY sku"
print(catalog.query(query).read_all().to_pylist())

# %% Change rows, and read an old version
with catalog.begin() as tx:
    tx.update("stock", {"left": "left - 1"}, predicate="sku = 'ink'")
    tx.delete("orders", "id = 2")
query = """
    SELECT now.sku, old.left AS was, now.left AS is
    FROM stock now JOIN stock@0 old USING (sku) ORDER BY now.sku
"""
print(catalog.query(query).read_all().to_pylist())

# %% Show transactions and changed rows
for event in catalog.inspect.transactions().items:
    print([(each.table, each.version) for each in event.participants])
for change in catalog.changes("orders", 1).read_all().to_pylist():
    print(change["_change_type"], change["id"], change["sku"])

# %% Undo the last commit of a table
with catalog.begin() as tx:
    tx.undo("orders")
print(catalog.query("SELECT count(*) AS n FROM orders").read_all().to_pylist())

# %% Maintenance
print("new files:", catalog.optimize("orders")["numFilesAdded"])
print("to delete:", catalog.vacuum("orders"))
print([check.name for check in catalog.inspect.doctor().checks if check.status != "ok"])

# %% Read the table with another Delta reader
print(pl.read_delta(catalog.table("orders").location).sort("id").rows())
catalog.close()
