"""The web console: a catalog in a browser. It calls `deltasql.api` and nothing below it."""
