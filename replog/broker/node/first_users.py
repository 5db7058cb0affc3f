"""`first-users`: the users that a new cluster begins with (KIP-900), beside the metadata log of a node that may write its beginning.

Where every client has to log in, nobody could make the first user.  `replog storage format` writes the file; the controller that begins
the metadata log takes them over, and afterwards nobody reads it.  A line for the version with a checksum of the rest, and a line for each
record as the metadata log has it, in base64::

    1 7a3f01bc
    gKIBVQoFYWxpY2U...

A file that a crash has left half written is not there: it is replaced as a whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from replog.errors import CorruptCheckpointError, CorruptRecordError, UnsupportedVersionError
from replog.metadata.records import UserScramCredentialRecord
from replog.rpc.metadata_records import decode_metadata_record, encode_metadata_record
from replog_checkpoints import FileSystem
from replog_checkpoints.atomic_file import read_file, replace_file

FILE_NAME = "first-users"
USERS_MAX = 100
"""Users that a cluster begins with; others are added by those."""

_VERSION = "1"
_BYTES_MAX = 1 << 20


def write_first_users(fs: FileSystem, log_dir: str, records: Sequence[UserScramCredentialRecord]) -> None:
    """Writes the file into the folder of the metadata log."""
    lines = "".join(f"{base64.b64encode(encode_metadata_record(record)).decode()}\n" for record in records)
    head = f"{_VERSION} {binascii.crc32(lines.encode()):08x}\n"
    replace_file(fs, f"{log_dir}/{FILE_NAME}", (head + lines).encode())


def read_first_users(fs: FileSystem, log_dir: str) -> tuple[UserScramCredentialRecord, ...]:
    """Reads the file; nobody where there is none.

    Raises:
        CorruptCheckpointError: It is damaged.
    """
    path = f"{log_dir}/{FILE_NAME}"
    data = read_file(fs, path, _BYTES_MAX)
    if data is None:
        return ()
    head, _, lines = data.partition(b"\n")
    if head != f"{_VERSION} {binascii.crc32(lines):08x}".encode():
        raise CorruptCheckpointError(path, 1, "its checksum is another one: format the node anew, or remove the file")
    found: list[UserScramCredentialRecord] = []
    for number, line in enumerate(lines.splitlines(), 2):
        try:
            record = decode_metadata_record(base64.b64decode(line, validate=True), offset=number)
        except (binascii.Error, CorruptRecordError, UnsupportedVersionError) as error:
            raise CorruptCheckpointError(path, number, f"it is no user: {error}") from None
        if not isinstance(record, UserScramCredentialRecord):
            raise CorruptCheckpointError(path, number, "it is no user")
        found.append(record)
    return tuple(found)
