"""What a node takes hold of before its parts are made: its log directories, and the port of its metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.broker.node.core_settings import disk_limits
from replog.broker.node.environment import NodeEnvironment
from replog.config.server import ServerConfig
from replog.errors import ConfigError
from replog.extras import install_command
from replog.log import LogManager, RecoveryProgress

if TYPE_CHECKING:
    from replog.broker.metrics.service import MetricsService

_log = logging.getLogger(__name__)


def open_logs(
    config: ServerConfig, environment: NodeEnvironment, on_recovery: Callable[[RecoveryProgress], None] | None
) -> LogManager:
    """Opens every log directory and, after an unclean stop, recovers every log.

    A replica or a log directory that cannot be opened is offline, unless the node cannot go on without it.
    """
    logs = LogManager.open(
        environment.fs,
        config.log_dirs,
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        now_ms=environment.clock.wall_ms(),
        new_directory_id=environment.new_uuid,
        limits=disk_limits(config),
        recovery_threads=config.num_recovery_threads_per_data_dir,
        on_progress=on_recovery,
        monotonic_ms=environment.clock.now_ms,
        threads=environment.threads,
    )
    for path in logs.set_aside:
        _log.warning("%s: a newer one is in another log directory; remove it if it is not needed", path)
    for told in logs.finished_moves.told:
        _log.warning("%s", told)
    for path, error in logs.unopened.items():
        _log.critical("log directory %s is offline: %s", path, error)
    for (topic, partition_id), problem in logs.offline.items():
        _log.error("replica %s-%d cannot be opened: %s", topic, partition_id, problem)
    return logs


def open_metrics(config: ServerConfig) -> MetricsService | None:
    """Takes the port of the metrics, where they are wanted.

    Raises:
        ConfigError: The port cannot be bound, or the library is missing.
    """
    if config.metrics_listener is None:
        return None
    try:
        from replog.broker.metrics.service import MetricsService
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigError(
            "metrics.listener",
            str(config.metrics_listener),
            f"metrics.listener needs the library prometheus-client: {install_command('metrics')}, or leave the key out",
        ) from error
    return MetricsService(config.metrics_listener)
