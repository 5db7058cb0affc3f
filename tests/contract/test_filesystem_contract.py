"""What the log may rely on from any disk: the same checks on the real file system and on the simulated one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OpenMode, OsFileSystem


@dataclass(frozen=True)
class Place:
    """A file system and an empty folder on it."""

    fs: FileSystem
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def put(self, name: str, data: bytes = b"") -> str:
        path = self.path(name)
        file = self.fs.open(path, OpenMode.REPLACE)
        assert file.pwrite([data], 0) == len(data)
        file.sync()
        file.close()
        return path

    def get(self, name: str) -> bytes:
        file = self.fs.open(self.path(name), OpenMode.READ)
        data = file.pread(file.size(), 0)
        file.close()
        return data


@pytest.fixture(params=["os", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "os":
        return Place(OsFileSystem(), str(tmp_path))
    disk = SimulatedFileSystem()
    disk.make_dirs("/tmp/test")
    return Place(disk, "/tmp/test")


# Opening


@pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.WRITE])
def test_an_absent_file_is_not_opened(place: Place, mode: OpenMode) -> None:
    with pytest.raises(FileNotFoundError):
        place.fs.open(place.path("absent"), mode)
    assert not place.fs.exists(place.path("absent"))


@pytest.mark.parametrize("mode", list(OpenMode))
def test_no_folder_no_file(place: Place, mode: OpenMode) -> None:
    with pytest.raises(FileNotFoundError):
        place.fs.open(place.path("absent/file"), mode)


@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_file_is_no_folder(place: Place, mode: OpenMode) -> None:
    place.put("file")
    with pytest.raises(NotADirectoryError):
        place.fs.open(place.path("file/below"), mode)


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        (OpenMode.READ, IsADirectoryError),
        (OpenMode.WRITE, IsADirectoryError),
        (OpenMode.CREATE, FileExistsError),
        (OpenMode.REPLACE, IsADirectoryError),
    ],
)
def test_a_folder_is_no_file(place: Place, mode: OpenMode, error: type[OSError]) -> None:
    with pytest.raises(error):
        place.fs.open(place.folder, mode)


def test_create_refuses_and_replace_empties_what_exists(place: Place) -> None:
    path = place.put("file", b"data")
    with pytest.raises(FileExistsError):
        place.fs.open(path, OpenMode.CREATE)
    assert place.get("file") == b"data"
    place.fs.open(path, OpenMode.WRITE).close()
    assert place.get("file") == b"data"
    place.fs.open(path, OpenMode.REPLACE).close()
    assert place.get("file") == b""


def test_path_is_what_was_opened(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    place.fs.rename(place.path("file"), place.path("other"))
    assert file.path == place.path("file")
    file.close()


# Reading and writing


def test_buffers_are_written_one_after_the_other(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    assert file.pwrite([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b""], 0) == 6
    assert file.pwrite([b"CD"], 2) == 2
    assert file.pwrite([], 6) == 0
    assert file.pwrite([b""], 100) == 0
    assert (file.size(), file.pread(100, 0)) == (6, b"abCDef")
    file.close()


def test_more_buffers_than_one_system_call_takes(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    buffers = [bytes([index % 251]) * (index % 3) for index in range(5000)]
    assert file.pwrite(buffers, 7) == 4999
    assert file.pread(10_000, 7) == b"".join(buffers)
    file.close()


def test_memoryviews_count_in_bytes(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    assert file.pwrite([memoryview(bytes(8)).cast("q")], 0) == 8
    assert file.size() == 8
    file.close()


def test_a_gap_reads_as_zeros(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    file.pwrite([b"x"], 3)
    assert file.pread(10, 0) == b"\0\0\0x"
    file.close()


def test_reads_end_at_the_end(place: Place) -> None:
    path = place.put("file", b"abcdef")
    file = place.fs.open(path, OpenMode.READ)
    assert file.pread(3, 2) == b"cde"
    assert file.pread(10, 4) == b"ef"
    assert file.pread(10, 6) == b""
    assert file.pread(10, 600) == b""
    assert file.pread(0, 0) == b""
    buffer = bytearray(b"........")
    assert file.pread_into(memoryview(buffer)[1:4], 0) == 3
    assert buffer == b".abc...."
    assert file.pread_into(buffer, 4) == 2
    assert buffer == b"efbc...."
    file.close()


def test_a_map_shows_the_content_and_outlives_the_file(place: Place) -> None:
    path = place.path("f")
    file = place.fs.open(path, OpenMode.CREATE)
    assert bytes(file.map_read()) == b""
    file.pwrite([b"0123456789"], 0)
    content = file.map_read()
    file.close()
    place.fs.remove(path)
    assert bytes(content[3:5]) == b"34"
    with pytest.raises(TypeError):
        content[0] = 1


def test_truncate_cuts_and_extends(place: Place) -> None:
    file = place.fs.open(place.put("file", b"abcdef"), OpenMode.WRITE)
    file.truncate(2)
    assert file.pread(10, 0) == b"ab"
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


def test_a_file_opened_for_reading_cannot_be_changed(place: Place) -> None:
    file = place.fs.open(place.put("file", b"data"), OpenMode.READ)
    for change in (lambda: file.pwrite([b"x"], 0), lambda: file.truncate(0)):
        with pytest.raises(OSError):
            change()
    file.sync()
    file.close()
    assert place.get("file") == b"data"


def test_nothing_works_after_close_but_close(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    file.close()
    file.close()
    uses: list[Callable[[], object]] = [
        file.size,
        file.sync,
        lambda: file.pread(1, 0),
        lambda: file.pread_into(bytearray(1), 0),
        lambda: file.pwrite([b"x"], 0),
        lambda: file.truncate(0),
        lambda: file.pread_cached(1, 0),
        lambda: file.start_write_back(0, 1),
        lambda: file.wait_write_back(0, 1),
        lambda: file.drop_cache(0, 1),
    ]
    for use in uses:
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_two_opens_see_each_others_writes(place: Place) -> None:
    writer = place.fs.open(place.path("file"), OpenMode.CREATE)
    reader = place.fs.open(place.path("file"), OpenMode.READ)
    writer.pwrite([b"data"], 0)
    assert (reader.size(), reader.pread(4, 0)) == (4, b"data")
    writer.close()
    reader.close()


# The page cache


def test_a_cached_read_gives_all_of_it_or_nothing(place: Place) -> None:
    file = place.fs.open(place.put("file", b"0123456789" * 1000), OpenMode.READ)
    file.pread(10_000, 0)
    assert file.pread_cached(5, 3) in {b"34567", None}
    assert file.pread_cached(10_000, 0) in {b"0123456789" * 1000, None}
    assert file.pread_cached(1, 10_000) is None
    assert file.pread_cached(20, 9990) is None  # the file ends before
    assert file.pread_cached(0, 5) in {b"", None}
    file.close()


def test_what_was_just_written_is_cached(place: Place) -> None:
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    file.pwrite([b"x" * 300_000], 0)
    assert file.pread_cached(300_000, 0) == b"x" * 300_000
    file.close()


def test_written_back_and_dropped_bytes_are_still_read(place: Place) -> None:
    data = bytes(range(256)) * 256
    file = place.fs.open(place.path("file"), OpenMode.CREATE)
    file.pwrite([data], 0)
    file.start_write_back(0, len(data))
    file.wait_write_back(0, len(data))
    file.drop_cache(0, len(data))
    file.drop_cache(100, 0)
    assert file.pread_cached(4096, 4096) in {data[4096:8192], None}
    assert file.pread(len(data), 0) == data
    file.pwrite([b"new"], 4096)  # dirty again: what is not written back is never dropped
    file.drop_cache(0, len(data))
    assert file.pread(8, 4094) == data[4094:4096] + b"new" + data[4099:4102]
    file.close()


def test_write_back_of_what_is_not_there_is_harmless(place: Place) -> None:
    file = place.fs.open(place.put("file", b"data"), OpenMode.WRITE)
    for use in (file.start_write_back, file.wait_write_back, file.drop_cache):
        use(1 << 20, 1 << 20)
    assert file.size() == 4
    file.close()


# Names


def test_names_and_sizes(place: Place) -> None:
    place.put("b", b"12345")
    place.put("a")
    place.fs.make_dirs(place.path("c/d/e"))
    place.fs.make_dirs(place.path("c/d"))
    assert place.fs.list_dir(place.folder) == ["a", "b", "c"]
    assert place.fs.list_dir(place.path("c/d/e")) == []
    assert place.fs.size(place.path("b")) == 5
    assert [place.fs.exists(place.path(name)) for name in ("a", "c", "x", "x/y", "a/y")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [place.fs.is_dir(place.path(name)) for name in ("a", "c", "x", "x/y", "a/y")] == [
        False,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("use", ["size", "modified_ms", "list_dir", "remove", "remove_tree", "sync_dir"])
def test_what_is_absent_is_not_found(place: Place, use: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(place.fs, use)(place.path("absent"))


def test_a_file_cannot_be_used_as_a_folder(place: Place) -> None:
    path = place.put("file")
    for use in (place.fs.list_dir, place.fs.sync_dir, place.fs.remove_tree):
        with pytest.raises(NotADirectoryError):
            use(path)
    with pytest.raises(FileExistsError):
        place.fs.make_dirs(path)
    assert place.fs.exists(path)


def test_rename_replaces_and_open_files_keep_what_they_had(place: Place) -> None:
    place.put("new", b"new")
    reader = place.fs.open(place.put("old", b"old"), OpenMode.READ)
    place.fs.rename(place.path("new"), place.path("old"))
    place.fs.sync_dir(place.folder)
    assert place.fs.list_dir(place.folder) == ["old"]
    assert (place.get("old"), reader.pread(3, 0)) == (b"new", b"old")
    reader.close()


def test_a_link_is_a_second_name_of_one_file(place: Place) -> None:
    place.fs.link(place.put("one", b"data"), place.path("two"))
    assert (place.fs.links_count(place.path("one")), place.get("two")) == (2, b"data")
    file = place.fs.open(place.path("two"), OpenMode.WRITE)
    file.pwrite([b"DA"], 0)
    file.close()
    assert place.get("one") == b"DAta"
    with pytest.raises(FileExistsError):
        place.fs.link(place.path("one"), place.path("two"))
    place.fs.remove(place.path("one"))
    assert (place.fs.links_count(place.path("two")), place.get("two")) == (1, b"DAta")


def test_rename_moves_folders_and_across_folders(place: Place) -> None:
    place.fs.make_dirs(place.path("flights-0"))
    place.fs.make_dirs(place.path("elsewhere"))
    place.put("flights-0/file", b"data")
    place.fs.rename(place.path("flights-0"), place.path("flights-0-delete"))
    place.fs.rename(place.path("flights-0-delete/file"), place.path("elsewhere/file"))
    assert place.fs.list_dir(place.folder) == ["elsewhere", "flights-0-delete"]
    assert place.get("elsewhere/file") == b"data"
    place.fs.rename(place.path("elsewhere/file"), place.path("elsewhere/file"))
    assert place.get("elsewhere/file") == b"data"


@pytest.mark.parametrize(
    ("source", "target", "error_number"),
    [
        ("absent", "x", errno.ENOENT),
        ("file", "absent/x", errno.ENOENT),
        ("file", "folder", errno.EISDIR),
        ("folder", "file", errno.ENOTDIR),
        ("empty", "folder", errno.ENOTEMPTY),
    ],
)
def test_renames_that_are_refused(place: Place, source: str, target: str, error_number: int) -> None:
    place.put("file")
    place.fs.make_dirs(place.path("empty"))
    place.fs.make_dirs(place.path("folder/below"))
    with pytest.raises(OSError) as caught:
        place.fs.rename(place.path(source), place.path(target))
    assert caught.value.errno == error_number
    assert place.fs.list_dir(place.folder) == ["empty", "file", "folder"]


def test_a_folder_replaces_an_empty_folder(place: Place) -> None:
    place.fs.make_dirs(place.path("full/below"))
    place.fs.make_dirs(place.path("empty"))
    place.fs.rename(place.path("full"), place.path("empty"))
    assert place.fs.list_dir(place.path("empty")) == ["below"]


def test_a_removed_file_lives_while_it_is_open(place: Place) -> None:
    file = place.fs.open(place.put("file", b"data"), OpenMode.WRITE)
    place.fs.remove(place.path("file"))
    assert not place.fs.exists(place.path("file"))
    file.pwrite([b"more"], 4)
    file.sync()
    assert file.pread(10, 0) == b"datamore"
    file.close()


def test_removing_folders(place: Place) -> None:
    place.fs.make_dirs(place.path("a/b"))
    place.put("a/file")
    place.put("a/b/file")
    with pytest.raises(IsADirectoryError):
        place.fs.remove(place.path("a"))
    place.fs.remove_tree(place.path("a"))
    assert place.fs.list_dir(place.folder) == []


def test_modified_ms_moves_forward(place: Place) -> None:
    path = place.put("file", b"data")
    before = place.fs.modified_ms(path)
    file = place.fs.open(path, OpenMode.WRITE)
    file.pwrite([b"x"], 0)
    file.close()
    assert place.fs.modified_ms(path) >= before >= 0


# Locks


def test_a_lock_is_held_once_and_leaves_its_file(place: Place) -> None:
    path = place.path(".lock")
    lock = place.fs.lock(path)
    for _ in range(2):  # a refused attempt must not weaken the lock
        with pytest.raises(BlockingIOError):
            place.fs.lock(path)
    assert place.fs.exists(path)
    lock.release()
    lock.release()
    again = place.fs.lock(path)
    lock.release()  # the old lock's second release does not free the new one
    with pytest.raises(BlockingIOError):
        place.fs.lock(path)
    again.release()


def test_locks_of_two_folders_are_two_locks(place: Place) -> None:
    for name in ("a", "b"):
        place.fs.make_dirs(place.path(name))
    first, second = place.fs.lock(place.path("a/.lock")), place.fs.lock(place.path("b/.lock"))
    first.release()
    second.release()


def test_a_lock_holds_where_its_file_was_removed(place: Place) -> None:
    lock = place.fs.lock(place.path(".lock"))
    place.fs.remove(place.path(".lock"))
    with pytest.raises(BlockingIOError):
        place.fs.lock(place.path(".lock"))
    lock.release()
    place.fs.lock(place.path(".lock")).release()


# Room


def test_allocated_bytes_are_zeros_and_what_was_there_stays(place: Place) -> None:
    file = place.fs.open(place.path("a"), OpenMode.REPLACE)
    file.pwrite([b"abc"], 0)
    file.allocate(10_000)
    assert file.size() == 10_000
    assert file.pread(5, 0) == b"abc\0\0"
    assert not any(file.pread(9_000, 1_000))
    file.allocate(5)
    file.allocate(0)
    assert file.size() == 10_000
    file.close()


def test_disk_usage(place: Place) -> None:
    usage = place.fs.disk_usage(place.folder)
    assert 0 < usage.free_bytes <= usage.total_bytes
    with pytest.raises(FileNotFoundError):
        place.fs.disk_usage(place.path("nowhere"))
