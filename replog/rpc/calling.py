"""How a node is called, whatever carries the calls; the counterpart of `replog.rpc.serving`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from replog.controller.requests import ControllerRequest, ControllerResponse
from replog.rpc import calls
from replog.rpc.node_requests import NodeRequest, NodeResponse


class CallingConnection(ABC):
    """The calls of a connection; the class that inherits carries their bytes.  See `replog.rpc.transport.NodeConnection`."""

    async def call(
        self, request: NodeRequest, *, timeout_ms: int, cluster_id: str = "", forwarded: bool = False
    ) -> NodeResponse:
        data = calls.encode_node_request(request, cluster_id=cluster_id, timeout_ms=timeout_ms, forwarded=forwarded)
        return calls.decode_node_response(await self._carry_call(data, timeout_ms))

    async def controller_call(
        self, request: ControllerRequest, *, timeout_ms: int, cluster_id: str = ""
    ) -> ControllerResponse:
        data = calls.encode_controller_request(request, cluster_id=cluster_id, timeout_ms=timeout_ms)
        return calls.decode_controller_response(await self._carry_controller_call(data, timeout_ms))

    @abstractmethod
    async def _carry_call(self, data: bytes, timeout_ms: int) -> bytes:
        """Returns the answer of the node to a call.

        Raises:
            ConnectionLostError: The node did not answer in time, or cannot be reached.
            MalformedFrameError: The call is too large to be sent.
        """

    @abstractmethod
    async def _carry_controller_call(self, data: bytes, timeout_ms: int) -> bytes:
        """Returns the answer to a call to the controller; raises as `_carry_call`."""
