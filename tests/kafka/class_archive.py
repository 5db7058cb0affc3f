"""An archive of the classes that Kafka's nodes, tools and clients load, for all JVMs of an installation (class-data sharing).

Half of what a JVM costs in its first seconds is finding classes in jars, reading and verifying them.  The archive holds those
of one short life of a node, as they are in memory.  Where it does not fit, the JVM says nothing and takes the jars.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.kafka.kafka_install import KafkaInstall, cache_folder, only_one_process
from tests.kafka.kafka_node import KafkaNode, clients_of

DUMP_TIMEOUT_S = 240
TOPIC, COUNT = "seen", 7


def make_archive(kafka: KafkaInstall) -> None:
    """Makes the archive of an installation where it has none; a JVM that cannot make one goes without."""
    if not kafka.archive.exists():
        with only_one_process(cache_folder() / "lock"):
            if not kafka.archive.exists():
                with tempfile.TemporaryDirectory(dir=kafka.archive.parent, prefix="making-") as beside:
                    _make(kafka, Path(beside))


def _make(kafka: KafkaInstall, folder: Path) -> None:
    _live(replace(kafka, options=(f"-XX:DumpLoadedClassList={folder}/%p.loaded",)), folder)
    loaded = {line for path in folder.glob("*.loaded") for line in path.read_text().splitlines(keepends=True)}
    (folder / "all.txt").write_text("".join(sorted(loaded)))
    made = folder / "made.jsa"
    options = ["-Xshare:dump", f"-XX:SharedClassListFile={folder}/all.txt", f"-XX:SharedArchiveFile={made}"]
    command = [kafka.java, *options, "-XX:+UseSerialGC", "-cp", kafka.class_path]
    done = subprocess.run(command, capture_output=True, check=False, timeout=DUMP_TIMEOUT_S)
    if done.returncode == 0 and made.exists():
        made.rename(kafka.archive)


def _live(kafka: KafkaInstall, folder: Path) -> None:
    """Has a node, its tool for storage and its clients do a little of each thing."""
    node = KafkaNode(kafka, folder / "node")
    try:
        node.start()
        with clients_of(node) as clients:
            clients.create(TOPIC)
            clients.produce(TOPIC, 0, [(1, None, b"x", ())] * COUNT)
            clients.consume(TOPIC, 0)
            clients.read_as_member("readers", "classic", TOPIC, COUNT)
        node.stop()
    finally:
        node.give_up()
        kafka.close()
