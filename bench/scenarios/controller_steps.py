"""How long does the largest request of each kind hold the controller's event loop?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.controllers import ControllerSystem, TimedController, controllers
from replog.controller.request_parts import divided
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterPartitionReassignments,
    ClientChange,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    NewPartitions,
    NewTopic,
    Reassignment,
)
from replog.metadata.records import ElectionType, ResourceType

BROKERS = 4
STEP_MS = Metric("step_ms", "ms")
TOPIC = "large"


class ControllerStepsScenario(Scenario[ControllerSystem]):
    """The longest part of a request of the size that is allowed, of a controller whose commits take no time.

    One that names many things comes in parts (`replog.controller.request_parts`).  Nearly all of a part is one step of the core, in which the node's event loop does nothing else.  The encoding of the records
    for the log comes on top.

    Args:
        partitions: of the topic that is made; 9,999 is what one request may make.
    """

    name = "controller-steps"
    question = "How long does the largest request of each kind hold the controller's event loop?"

    def __init__(self, partitions: int = 9_999) -> None:
        self._partitions = partitions

    def systems(self) -> Sequence[ControllerSystem]:
        return controllers()[:1]

    def cases(self) -> Sequence[Params]:
        return [{"request": request, "partitions": self._partitions} for request in self._requests()]

    def measure(self, system: ControllerSystem, params: Params, meter: Meter) -> Measured:
        controller = system.new_controller(0, BROKERS)
        before, request = self._requests()[str(params["request"])]
        for each in before:
            controller.ask(each)
        divided_request = divided(request, controller.elections_needed)
        longest_s = 0.0
        for part in (request,) if divided_request is None else divided_request.requests:
            with meter.timed() as timing:
                controller.ask(part)
            longest_s = max(longest_s, timing.wall_s)
        self._check(controller, request)
        return {STEP_MS: longest_s * 1e3}

    def _requests(self) -> dict[str, tuple[Sequence[ClientChange], ClientChange]]:
        """What is asked first, and what is measured."""
        count = self._partitions
        create = CreateTopics((NewTopic(TOPIC, count, 3),))
        led_by_second = NewTopic(TOPIC, assignments=((2, 1, 3),) * count)
        names = [f"small-{number}" for number in range(count // 2)]
        create_small = CreateTopics(tuple(NewTopic(name, 1, 3) for name in names))
        moves = tuple(Reassignment(TOPIC, number, (1, 2, 4)) for number in range(count))
        reassign = AlterPartitionReassignments(moves)
        elect = ElectLeaders(ElectionType.PREFERRED)
        return {
            "create a topic": ((), create),
            "let a topic grow": ((create,), CreatePartitions((NewPartitions(TOPIC, 2 * count),))),
            "delete a topic": ((create,), DeleteTopics((TOPIC,))),
            "create topics": ((), create_small),
            "configure topics": ((create_small,), _configured(names, "retention.ms", "5")),
            "delete topics": ((create_small,), DeleteTopics(tuple(names))),
            "reassign": ((create,), reassign),
            "configure elections": ((create_small,), _configured(names, "min.insync.replicas", "2")),
            "elect leaders": ((CreateTopics((led_by_second,)), reassign), elect),
        }

    def _check(self, controller: TimedController, request: ClientChange) -> None:
        if isinstance(request, CreateTopics | DeleteTopics):
            expected = len(request.topics) if isinstance(request, CreateTopics) else 0
            if controller.topics_count != expected:
                raise WrongResultError(f"{controller.topics_count} topics instead of {expected}")


def _configured(names: Sequence[str], key: str, value: str) -> AlterConfigs:
    configs = (AlterableConfig(key, ConfigOperation.SET, value),)
    return AlterConfigs(tuple(AlterConfigsResource(ResourceType.TOPIC, name, configs) for name in names))


SCENARIO = ControllerStepsScenario()
