"""Every Java that these tests start keeps its files where pytest removes them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kafka_install import KafkaInstall


def test_java_writes_nothing_into_the_system_s_temporary_folder(
    kafka: KafkaInstall, java_temporary_folder: Path
) -> None:
    """Note: libraries that Kafka unpacks stay behind when its process is killed."""
    shown = ["-XshowSettings:properties", "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run([kafka.java, *shown], capture_output=True, text=True, check=True)
    assert f"java.io.tmpdir = {java_temporary_folder}\n" in told.stderr
    assert re.search(r"\bUsePerfData\s*=\s*false\b", told.stdout)


def test_the_archive_of_classes_fits(kafka: KafkaInstall) -> None:
    """Else each JVM would do without it, and say nothing."""
    command = kafka.command("kafka.tools.StorageTool", "random-uuid", options=["-Xshare:on"])
    assert f"-XX:SharedArchiveFile={kafka.archive}" in command
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
