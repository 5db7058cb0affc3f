"""`Security`: how a client is believed by brokers, and they by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct
from msgspec.structs import asdict

from replog.access.secret import Secret
from replog.client.security.kafka_names import OAUTHBEARER, PLAIN, read_names
from replog.errors import ConfigError
from replog.errors.choices import require_choice, require_kind

ScramMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256"]

TokenProvider: TypeAlias = Callable[[], "str | Awaitable[str]"]
"""Returns a bearer token that is valid now; a plain function is called in a thread, so that it may wait."""

_READABLE: Final = "{} without TLS sends the {} readable for everybody on the way: give tls=Security.tls(...), or insecure=True where that is no harm"


class Encryption(Struct, frozen=True):
    """How a client speaks TLS; made by `Security.tls`.

    Attributes:
        ca: The PEM file with the authorities that sign brokers' certificates; "": those of the system.
        cert: The PEM file with the client's certificate and the chain up to the authority; "": the client shows none.
        key: The PEM file with the private key of `cert`; "": it is in the same file.
        key_password: What the private key is encrypted with; None: it is not.
        server_name: The name that a broker's certificate must be for; "": the host by which the broker is reached.
        check_hostname: Whether the name is looked at.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: Secret | None = None
    server_name: str = ""
    check_hostname: bool = True


