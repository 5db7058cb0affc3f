"""Who looks for the coordinator of a group or of transactions hears that there is none, and what to do."""

from __future__ import annotations

import pytest

from replog.errors import ErrorCode
from replog.kafka.handlers.coordinators import find_coordinator, refuse_find_coordinator
from replog.kafka.handlers.node import Call, Failure
from replog.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.kafka.wire import Reader, Writer

GROUP, TRANSACTION = 0, 1
CODES = {GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE, TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
TEXTS = {GROUP: "no consumer groups", TRANSACTION: "leave transactional.id out"}


def as_sent(response: FindCoordinatorResponse, version: int) -> FindCoordinatorResponse:
    """What a client of this version reads."""
    writer = Writer()
    response.write(writer, version)
    return FindCoordinatorResponse.read(Reader(memoryview(writer.joined())), version)


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
@pytest.mark.parametrize("version", FindCoordinatorRequest.VERSIONS)
async def test_there_is_none(version: int, kind: int) -> None:
    keys = ["a", "b"] if version >= 4 else []
    request = FindCoordinatorRequest(key="a", key_type=kind, coordinator_keys=keys)
    found = as_sent(await find_coordinator(None, request, Call(version, "")), version)  # type: ignore[arg-type]
    if version >= 4:
        assert [(each.key, each.error_code) for each in found.coordinators] == [("a", CODES[kind]), ("b", CODES[kind])]
        assert all(TEXTS[kind] in (each.error_message or "") for each in found.coordinators)
    else:
        assert (found.error_code, found.node_id, found.coordinators) == (CODES[kind], -1, [])
        assert version == 0 or TEXTS[kind] in (found.error_message or "")


@pytest.mark.parametrize("keys", [[], ["a"]])
def test_a_request_that_failed_is_answered_in_the_shape_of_its_version(keys: list[str]) -> None:
    failed = refuse_find_coordinator(
        FindCoordinatorRequest(coordinator_keys=keys), Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug")
    )
    found = [each.error_code for each in failed.coordinators] or [failed.error_code]
    assert found == [ErrorCode.UNKNOWN_SERVER_ERROR]
