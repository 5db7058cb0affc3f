"""The controller of the cluster: brokers, topics, leaders, configurations, as one pure core over the metadata log."""

from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller, ControllerStatus

__all__ = ["Controller", "ControllerConfig", "ControllerStatus"]
