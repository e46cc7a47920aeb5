"""The prefixes of deltalake's error messages, by the component that failed.

Users' tests compare whole messages, so an error with deltalake's message also has its prefix.
"""

TABLE_ERROR = "Generic DeltaTable error: "
GENERIC_ERROR = "Generic error: "
KERNEL_ERROR = "Kernel error: Generic delta kernel error: "
PROPERTY_ERROR = "Kernel: Generic delta kernel error: "
EXPRESSION_ERROR = f"{TABLE_ERROR}External error: "
PARSER_ERROR = f"{EXPRESSION_ERROR}{GENERIC_ERROR}"
PLANNING_ERROR = f"{TABLE_ERROR}Error during planning: "
SCHEMA_ERROR = "Schema error: "
FIELD_ERROR = f"{EXPRESSION_ERROR}{TABLE_ERROR}{SCHEMA_ERROR}"
AMBIGUOUS_ERROR = f"{TABLE_ERROR}{SCHEMA_ERROR}"
MERGE_ERROR = f"{EXPRESSION_ERROR}{TABLE_ERROR}"
ARROW_ERROR = f"{TABLE_ERROR}Arrow error: "
