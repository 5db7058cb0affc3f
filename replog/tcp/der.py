"""Values in DER, the encoding of certificates: a tag, a length, a content, one behind another."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

_VERSION, _UTC_TIME = 0xA0, 0x17


class DerValue(NamedTuple):
    """A value: its tag, its content, and both with the length as they stand."""

    tag: int
    content: bytes
    whole: bytes


def der_values(data: bytes) -> Iterator[DerValue]:
    """Yields the values that stand one behind another.

    Raises:
        ValueError: The bytes end within one.
    """
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a certificate that ends within a value")
        length, begin = data[at + 1], at + 2
        if length & 0x80:
            begin += length & 0x7F
            length = int.from_bytes(data[at + 2 : begin])
        end = begin + length
        if end > len(data):
            raise ValueError("a certificate that ends within a value")
        yield DerValue(data[at], data[begin:end], data[at:end])
        at = end


def object_id(content: bytes) -> str:
    """Returns the number of an object as people write it, such as 2.5.29.17."""
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def signed_fields(certificate: bytes) -> list[DerValue]:
    """Returns the fields of a certificate that its authority has signed (RFC 5280, TBSCertificate).

    Raises:
        ValueError: The bytes are no certificate.
    """
    try:
        outer = next(der_values(certificate))
        return list(der_values(next(der_values(outer.content)).content))
    except StopIteration:
        raise ValueError("a certificate without fields") from None


def end_of_validity(certificate: bytes) -> dt.datetime:
    """Returns the last moment of a certificate (RFC 5280, 4.1.2.5), with the time zone UTC.

    Raises:
        ValueError: The bytes are no certificate.
    """
    fields = signed_fields(certificate)
    first = 1 if fields and fields[0].tag == _VERSION else 0
    if len(fields) < first + 4:
        raise ValueError("a certificate without a time until which it is valid")
    *_, last = der_values(fields[first + 3].content)  # behind serial number, algorithm, issuer
    text = last.content.decode("ascii")
    if last.tag == _UTC_TIME:  # two digits of the year, of 1950 to 2049
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)
