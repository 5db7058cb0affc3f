"""What a reader asks for, what it was told, and what has moved since."""

from __future__ import annotations

from uuid import UUID

from replog.replication.fetch_positions import FetchPositions, Movements, PartitionKey

T = UUID(int=1)
A, B, C = (T, 0), (T, 1), (T, 2)


def reading(movements: Movements, *keys: PartitionKey) -> FetchPositions[int]:
    """A reader that was told the state "old" of each."""
    positions: FetchPositions[int] = FetchPositions(movements)
    for key in keys:
        positions.ask(key, 0)
        assert positions.tell(key, "old", goes_on=False)
    assert positions.to_look_at() == ()
    return positions


def test_only_what_moved_is_looked_at_and_only_another_state_is_new() -> None:
    movements = Movements()
    positions = reading(movements, *((T, number) for number in range(1_000)))
    movements.tell([(T, 7), (T, 3), (UUID(int=2), 0)])
    assert list(positions.moved) == [(T, 7), (T, 3)]
    assert not positions.tell((T, 7), "old", goes_on=False)
    assert positions.tell((T, 3), "new", goes_on=False)
    assert not positions.moved


def test_each_reader_hears_once_of_its_own_partitions() -> None:
    movements = Movements()
    first, second = reading(movements, A, B), reading(movements, B, C)
    heard: list[tuple[str, list[PartitionKey]]] = []
    first.on_moved = lambda keys: heard.append(("first", list(keys)))
    second.on_moved = lambda keys: heard.append(("second", list(keys)))
    movements.tell([A, B])
    assert sorted(heard) == [("first", [A, B]), ("second", [B])]


def test_those_with_records_go_to_the_end_and_those_that_go_on_keep_their_place() -> None:
    movements = Movements()
    positions = reading(movements, A, B, C)
    movements.tell([A, B, C])
    positions.tell(A, "new", goes_on=True, has_records=True)
    positions.tell(B, "new", goes_on=True)
    assert list(positions.moved) == [B, C, A]
    positions.ask(B, 5)
    assert list(positions.moved) == [B, C, A]
    assert positions.to_look_at() == (5, 0, 0)


def test_who_forgets_hears_nothing_and_is_told_again_when_it_asks_anew() -> None:
    movements = Movements()
    positions = reading(movements, A, B)
    positions.forget(A)
    positions.forget(A)
    movements.tell([A])
    assert not positions.moved
    positions.ask(A, 0)
    assert positions.tell(A, "old", goes_on=False)
    positions.clear()
    assert (len(movements), positions.asked, positions.told, positions.moved) == (0, {}, {}, {})
