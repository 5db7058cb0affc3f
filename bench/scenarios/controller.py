"""How many requests does the active controller answer while commits take their time?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.controllers import ControllerSystem, controllers
from replog.controller.requests import CreateTopics, CreateTopicsResponse, NewTopic
from replog.errors import ErrorCode

COMMIT_MS = 2.0
BROKERS = 3
REQUESTS_PER_S = Metric("requests_per_s", "1/s")
CPU_US_PER_REQUEST = Metric("cpu_us_per_request", "µs")


class ControllerScenario(Scenario[ControllerSystem]):
    """Creates topics of one partition, one topic a request; a commit takes 2 ms of wall time by a real timer.

    Args:
        pipelined_count: how many requests one repetition makes of the pipelined controller.
        naive_count: how many of the one that waits for every commit: fewer, since each takes a commit's time.
    """

    name = "controller"
    question = "How many requests does a controller answer when a commit takes 2 ms?"

    def __init__(self, pipelined_count: int = 20_000, naive_count: int = 500) -> None:
        self._pipelined_count = pipelined_count
        self._naive_count = naive_count

    def systems(self) -> Sequence[ControllerSystem]:
        return controllers()

    def cases(self) -> Sequence[Params]:
        return [{"commit_ms": COMMIT_MS, "replicas": replicas} for replicas in (1, 3)]

    def measure(self, system: ControllerSystem, params: Params, meter: Meter) -> Measured:
        count = self._naive_count if system.in_flight == 1 else self._pipelined_count
        requests = tuple(
            CreateTopics((NewTopic(f"topic-{number}", 1, int(params["replicas"])),)) for number in range(count)
        )
        controller = system.new_controller(float(params["commit_ms"]), BROKERS)
        with meter.timed() as timing:
            answers = controller.ask_all(requests, system.in_flight)
        for answer in answers:
            if not isinstance(answer, CreateTopicsResponse) or answer.topics[0].error is not ErrorCode.NONE:
                raise WrongResultError(f"{system.name} answered {answer}")
        if controller.topics_count != count:
            raise WrongResultError(f"{system.name} holds {controller.topics_count} topics instead of {count}")
        return {REQUESTS_PER_S: count / timing.wall_s, CPU_US_PER_REQUEST: timing.cpu_s / count * 1e6}


SCENARIO = ControllerScenario()
