"""The words of Delta's protocol: actions, schema, predicates. No I/O."""
