"""The name that a certificate gives its holder.

A certificate's holder has the name of its subject as RFC 2253 writes it, most significant part last:

    CN=billing,OU=Services,O=Example

`ssl.principal.mapping.rules` makes shorter names of it.  The first rule applies that fits the whole name:

    RULE:pattern/replacement/[LU]   the name with what the pattern finds replaced; L and U: in small letters, in capitals
    DEFAULT                         the name as it is
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from replog.access.principal import ANONYMOUS, Principal
from replog.tcp.der import DerValue, der_values, object_id, signed_fields

# ---- the subject of a certificate ------------------------------------------------------------------------------------

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has a word for; others stand as their number and the bytes of their value."""

_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii"}
"""The types of texts in DER that are read alike everywhere."""

_ESCAPED: Final = ',=+<>#;"\\'
_SEQUENCE, _SET, _VERSION = 0x30, 0x31, 0xA0
_BEFORE_SUBJECT = 4
"""Fields of a certificate between its version and its subject: serial number, algorithm, issuer, validity."""


def subject_name(certificate: bytes) -> str:
    """Returns the name of a certificate's subject in the form of RFC 2253, as Java's `X500Principal.getName` does.

    Args:
        certificate: The certificate in DER.

    Raises:
        ValueError: The bytes are no certificate.
    """
    fields = signed_fields(certificate)
    has_version = fields[0].tag == _VERSION
    subject = fields[_BEFORE_SUBJECT + has_version]
    return ",".join(
        "+".join(map(_attribute, der_values(part.content))) for part in reversed(list(der_values(subject.content)))
    )


def _attribute(pair: DerValue) -> str:
    kind, value = der_values(pair.content)
    number = object_id(kind.content)
    keyword, encoding = _KEYWORDS.get(number), _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding))}"


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(inner)
    marked = "".join("\\00" if one == "\0" else f"\\{one}" if one in _ESCAPED else one for one in inner)
    return "\\ " * before + marked + "\\ " * after


# ---- rules -----------------------------------------------------------------------------------------------------------

DEFAULT_RULES = "DEFAULT"

_RULE: Final = re.compile(
    r"\s*(?:(?P<same>DEFAULT)|RULE:(?P<find>(?:\\.|[^\\/])*)/(?P<put>(?:\\.|[^\\/])*)/(?P<case>[LU]?))?\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)

Rule = Callable[[str], "str | None"]


def parse_rules(text: str) -> Sequence[Rule]:
    """Returns rules that make names of subjects; see the head of the module.

    Raises:
        ValueError: One is no rule, or its pattern is none; the half sentence behind the value says which.
    """
    rules: list[Rule] = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None or found.end() == at:
            raise ValueError(f"has no rule in {text[at:].strip()!r}; write DEFAULT or RULE:pattern/replacement/[LU]")
        at = found.end()
        if found["same"]:
            rules.append(lambda name: name)
        elif found["find"] is not None:
            rules.append(_rule(found["find"], found["put"], found["case"]))
    if not rules:
        raise ValueError("is empty; DEFAULT leaves names as they are")
    return rules


def _rule(find: str, put: str, case: str) -> Rule:
    try:
        pattern = re.compile(find)
    except re.error as error:
        raise ValueError(f"has the pattern {find!r}, which is none: {error}") from None
    return partial(_applied, pattern, put, case)


def _applied(pattern: re.Pattern[str], put: str, case: str, name: str) -> str | None:
    if pattern.fullmatch(name) is None:
        return None
    made = pattern.sub(lambda found: _REFERENCE.sub(partial(_put, found), put), name)
    return made.lower() if case == "L" else made.upper() if case == "U" else made


def _put(found: re.Match[str], reference: re.Match[str]) -> str:
    r"""Returns what stands for `\c` or `$12` in a replacement; as many digits count as there are groups for."""
    if (literal := reference[1]) is not None:
        return str(literal)
    digits: str = reference[2]
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= found.re.groups:
            return (found[int(digits[:length])] or "") + digits[length:]
    return f"${digits}"


def certificate_principal(certificate: bytes | None, rules: Sequence[Rule]) -> Principal:
    """Returns the identity of who showed a certificate.

    Args:
        certificate: The certificate in DER, which was verified; None: none was shown.
        rules: The rules that make its name.

    Raises:
        ValueError: No rule fits the name, or the bytes are no certificate.
    """
    if not certificate:
        return ANONYMOUS
    name = subject_name(certificate)
    made = next((made for rule in rules if (made := rule(name)) is not None), None)
    if made is None:
        raise ValueError(f"no rule of ssl.principal.mapping.rules fits the certificate's subject {name}")
    return Principal(made)
