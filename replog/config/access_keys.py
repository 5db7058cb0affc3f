"""The configuration keys of access control lists; a part of `ServerKeys`."""

from enum import Enum
from typing import Annotated

from replog.access.secret import Secret
from replog.config.keys import Differs
from replog.config.kinds import DAY_MS, HOUR_MS, YEAR_MS, Choice, Flag, Kind, SecretText, milliseconds
from replog.config.security_keys import SecurityKeys


class AuthorizerClass(Enum):
    """What decides who may do what, by the name of Kafka's class that decides so."""

    STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Principals(Kind):
    """Principals with semicolons between them: the name of a certificate has commas in it."""

    type_name = "string"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError("is not a string")  # noqa: TRY004 - ValueError is the one failure of parse
        for each in principals_of(raw):
            if ":" not in each:
                raise ValueError(f'has "{each}", which is no principal: write User:NAME, with semicolons between them')
        return raw

    def describe_range(self) -> str:
        return "User:NAME, with semicolons between them"


def principals_of(text: str) -> tuple[str, ...]:
    """Returns the principals in a value of `super.users`, in order."""
    return tuple(each for each in map(str.strip, text.split(";")) if each)


class AccessKeys(SecurityKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page."""

    # ---- who may do what --------------------------------------------------------------------------------------------

    authorizer_class_name: Annotated[
        AuthorizerClass | None,
        Choice(AuthorizerClass),
        Differs('""', "the same: without an authorizer everybody may do everything"),
    ] = None
    """What decides who may do what.  Not set: everybody may do everything.  With the StandardAuthorizer it is decided by the entries of
    access control lists in the metadata (docs/ACLS.md), and what no entry allows is denied; the same on every broker and controller."""

    super_users: Annotated[str, Principals()] = ""
    """The principals that may do everything, whatever entries say: User:admin;User:CN=ops,O=Example.  The first entries are created
    by one of them.  The same on every broker and controller: both decide."""

    allow_everyone_if_no_acl_found: Annotated[bool, Flag()] = False
    """Whether everybody may do everything to a resource that no entry speaks of.  true: a mistyped name in an entry opens what it was
    to protect.  The same on every broker and controller."""

    # ---- delegation tokens ------------------------------------------------------------------------------------------

    delegation_token_secret_key: Annotated[Secret | None, SecretText()] = None
    """What the HMACs of delegation tokens are made with, the same on every broker and controller.  Not set: there are no tokens.  Whoever has one token
    can try keys against it, so it is random and long: `openssl rand -base64 48`.  ${file:...} and ${env:...} keep it out of this file.  Another
    key ends all tokens."""

    delegation_token_max_lifetime_ms: Annotated[int, milliseconds(1, 100 * YEAR_MS)] = 7 * DAY_MS
    """How long after it was made a delegation token can be renewed at most."""

    delegation_token_expiry_time_ms: Annotated[int, milliseconds(1, 100 * YEAR_MS)] = DAY_MS
    """How long a delegation token holds that is not renewed."""

    delegation_token_expiry_check_interval_ms: Annotated[int, milliseconds(1, DAY_MS)] = HOUR_MS
    """How often the controller removes delegation tokens that have expired; nobody logs in with one of them meanwhile."""
