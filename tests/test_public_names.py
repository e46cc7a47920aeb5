"""What `import deltasql` offers, exactly."""

from __future__ import annotations

import deltasql


def test_public_names_are_exactly_these() -> None:
    assert deltasql.__all__ == sorted(deltasql.__all__)
    for name in deltasql.__all__:
        assert getattr(deltasql, name) is not None
    documented = [name for name in deltasql.__all__ if name != "__version__"]
    assert [name for name in documented if not getattr(deltasql, name).__doc__] == []
