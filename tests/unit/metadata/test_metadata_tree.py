"""The image as a tree: what is where, and nothing is made that is not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_histories import bounded, records_of, replayed

from replog.metadata import MetadataImage
from replog.metadata.records import (
    BeginTransactionRecord,
    BrokerEndpoint,
    ConfigRecord,
    DrainBrokerRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    ResourceType,
    SupportedFeature,
    TopicRecord,
)
from replog.metadata.tree import (
    Folder,
    Node,
    diff_lines,
    find_lines,
    find_node,
    folder,
    image_tree,
    leaves,
    list_names,
    path_parts,
)

A = UUID(int=0xA << 100)


def tree_of(image: MetadataImage) -> Node:
    return folder(image_tree(image))


@pytest.fixture
def root() -> Node:
    image = replayed(
        [
            TopicRecord("a", A),
            *(PartitionRecord(number, A, (1,), (1,), 1, 0, 0) for number in range(11)),
            ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", "7"),
            ConfigRecord(ResourceType.TOPIC, "defaults", "segment.bytes", "8"),
            FeatureLevelRecord("metadata.version", 2),
            ProducerIdsRecord(1, 1, 1000),
            DrainBrokerRecord(3, drained=True),
            RegisterBrokerRecord(1, UUID(int=4), 9, "host", 1, (A,), endpoints=(BrokerEndpoint("KAFKA", "host", 2),)),
            RegisterControllerRecord(2, UUID(int=5), "host", 1, (SupportedFeature("metadata.version", 1, 2),)),
            BeginTransactionRecord("t"),
            NoOpRecord(),
        ]
    )
    return tree_of(image)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/topics/by-name/a/topic", {"name": "a", "topic_id": str(A)}),
        ("/configs/broker/defaults", {"log.retention.ms": "7"}),
        ("/configs/topic/defaults", {"segment.bytes": "8"}),
        ("/features/metadata.version", {"level": 2}),
        ("/producer-ids", {"next_producer_id": 1000}),
        ("/drained-brokers", {"broker_ids": [3]}),
        ("/transaction", {"records_waiting": 1}),
        ("//topics/./by-name/../../producer-ids/", {"next_producer_id": 1000}),
    ],
)
def test_leaves(root: Node, path: str, expected: Mapping[str, object]) -> None:
    assert find_node(root, path) == expected


def test_a_controller_with_what_it_supports(root: Node) -> None:
    leaf = find_node(root, "/controllers/2")
    assert isinstance(leaf, Mapping)
    assert leaf["supported_features"] == [{"name": "metadata.version", "min_level": 1, "max_level": 2}]


def test_a_broker_with_where_it_serves_kafkas_clients(root: Node) -> None:
    leaf = find_node(root, "/brokers/1")
    assert isinstance(leaf, Mapping)
    assert leaf["endpoints"] == [{"name": "KAFKA", "host": "host", "port": 2, "protocol": "plaintext"}]


@pytest.mark.parametrize(
    "path",
    ["/x", "/topics/by-name/b", "/topics/by-name/a/11", "/topics/by-name/a/00", "/topics/by-name/a/-1", "/producer-ids/x",
     "/topics/by-id/a", f"/topics/by-id/{A.hex}", "/configs/broker/1", "/configs/topic/"],
)  # fmt: skip
def test_what_is_not_there(root: Node, path: str) -> None:
    found = find_node(root, path)
    assert found is None or path.endswith("/")


def test_numbers_are_in_order_of_numbers(root: Node) -> None:
    names = list_names(find_node(root, "/topics/by-name/a") or {}, "")
    assert names == ["topic", *map(str, range(11))]


def test_paths() -> None:
    assert path_parts("/a/./b//../c/") == ["a", "c"]
    assert path_parts("../..") == []


@bounded
@given(st.data())
def test_every_leaf_is_found_at_its_path(data: st.DataObject) -> None:
    root = tree_of(replayed(records_of(data)))
    for path, leaf in leaves(root):
        assert find_node(root, path) == leaf


@bounded
@given(st.data())
def test_find_without_conditions_and_diff_from_nothing_say_everything_once(data: st.DataObject) -> None:
    root = tree_of(replayed(records_of(data)))
    once = [path for path, _ in leaves(root) if not path.startswith("/topics/by-id")]
    assert [line.split()[0] for line in find_lines(root, "", [])] == once
    assert [line.split()[1] for line in diff_lines(None, root)] == once
    assert list(diff_lines(root, tree_of(replayed([])))) == [] or once


@bounded
@given(st.data())
def test_a_difference_is_there_exactly_when_something_differs(data: st.DataObject) -> None:
    before = replayed(records_of(data, max_size=15))
    after = replayed(records_of(data, before, max_size=6), before)
    one, other = dict(leaves(tree_of(before))), dict(leaves(tree_of(after)))
    lines = list(diff_lines(tree_of(before), tree_of(after)))
    changed = {path for path in {*one, *other} if one.get(path) != other.get(path) and "by-id" not in path}
    assert {line.split()[1] for line in lines} == changed
    for line in lines:
        sign, path = line.split()[:2]
        assert sign == ("~" if path in one and path in other else "-" if path in one else "+")


def test_nothing_is_made_that_is_not_looked_at() -> None:
    made: list[str] = []

    def child(name: str) -> Node:
        made.append(name)
        return {}

    root = Folder(lambda: map(str, range(1000)), child)
    assert find_node(root, "/7") == {}
    assert made == ["7"]
