"""The bound on a record's size holds for every record there can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rpc_values import structs_of, values

from replog.metadata import records
from replog.metadata.records import encoded_bytes_max
from replog.rpc.metadata_records import encode_metadata_record

RECORDS = [cls for cls in structs_of(records) if cls.__name__.endswith("Record")]


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_no_record_is_larger_than_its_bound(cls: type, data: st.DataObject) -> None:
    record = data.draw(values(cls))
    assert len(encode_metadata_record(record)) <= encoded_bytes_max(record)


def test_a_long_value_counts_with_all_its_bytes() -> None:
    for text in ("x" * 100_000, "\N{SNOWMAN}" * 100_000, "\N{MONKEY}" * 100_000):
        record = records.ConfigRecord(records.ResourceType.TOPIC, "t", "k", text)
        assert len(encode_metadata_record(record)) <= encoded_bytes_max(record)
    many = records.PartitionRecord(0, records.UUID(int=1), (2**31 - 1,) * 10_000, (-1,) * 10_000, 1, 0, 0)
    assert len(encode_metadata_record(many)) <= encoded_bytes_max(many)
