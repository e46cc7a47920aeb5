"""Lists of files as a JVM reads them in one call: Java's own serialization, written by hand.

A call through py4j takes a tenth of a millisecond, so fifty thousand files one by one would take
many seconds. Java has a documented format for objects; a reader in the JVM makes them all at once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEAD = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75
_END_OF_DATA, _LONG_STRING = 0x78, 0x7C
_END = bytes([_END_OF_DATA])
_FIRST_HANDLE = 0x7E0000
_OBJECTS_OF_A_FILE = 3  # its status, path and URI; the text counts itself
_SERIALIZABLE, _WITH_METHOD = 0x02, 0x03
_STATUS, _PATH = "org.apache.hadoop.fs.FileStatus", "org.apache.hadoop.fs.Path"
_URI, _BOOLEAN, _TEXT = "java.net.URI", "java.lang.Boolean", "java.lang.String"


def read_texts(jvm: Any, texts: Sequence[str]) -> Any:
    """Return a String[] of the JVM."""
    out = _Stream({})
    out.array(f"[L{_TEXT};", len(texts))
    for text in texts:
        out.text(text)
    return _read(jvm, out)


def read_files(jvm: Any, groups: Iterable[Sequence[tuple[str, int, int]]]) -> Any:
    """Return a FileStatus[][] of the JVM: a list of (URI, size, time in ms) for each group."""
    listed = list(groups)
    ids = {name: _class_id(jvm, name) for name in (_STATUS, _PATH, _URI, _BOOLEAN)}
    out = _Stream(ids)
    out.array(f"[[L{_STATUS};", len(listed))
    for group in listed:
        out.array(f"[L{_STATUS};", len(group))
        out.statuses(group)
    return _read(jvm, out)


def _class_id(jvm: Any, name: str) -> int:
    """Ask which version of a class this is: Hadoop's differ."""
    return int(
        jvm.java.io.ObjectStreamClass.lookup(
            jvm.java.lang.Class.forName(name)
        ).getSerialVersionUID()
    )


def _read(jvm: Any, stream: _Stream) -> Any:
    source = jvm.java.io.ByteArrayInputStream(bytearray(stream.content()))
    return jvm.java.io.ObjectInputStream(source).readObject()


class _Stream:
    """Writes objects; what was written before is named by its number."""

    def __init__(self, class_ids: dict[str, int]) -> None:
        self._parts = [_HEAD]
        self._next = _FIRST_HANDLE
        self._known: dict[str, int] = {}
        self._class_ids = class_ids
        self._between: tuple[bytes, bytes] | None = None

    def content(self) -> bytes:
        return b"".join(self._parts)

    def array(self, name: str, length: int) -> None:
        self._put(bytes([_ARRAY]))
        self._class(name, _SERIALIZABLE, [])
        self._number()
        self._put(struct.pack(">i", length))

    def text(self, text: str) -> None:
        data = _modified_utf8(text)
        short = len(data) < 1 << 16
        head = (
            struct.pack(">BH", _STRING, len(data))
            if short
            else struct.pack(">Bq", _LONG_STRING, len(data))
        )
        self._put(head + data)
        self._number()

    def statuses(self, files: Sequence[tuple[str, int, int]]) -> None:
        """Write files; all but the first have the same bytes between what differs."""
        for uri, size, modified_ms in files:
            if self._between is None:
                self._between = self._status(uri, size, modified_ms)
                continue
            before, after = self._between
            self._parts.append(before + struct.pack(">qq", size, modified_ms) + after)
            self._next += _OBJECTS_OF_A_FILE
            self.text(uri)
            self._parts.append(_END)

    def _status(self, uri: str, size: int, modified_ms: int) -> tuple[bytes, bytes]:
        """Write a file and return what the next one has before its numbers, and after them."""
        fields = [("J", "length", ""), ("J", "modification_time", "")]
        fields += [("L", "isdir", f"L{_BOOLEAN};"), ("L", "path", f"L{_PATH};")]
        self._put(bytes([_OBJECT]))
        self._class(_STATUS, _SERIALIZABLE, fields)
        self._number()
        self._put(struct.pack(">qq", size, modified_ms))
        self._false()
        self._put(bytes([_OBJECT]))
        self._class(_PATH, _SERIALIZABLE, [("L", "uri", f"L{_URI};")])
        self._number()
        self._put(bytes([_OBJECT]))
        self._class(_URI, _WITH_METHOD, [("L", "string", f"L{_TEXT};")])
        self._number()
        self.text(uri)
        self._put(_END)
        status, false, path, uri_class = (
            struct.pack(">BI", _REFERENCE, self._known[name])
            for name in (_STATUS, "false", _PATH, _URI)
        )
        mark = bytes([_OBJECT])
        return mark + status, false + mark + path + mark + uri_class

    def _false(self) -> None:
        if self._refer("false"):
            return
        self._put(bytes([_OBJECT]))
        self._class(_BOOLEAN, _SERIALIZABLE, [("Z", "value", "")])
        self._number("false")
        self._put(b"\x00")

    def _class(self, name: str, flags: int, fields: list[tuple[str, str, str]]) -> None:
        """Describe a class at its first use; `fields` are primitive ones first, then by name."""
        if self._refer(name):
            return
        # The version of an array's class is not looked at.
        self._put(bytes([_CLASS]) + _utf(name) + struct.pack(">q", self._class_ids.get(name, 0)))
        self._number(name)
        self._put(struct.pack(">BH", flags, len(fields)))
        for kind, field, type_name in fields:
            self._put(kind.encode() + _utf(field))
            if type_name and not self._refer(type_name):
                self._put(bytes([_STRING]) + _utf(type_name))
                self._number(type_name)
        self._put(bytes([_END_OF_DATA, _NULL]))

    def _refer(self, name: str) -> bool:
        number = self._known.get(name)
        if number is not None:
            self._put(struct.pack(">BI", _REFERENCE, number))
        return number is not None

    def _number(self, name: str | None = None) -> None:
        if name is not None:
            self._known[name] = self._next
        self._next += 1

    def _put(self, data: bytes) -> None:
        self._parts.append(data)


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _modified_utf8(text: str) -> bytes:
    """Encode as Java does: characters beyond the first plane as two, zero as two bytes.

    >>> _modified_utf8("a😀")
    b'a\\xed\\xa0\\xbd\\xed\\xb8\\x80'
    """
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    letters = (chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2))
    return b"".join(
        b"\xc0\x80" if letter == "\0" else letter.encode("utf-8", "surrogatepass")
        for letter in letters
    )
