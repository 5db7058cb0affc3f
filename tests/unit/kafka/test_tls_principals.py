"""What certificates call their holders: the expected names are Java's, of `X500Principal.getName`."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from replog.access.principal import ANONYMOUS, Principal
from replog.tcp.principals import certificate_principal, parse_rules, subject_name

KEY = ec.generate_private_key(ec.SECP256R1())
TODAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def certificate(name: x509.Name) -> bytes:
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    dated = builder.serial_number(7).not_valid_before(TODAY).not_valid_after(TODAY + dt.timedelta(1))
    return dated.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def of(*pairs: tuple[ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([NameAttribute(number, text) for number, text in pairs])


@pytest.mark.parametrize(
    ("name", "java"),
    [
        (
            of(
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.ORGANIZATION_NAME, "Example, Inc."),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, 'A+B;"q"<x>#=\\'),
                (NameOID.COMMON_NAME, " #bill ing  "),
            ),
            r"CN=\ \#bill ing\ \ ,OU=A\+B\;\"q\"\<x\>\#\=\\,O=Example\, Inc.,C=DE",
        ),
        (
            of(
                (NameOID.DOMAIN_COMPONENT, "org"),
                (NameOID.DOMAIN_COMPONENT, "example"),
                (NameOID.USER_ID, "u1"),
                (NameOID.EMAIL_ADDRESS, "a@b.c"),
                (NameOID.STREET_ADDRESS, "Weg 1"),
                (NameOID.LOCALITY_NAME, "Köln"),
                (NameOID.STATE_OR_PROVINCE_NAME, "NW"),
            ),
            "ST=NW,L=Köln,STREET=Weg 1,1.2.840.113549.1.9.1=#16056140622e63,UID=u1,DC=example,DC=org",
        ),
        (
            x509.Name(
                [
                    RelativeDistinguishedName(
                        [NameAttribute(NameOID.COMMON_NAME, "a"), NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b")]
                    ),
                    RelativeDistinguishedName([NameAttribute(NameOID.SERIAL_NUMBER, "123")]),
                ]
            ),
            "2.5.4.5=#1303313233,CN=a+OU=b",
        ),
        (
            of((ObjectIdentifier("1.2.3.4"), "x"), (NameOID.COMMON_NAME, "日本 ü\x01")),
            "CN=日本 ü\x01,1.2.3.4=#0c0178",
        ),
        (of((NameOID.COMMON_NAME, "  ")), r"CN=\ \ "),
        (of((NameOID.COMMON_NAME, "a\0b")), r"CN=a\00b"),
        (x509.Name([]), ""),
    ],
)
def test_names_are_those_of_java(name: x509.Name, java: str) -> None:
    assert subject_name(certificate(name)) == java


@pytest.mark.parametrize(
    ("rules", "made"),
    [
        ("DEFAULT", "CN=Bill.Ing,OU=Services,O=Example"),
        ("", None),
        ("RULE:^CN=(.*?),OU=Services.*$/$1/", "Bill.Ing"),
        ("RULE:^CN=(.*?),OU=Others.*$/$1/ , RULE:^CN=([^,]+),OU=([^,]+),.*$/$2.$1/L,DEFAULT", "services.bill.ing"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1@host/U", "BILL.ING@HOST"),
        ("RULE:CN/$1/,DEFAULT", "CN=Bill.Ing,OU=Services,O=Example"),  # a pattern fits the whole name or not at all
        (r"RULE:^CN=(.*?),.*$/\/$1$4\$1$12/", "/Bill.Ing$4$1Bill.Ing2"),
        ("RULE:^CN=(x)?.*$/none$1/", "none"),
        ("RULE:^OU=.*$/$0/", None),
    ],
)
def test_rules_make_names(rules: str, made: str | None) -> None:
    subject = certificate(
        of(
            (NameOID.ORGANIZATION_NAME, "Example"),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, "Services"),
            (NameOID.COMMON_NAME, "Bill.Ing"),
        )
    )
    if made is not None:
        assert certificate_principal(subject, parse_rules(rules)) == Principal(made)
    else:
        with pytest.raises(ValueError, match=r"is empty|no rule of"):
            certificate_principal(subject, parse_rules(rules))


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "DEFAULT RULE:a/b/", "RULE:a/b/L,x"]
)
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"no rule in|which is none"):
        parse_rules(rules)


def test_who_shows_no_certificate_is_anonymous() -> None:
    assert certificate_principal(None, parse_rules("DEFAULT")) == ANONYMOUS
    assert str(ANONYMOUS) == "User:ANONYMOUS"


WHOLE = certificate(of((NameOID.COMMON_NAME, "x")))


@given(st.integers(0, 120), st.integers(0, 255))
def test_damaged_certificates_are_an_error_or_a_name(at: int, byte: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] = byte
    for data in (bytes(damaged), WHOLE[:at]):
        try:
            found = certificate_principal(data, parse_rules("DEFAULT"))
        except (ValueError, IndexError, StopIteration):  # which `TlsTransport` takes for a refusal
            continue
        assert isinstance(found.name, str)
