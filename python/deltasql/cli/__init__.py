"""The command line. It calls `deltasql.api`, and not the layers below it."""
