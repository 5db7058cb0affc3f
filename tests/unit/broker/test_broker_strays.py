"""What becomes of a partition folder with the topic id of another topic than the metadata have under its name."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.broker.replicas.image_steps import FolderFate, fate_of
from replog.metadata.image import TopicImage
from replog.metadata.persistent_map import PersistentMap
from replog.metadata.registrations import PartitionRegistration

FORMER, NOW = UUID(int=1), UUID(int=2)


def topic(*replicas: int) -> TopicImage:
    registration = PartitionRegistration(
        replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=0, partition_epoch=0
    )
    return TopicImage("t", NOW, PersistentMap({0: registration}))


@pytest.mark.parametrize(
    ("replicas", "flags", "fate"),
    [
        ((1, 2), "later", FolderFate.SET_ASIDE),
        ((1, 2), "later deleted", FolderFate.DELETED),
        ((1, 2), "later known", FolderFate.QUARANTINED),
        ((1, 2), "", FolderFate.QUARANTINED),
        (
            (1, 2),
            "deleted",
            FolderFate.QUARANTINED,
        ),  # an older copy of the folder: its replica may hold acknowledged records
        ((1,), "deleted clean", FolderFate.QUARANTINED),
        (
            (1,),
            "deleted",
            FolderFate.SET_ASIDE,
        ),  # killed before the folder was out of the way; there is nobody else to ask
        ((2, 3), "deleted", FolderFate.DELETED),
        ((2, 3), "", FolderFate.SET_ASIDE),
        ((2, 3), "known", FolderFate.SET_ASIDE),
    ],
)
def test_the_fate_of_a_folder(replicas: tuple[int, ...], flags: str, fate: FolderFate) -> None:
    told = {f"{'was' if flag in {'deleted', 'clean'} else 'is'}_{flag}": flag in flags.split() for flag in FLAGS}
    assert fate_of(FORMER, topic(*replicas), 0, 1, **told) is fate


def test_a_folder_without_an_id_is_kept() -> None:
    assert (
        fate_of(None, None, 0, 1, is_known=False, was_deleted=True, is_later=False, was_clean=True)
        is FolderFate.SET_ASIDE
    )


FLAGS = ("known", "deleted", "later", "clean")
