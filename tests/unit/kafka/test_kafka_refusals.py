"""Every API has an answer to a request that failed as a whole, which says why where it has fields for that."""

from __future__ import annotations

from typing import Any

import pytest

from replog.errors import ErrorCode, InvariantViolationError
from replog.protocol.handlers.node import Failure
from replog.protocol.served import SERVED, Served, refusal
from replog.wire.messages.apis import APIS
from replog.wire.messages.create_acls import CreateAclsResponse

KAFKAS = [api for api in SERVED if api.key in {each.key for each in APIS.values()}]


@pytest.mark.parametrize("api", KAFKAS, ids=lambda api: str(api.name))
def test_what_fails_as_a_whole_is_told_in_the_fields_of_the_answer(api: Served) -> None:
    request: Any = api.load().request
    answer = api.load().refuse(request(), Failure(ErrorCode.NOT_CONTROLLER, "elections"))
    assert type(answer).__name__ == f"{api.name}Response"
    assert getattr(answer, "error_code", ErrorCode.NOT_CONTROLLER) == ErrorCode.NOT_CONTROLLER
    if hasattr(answer, "error_code"):
        assert getattr(answer, "error_message", "elections") == "elections"


def test_an_answer_without_a_code_of_its_own_needs_a_function_that_refuses() -> None:
    with pytest.raises(InvariantViolationError, match="CreateAclsResponse has no code"):
        refusal(CreateAclsResponse)
