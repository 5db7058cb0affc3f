"""What decides by the newest entries is what a look at all of them would make, however the state went there."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, cast

import pytest

from replog.controller.state import acls
from replog_timeline import SnapshotRegistry, TimelineHashMap


class Entries:
    """Stands for an authorizer: the entries that it was given."""

    def __init__(self) -> None:
        self.known: set[Any] = set()

    def update(self, gone: Iterable[Any], new: Iterable[Any]) -> None:
        self.known = (self.known - set(gone)) | set(new)


@pytest.mark.parametrize("seed", range(60))
def test_it_goes_back_with_the_state(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, registry = random.Random(seed), SnapshotRegistry()
    monkeypatch.setattr(acls, "ARRANGED_TOGETHER", rng.choice((2, 100)))
    state: TimelineHashMap[int, bool] = TimelineHashMap(registry)
    in_force: Any = cast("Any", acls.EntriesInForce)(registry, Entries, state)
    epochs: list[int] = []
    for step in range(200):
        match rng.choice(("change", "change", "change", "arrange", "arrange", "judge", "snapshot", "revert", "forget")):
            case "change":
                entry = rng.randrange(8)
                is_new = state.get(entry) is None
                if is_new:
                    state[entry] = True
                else:
                    del state[entry]
                in_force.note(entry, is_new=is_new)
            case "arrange" if in_force.is_far_behind:
                in_force.arrange_more()
            case "judge":
                authorizer: Any = in_force.authorizer()
                assert authorizer.known == {key for key, _ in state.items()}
            case "snapshot":
                registry.get_or_create_snapshot(step)
                epochs.append(step)
            case "revert" if epochs:
                epoch = rng.choice(epochs)
                registry.revert_to_snapshot(epoch)
                epochs = [each for each in epochs if each <= epoch]
            case "forget" if epochs:
                epoch = rng.choice(epochs)
                registry.delete_snapshots_up_to(epoch)
                epochs = [each for each in epochs if each >= epoch]
