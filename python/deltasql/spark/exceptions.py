"""The classes of delta-spark's `delta.exceptions`, under the same names: only the import changes.

Conflict errors of `deltasql.spark` are instances of these classes and of our own classes.
"""

from pyspark.errors import PySparkException

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]


class DeltaConcurrentModificationException(PySparkException):
    """Another commit was first, and this commit conflicts with it."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Another commit added files that this commit would have read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Another commit removed a file that this commit read."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Another commit removed a file that this commit removes too."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another commit recorded a version for the same application id."""


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Another commit already has this version."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """Another commit changed the schema, the partitioning or the properties."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """Another commit changed the protocol or its table features."""
