"""Delta schemas: types, conversion to Arrow, rules, column mapping."""
