"""The web console of a catalog. It calls `deltasql.api` and nothing below it."""
