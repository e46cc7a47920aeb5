"""The data model of the Delta protocol: actions, schemas, predicates. No I/O."""
