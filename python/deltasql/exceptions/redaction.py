"""Mask secrets in error messages, log lines and other text."""

from __future__ import annotations

import re

MASK = "***"

_SECRET_WORD = (
    r"password|passwd|passphrase|\bpwd|secret|token|access[-_.]?key|account[-_.]?key|api[-_.]?key"
    r"|private[-_.]?key|shared[-_.]?key|signature|credential|authorization"
)
_SECRET_NAME = re.compile(rf"(?:{_SECRET_WORD})|^(?:pwd|sig|sas)$|sas[-_]key", re.IGNORECASE)
# Patterns start at a word boundary and use possessive quantifiers. Errors can contain any text, and
# a long name in it must not cause backtracking that takes minutes.
_WORD = r"(?<![\w.-])"
_NAME = (
    rf"{_WORD}(?=[\w.-]*(?:{_SECRET_WORD}|sas[-_]key)|(?:[\w.-]*[.-])?(?:pwd|sig|sas)(?![\w.-]))"
    r"[\w.-]++"
)
# `PASSWORD=…` and `${PASSWORD:-value}` in our help texts are placeholders, not secrets.
_PLACEHOLDER = r"(?!…(?:[\s,.]|$))"
_VALUE = _PLACEHOLDER + r"""(?:(?P<quote>['"])(?:\\.|(?!(?P=quote))[^\\])*+(?P=quote)|[^\s&]+)"""
_RUN = re.compile(r"""[^\s'"]+""")
_LOGIN = re.compile(r"(?<![\w%.~+!$-])[\w%.~+!$-]*+:(?!//)(?=.)", re.DOTALL)
_MASKED_PARTS = (
    # ${PASSWORD:-default}: mask only the default.
    re.compile(rf"(\$\{{{_NAME}:-)(?!(?:value|default)\}})[^\s}}]*", re.IGNORECASE),
    # password=…, 'aws_secret_access_key': '…', x-amz-security-token: …
    re.compile(rf"""({_NAME}['"]?\s*+=\s*+)(?:{_VALUE})""", re.IGNORECASE),
    re.compile(rf"""({_NAME}['"]\s*+:\s*+)(?:{_VALUE})""", re.IGNORECASE),
    re.compile(
        r"((?<![\w-])(?<!\$\{)[\w-]+[-_](?:token|key|secret|signature):\s*+)\S+", re.IGNORECASE
    ),
    re.compile(
        r"((?<!\$\{)\b(?:password|passwd|pwd|secret|(?:secret|access|account|api) key):\s*)\S+",
        re.IGNORECASE,
    ),
    re.compile(r"(\bauthorization:\s*(?:\w+\s+)?)\S+", re.IGNORECASE),
    re.compile(r"(\bbearer\s+)[\w.~+/=-]{12,}", re.IGNORECASE),
    # Formats that are secret under any name: AWS key ids, JSON web tokens.
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"()\beyJ[\w-]{8,}+\.[\w-]++\.[\w-]*+"),
)


def redact(text: str) -> str:
    """Return the text with passwords, keys and tokens masked; masking it again changes nothing.

    >>> redact("deltasql://postgres/ann:s3cret@db:5432/lake and password=hunter2")
    'deltasql://postgres/ann:***@db:5432/lake and password=***'
    """
    masked = _RUN.sub(_mask_login, text) if "@" in text else text
    for pattern in _MASKED_PARTS:
        masked = pattern.sub(_mask, masked)
    return masked


def is_secret_name(name: str) -> bool:
    """Return whether a setting with this name contains a secret.

    >>> is_secret_name("AWS_SECRET_ACCESS_KEY"), is_secret_name("AWS_REGION")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def _mask_login(run: re.Match[str]) -> str:
    """Mask user:password@ up to the last "@", because the password itself may contain one."""
    text = run.group()
    at = text.rfind("@")
    found = _LOGIN.search(text, 0, at) if at > 0 else None
    return text if found is None else f"{text[: found.end()]}{MASK}{text[at:]}"


def _mask(found: re.Match[str]) -> str:
    quote = found.groupdict().get("quote") or ""
    return f"{found.group(1)}{quote}{MASK}{quote}"
