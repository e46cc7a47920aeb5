"""What `delta.exceptions` of delta-spark offers, under the same names: only the import changes.

Conflicts of commits through `deltasql.spark` are instances of these and of our own errors.
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
    """Another commit won, and this one cannot be placed after it."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Files were added that this commit's read should have seen."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """A file that this commit read was removed."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """A file that this commit removes was removed already."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another commit recorded a version for the same application id."""


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """The version to commit is taken."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """Schema, partitioning or properties changed."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """The protocol or its table features changed."""
