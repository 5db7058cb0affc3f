"""What a consumer may say about its group."""

from __future__ import annotations

from typing import Any

import pytest

from replog.client.consumer.group_settings import GroupSettings
from replog.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"group_id": ""}, "group.id is empty; give the group a name"),
        ({"group_id": "g" * 4_097}, "group.id has 4097 characters, 4096 may be; shorten it"),
        ({"group_id": "\ud800"}, "group.id is no text that can be sent: surrogates not allowed"),
        ({"instance_id": ""}, "group.instance.id is empty; name the instance, or leave it out"),
        ({"instance_id": "i" * 4_097}, "group.instance.id has 4097 characters, 4096 may be; shorten it"),
    ],
)
def test_names_that_no_request_carries_are_refused_where_they_are_given(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        GroupSettings(**{"group_id": "g", **values})


def test_names_may_have_any_characters_up_to_the_limit() -> None:
    for name in ("g" * 4_096, "../..", "ü", " "):
        assert GroupSettings(name, instance_id=name).group_id == name
