"""Secrets are masked before a text leaves us."""

from __future__ import annotations

import re

MASK = "***"

_SECRET_WORD = (
    r"password|passwd|passphrase|\bpwd|secret|token|access[-_.]?key|account[-_.]?key|api[-_.]?key"
    r"|private[-_.]?key|shared[-_.]?key|signature|credential|authorization"
)
_SECRET_NAME = re.compile(rf"(?:{_SECRET_WORD})|^(?:pwd|sig|sas)$|sas[-_]key", re.IGNORECASE)
_NAME = rf"[\w.-]*(?:{_SECRET_WORD}|sas[-_]key)[\w.-]*|\b(?:pwd|sig|sas)\b"
_VALUE = r"""(?P<quote>['"])(?:\\.|(?!(?P=quote))[^\\])*(?P=quote)|[^\s&]+"""
_MASKED_PARTS = (
    # user:password@ in a URL or a bare authority; greedy, since a raw password may hold an "@".
    re.compile(r"""(?<![\w%.~+-])([\w%.~+!$-]*:)(?!//)[^\s'"]+(?=@)"""),
    # password=…, 'aws_secret_access_key': '…', x-amz-security-token: …
    re.compile(rf"""((?:{_NAME})['"]?\s*=\s*)(?:{_VALUE})""", re.IGNORECASE),
    re.compile(rf"""((?:{_NAME})['"]\s*:\s*)(?:{_VALUE})""", re.IGNORECASE),
    re.compile(r"((?:\w+[-_])+(?:token|key|secret|signature):\s*)\S+", re.IGNORECASE),
    re.compile(
        r"(\b(?:password|passwd|pwd|secret|(?:secret|access|account|api) key):\s*)\S+",
        re.IGNORECASE,
    ),
    re.compile(r"(\bauthorization:\s*(?:\w+\s+)?)\S+", re.IGNORECASE),
    re.compile(r"(\bbearer\s+)[\w.~+/=-]{12,}", re.IGNORECASE),
    # Shapes that are secret under any name: AWS key ids, JSON web tokens.
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"()\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
)


def redact(text: str) -> str:
    """Return the text with passwords, keys and tokens masked; masking twice changes nothing.

    >>> redact("deltasql://postgres/ann:s3cret@db:5432/lake and password=hunter2")
    'deltasql://postgres/ann:***@db:5432/lake and password=***'
    """
    masked = text
    for pattern in _MASKED_PARTS:
        masked = pattern.sub(_mask, masked)
    return masked


def is_secret_name(name: str) -> bool:
    """Tell whether a setting of this name holds a secret.

    >>> is_secret_name("AWS_SECRET_ACCESS_KEY"), is_secret_name("AWS_REGION")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def _mask(found: re.Match[str]) -> str:
    quote = found.groupdict().get("quote") or ""
    return f"{found.group(1)}{quote}{MASK}{quote}"
