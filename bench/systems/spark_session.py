"""One local Spark session for all systems, and the CPU time of its processes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.systems.maven import PeerUnavailableError, jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2


@cache
def session() -> SparkSession:
    """The session of this process, made where there is none; its JVM ends with the process."""
    from pyspark.sql import SparkSession

    from replog.spark.source import ReplogDataSource

    found = SparkSession.getActiveSession() or _new_session()
    found.dataSource.register(ReplogDataSource)
    return found


def _new_session() -> SparkSession:
    from pyspark.sql import SparkSession

    import replog.spark

    replog.spark.prepare(is_local=True)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("replog-bench")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.shuffle.partitions", str(CORES)).config("spark.driver.memory", "2g")
    builder = builder.config("spark.executorEnv.PYTHONPATH", ":".join(filter(None, sys.path)))
    if (connector := _connector()) is not None:
        builder = builder.config("spark.jars", ",".join(map(str, connector)))
    return builder.getOrCreate()


def _connector() -> Sequence[Path] | None:
    try:
        return jars("spark-kafka")
    except PeerUnavailableError:
        return None


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time, in seconds."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def all_s(self) -> float:
        return self.user_s + self.system_s

    def __add__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.user_s + other.user_s, self.system_s + other.system_s)

    def __sub__(self, other: CpuTime) -> CpuTime:
        return CpuTime(self.user_s - other.user_s, self.system_s - other.system_s)


def cpu_times(broker_ids: Sequence[int]) -> Mapping[str, CpuTime]:
    """CPU time so far of the brokers, of Spark's JVM, and of the Python processes that it has started.

    Spark ends Python processes that had nothing to do for a minute; what those have used may be missing then.
    """
    jvms = _jvms()
    workers = sum((_children_cpu(jvm) for jvm in jvms), CpuTime())
    for each in (child for jvm in jvms for child in jvm.children(recursive=True)):
        workers += _own_cpu(each) + _children_cpu(each)
    return {
        "brokers": sum((_own_cpu(psutil.Process(each)) for each in broker_ids), CpuTime()),
        "workers": workers,
        "jvm": sum((_own_cpu(jvm) for jvm in jvms), CpuTime()),
    }


def _jvms() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended
            if "org.apache.spark.deploy.SparkSubmit" in each.cmdline():
                found.append(each)
    return found


def _own_cpu(process: psutil.Process) -> CpuTime:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return CpuTime(times.user, times.system)
    return CpuTime()


def _children_cpu(process: psutil.Process) -> CpuTime:
    """CPU time of the children that have ended, and of theirs."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return CpuTime(times.children_user, times.children_system)
    return CpuTime()