class SaslLogin(Struct, frozen=True):
    """Who a client says that it is; made by `Security.scram`, `delegation_token`, `plain` or `oauth`.

    Attributes:
        mechanism: The mechanism of SASL.
        username: The name; "" where a token says it.
        password: The password; None where there is a token.
        token_provider: What returns a token; None where there is a password.
        by_token: Whether name and password are the id and the HMAC of a delegation token.
    """

    mechanism: str
    username: str = ""
    password: Secret | None = None
    token_provider: TokenProvider | None = None
    by_token: bool = False

    def __repr__(self) -> str:
        shown = asdict(self)
        if (
            self.token_provider is not None
        ):  # it may be a `partial` with the secret of an OAuth client among its arguments
            shown["token_provider"] = Secret("")
        return f"SaslLogin({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Security(Struct, frozen=True):
    """TLS and SASL of a client: `Producer("broker:9093", security=Security.tls(ca="ca.pem"))`.

    Made by `tls`, `scram`, `delegation_token`, `plain`, `oauth` or `from_settings`; without arguments it is plain text, as None is.

    Attributes:
        encryption: How TLS is spoken; None: it is not.
        login: Who the client says that it is; None: it does not say.
    """

    encryption: Encryption | None = None
    login: SaslLogin | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the two: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        if self.login is None:
            return "PLAINTEXT" if self.encryption is None else "SSL"
        return "SASL_PLAINTEXT" if self.encryption is None else "SASL_SSL"

    @staticmethod
    def tls(
        *,
        ca: str = "",
        cert: str = "",
        key: str = "",
        key_password: str | None = None,
        server_name: str = "",
        check_hostname: bool = True,
    ) -> Security:
        """Makes TLS 1.2 or later: the broker shows a certificate, and with `cert` the client one, too.

        Args:
            ca: The PEM file with the authorities that sign brokers' certificates; "": those of the system.
            cert: The PEM file with the client's certificate and its chain; "": none.
            key: The PEM file with the private key of `cert`; "": it is in the same file.
            key_password: What the private key is encrypted with; None: it is not.
            server_name: The name that brokers' certificates must be for; "": the host by which each is reached.
            check_hostname: Whether the name is looked at.  False believes each holder of any certificate of `ca`.

        Raises:
            ConfigError: An argument is of the wrong type, or a key is given without a certificate.
        """
        given = {"ca": ca, "cert": cert, "key": key, "server_name": server_name}
        for name, value in given.items():
            require_kind(name, value, str)
        if type(check_hostname) is not bool:
            raise ConfigError("check_hostname", check_hostname, "check_hostname must be True or False")
        if key and not cert:
            raise ConfigError("key", key, "key is of a certificate: give cert, too")
        password = None if key_password is None else _secret("key_password", key_password)
        return Security(Encryption(ca, cert, key, password, server_name, check_hostname))

    @staticmethod
    def scram(
        username: str, password: str, *, mechanism: ScramMechanism = "SCRAM-SHA-512", tls: Security | None = None
    ) -> Security:
        """Makes a login by a password that does not leave the client (RFC 5802, RFC 7677), and that the broker must know, too.

        Args:
            username: The name of the user.
            password: The password.
            mechanism: The mechanism that the user has a credential for.
            tls: What `Security.tls` returns; None: the records are readable on the way, and can be changed.

        Raises:
            ConfigError: An argument is of the wrong type or empty.
        """
        require_choice("mechanism", mechanism, get_args(ScramMechanism))
        return Security(_encryption(tls), _password_login(mechanism, username, password))

    @staticmethod
    def delegation_token(
        token_id: str, hmac: str, *, mechanism: ScramMechanism = "SCRAM-SHA-512", tls: Security | None = None
    ) -> Security:
        """Makes a login with a delegation token (KIP-48): the client is its owner until the token expires.

        Args:
            token_id: The id of the token.
            hmac: The HMAC of the token as base64, which does not leave the client.
            mechanism: One that the listener offers.
            tls: What `Security.tls` returns; None: the records are readable on the way, and can be changed.

        Raises:
            ConfigError: An argument is of the wrong type or empty.
        """
        require_choice("mechanism", mechanism, get_args(ScramMechanism))
        require_kind("token_id", token_id, str)
        if not token_id or "\0" in token_id:
            raise ConfigError("token_id", token_id, f"token_id is {token_id!r}; it must be text without NUL")
        return Security(_encryption(tls), SaslLogin(mechanism, token_id, _secret("hmac", hmac), by_token=True))

    @staticmethod
    def plain(username: str, password: str, *, tls: Security | None = None, insecure: bool = False) -> Security:
        """Makes a login by a password that the broker is told (RFC 4616).

        Args:
            username: The name of the user.
            password: The password.
            tls: What `Security.tls` returns.
            insecure: Whether the password may be sent without TLS.

        Raises:
            ConfigError: An argument is of the wrong type or empty, or there is no TLS.
        """
        if tls is None and insecure is not True:
            raise ConfigError("tls", None, _READABLE.format(PLAIN, "password"))
        return Security(_encryption(tls), _password_login(PLAIN, username, password))

    @staticmethod
    def oauth(token_provider: TokenProvider, *, tls: Security | None = None, insecure: bool = False) -> Security:
        """Makes a login by a bearer token (RFC 7628), which is asked for anew for each connection and each renewal.

        Args:
            token_provider: What returns a token, a function or a coroutine function without arguments.
            tls: What `Security.tls` returns.
            insecure: Whether the token may be sent without TLS.

        Raises:
            ConfigError: An argument is of the wrong type, or there is no TLS.
        """
        if not callable(token_provider):
            raise ConfigError("token_provider", None, "token_provider must be a function that returns a token")
        if tls is None and insecure is not True:
            raise ConfigError("tls", None, _READABLE.format(OAUTHBEARER, "token"))
        return Security(_encryption(tls), SaslLogin(OAUTHBEARER, token_provider=token_provider))

    @staticmethod
    def from_settings(settings: Mapping[str, object]) -> Security:
        """Reads the settings of Kafka's clients about security, by the names of the Java client and of librdkafka.

        Args:
            settings: The settings, such as {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}.

        Raises:
            ConfigError: One is not known, has no such value, is missing, or is of what replog has not.
        """
        named = read_names(settings)
        tls = None if named.tls is None else Security.tls(**named.tls)
        if not named.mechanism:
            return tls or Security()
        password = named.password.reveal()
        scram_mechanism = cast("ScramMechanism", named.mechanism)
        if named.by_token:
            return Security.delegation_token(named.username, password, mechanism=scram_mechanism, tls=tls)
        if named.mechanism == PLAIN:  # who writes SASL_PLAINTEXT has said that it is readable
            return Security.plain(named.username, password, tls=tls, insecure=tls is None)
        return Security.scram(named.username, password, mechanism=scram_mechanism, tls=tls)


def require_security(value: Any) -> None:
    """Refuses another type, without showing what may have a password in it.

    Raises:
        ConfigError: It is neither a `Security` nor None.
    """
    if value is None or isinstance(value, Security):
        return
    raise ConfigError(
        "security",
        None,
        f"security is a {type(value).__name__}; it must be made by Security.tls, scram, delegation_token, plain or oauth, or of Kafka's settings by "
        "Security.from_settings (docs/SECURITY_CLIENTS.md)",
    )


def _encryption(tls: Any) -> Encryption | None:
    if tls is None:
        return None
    if not isinstance(tls, Security) or tls.encryption is None or tls.login is not None:
        raise ConfigError("tls", None, f"tls is a {type(tls).__name__}; it must be what Security.tls(...) returns")
    return tls.encryption


def _password_login(mechanism: str, username: str, password: str) -> SaslLogin:
    require_kind("username", username, str)
    if not username or "\0" in username:
        raise ConfigError("username", username, f"username is {username!r}; it must be text without NUL")
    return SaslLogin(mechanism, username, _secret("password", password))


def _secret(name: str, text: object) -> Secret:
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(name, None, f"{name} ({type(text).__name__}) must be text that is not empty, without NUL")
    return Secret(text)
