"""What a reader of committed records is not shown, by the aborted transactions that an answer names."""

from __future__ import annotations

import random

import pytest

from replog.client.protocol.records import hide_aborted
from replog.records import decode_batch, encode_batch, encode_end_transaction_marker, scan
from replog.rpc.messages import AbortedTransaction


class Answer:
    """The batches of one answer, and what was aborted in them."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.kept: list[int] = []  # offsets of committed records
        self._begun: dict[int, list[int]] = {}
        self.aborted: list[AbortedTransaction] = []

    def write(self, producer_id: int) -> None:
        offset = len(self.batches)
        self._begun.setdefault(producer_id, []).append(offset)
        self.batches.append(
            encode_batch(
                [(1, None, b"x", ())],
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        offsets = self._begun.pop(producer_id, [])
        if is_commit:
            self.kept += offsets
        elif offsets:
            self.aborted.append(AbortedTransaction(producer_id, offsets[0]))
        self.batches.append(
            encode_end_transaction_marker(
                base_offset=len(self.batches),
                leader_epoch=0,
                timestamp_ms=1,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                is_commit=is_commit,
            )
        )

    def shown(self) -> list[int]:
        data = hide_aborted(b"".join(self.batches), self.aborted)
        headers = [header for header in scan(data) if not header.is_control]
        return [record.offset for header in headers for record in decode_batch(data, header.position)]


@pytest.mark.parametrize("seed", range(20))
def test_what_was_aborted_is_hidden_and_the_rest_is_shown(seed: int) -> None:
    rng, answer = random.Random(seed), Answer()
    for _ in range(200):
        producer_id = rng.randrange(5)
        if rng.random() < 0.6:
            answer.write(producer_id)
        else:
            answer.end(producer_id, is_commit=rng.random() < 0.5)
    for producer_id in range(5):
        answer.end(producer_id, is_commit=bool(producer_id % 2))
    rng.shuffle(answer.aborted)
    assert answer.aborted
    assert answer.shown() == sorted(answer.kept)
