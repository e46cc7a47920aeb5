"""The build backend of deltasql: maturin's, with an error that names cargo if it is missing.

Without cargo, maturin would download a Rust toolchain.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import Any

import maturin
from maturin import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_wheel,
)

__all__ = (
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
)

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return what a build needs besides `requires`; exit if cargo is missing."""
    if shutil.which("cargo") is None:
        sys.exit(
            "cargo is needed to build deltasql from source: install Rust 1.85 or newer with "
            "rustup, or install a wheel of deltasql."
        )
    return list(maturin.get_requires_for_build_wheel(config_settings))


get_requires_for_build_editable = get_requires_for_build_wheel
