r"""The text format of `java.util.Properties`, as far as a checkpoint needs it.

    # a comment; ! also starts one
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    path = C\:\\data \
           and more          a backslash at the end continues on the next line
    umlaut:\u00fc

Keys end at the first unescaped `=`, `:` or white space.  `\t \n \r \f \uXXXX` are escapes, any other escaped character
stands for itself.  Bytes are ISO-8859-1.  Stricter than Java where damage would go unseen: every line ends with a newline,
no control characters, no key twice, `\u` needs four hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from replog_checkpoints.errors import DamagedCheckpointError

_SPACE: Final = " \t\f"
_LINE_END: Final = re.compile("\r\n|\r|\n")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u])", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_NAMED_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/@+-]*")
_ESCAPED: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Returns one `key=value` line each, in the order given, after an empty comment.  Pure ASCII."""
    lines = [f"{_escape(key, spaces=True)}={_escape(value, spaces=False)}\n" for key, value in properties.items()]
    return ("#\n" + "".join(lines)).encode("ascii")


def parse_properties(path: str, data: bytes) -> dict[str, tuple[str, int]]:
    """Returns key -> (value, 1-based line), in file order.

    Raises:
        CorruptCheckpointError: The file is empty, cut or not text, or a key appears twice.
    """
    properties: dict[str, tuple[str, int]] = {}
    for line, text in _logical_lines(path, data):
        if _BAD_ESCAPE.search(text):
            raise DamagedCheckpointError(path, line, "\\u is not followed by four hexadecimal digits")
        key_end = _end(_KEY, text, 0)
        key = _unescape(path, line, text[:key_end])
        if key in properties:
            raise DamagedCheckpointError(path, line, f"{key} appears twice")
        properties[key] = (_unescape(path, line, text[_end(_SEPARATOR, text, key_end) :]), line)
    return properties


def _logical_lines(path: str, data: bytes) -> Iterator[tuple[int, str]]:
    """Yields lines without comments and blanks, continuations joined, each with the number of its first line."""
    lines = _natural_lines(path, data)
    numbered = enumerate(lines, start=1)
    for line, natural in numbered:
        text = natural.lstrip(_SPACE)
        if not text or text[0] in "#!":
            continue
        while _continues(text):
            _, following = next(numbered, (0, ""))
            text = text[:-1] + following.lstrip(_SPACE)
        yield line, text


def _natural_lines(path: str, data: bytes) -> list[str]:
    if not data:
        raise DamagedCheckpointError(path, 1, "the file is empty")
    text = data.decode("latin-1")
    lines = _LINE_END.split(text)
    for line, content in enumerate(lines, start=1):
        if _CONTROL.search(content):
            raise DamagedCheckpointError(path, line, "control characters: not a text file")
    if lines.pop():
        raise DamagedCheckpointError(path, len(lines) + 1, "the last line has no newline: the file was cut")
    return lines


def _continues(text: str) -> bool:
    """Whether the line ends with an odd number of backslashes."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _unescape(path: str, line: int, text: str) -> str:
    if "\\" not in text:
        return text
    unescaped = _ESCAPE.sub(_unescape_one, text)
    try:  # two \u escapes may be the halves of one character
        return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise DamagedCheckpointError(path, line, "half a character in \\u escapes") from error


def _unescape_one(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _NAMED_ESCAPES.get(escape, escape)


def _escape(text: str, *, spaces: bool) -> str:
    """Returns the text with escapes.

    Args:
        spaces: True where every space is escaped (keys), not only a leading one (values).
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_escape_one(character, space=spaces or position == 0) for position, character in enumerate(text))


def _escape_one(character: str, *, space: bool) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character in "\\=:#!" or (character == " " and space):
        return "\\" + character
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
