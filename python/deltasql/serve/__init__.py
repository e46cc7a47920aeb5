"""The local service: a catalog for programs that are not written in Python, such as Spark's JVM.

The service opens one catalog and handles requests over HTTP on the loopback interface. It decides
commits, plans reads and changes tables with the same code as the Python API. Rows never pass
through it. docs/internals/service-protocol.md specifies the requests.
"""

from deltasql.serve.service import Service

__all__ = ["Service"]
