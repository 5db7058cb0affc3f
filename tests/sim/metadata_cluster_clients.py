"""Who uses a simulated metadata cluster: clients that change topics, and an operator that changes the voters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    ClientChange,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    NewTopic,
)
from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.metadata.records import ResourceType
from replog.rpc.node_messages import AddVoterRequest, RemoveVoterRequest
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_cluster import SimulatedClient, SimulatedCluster
from tests.sim.metadata_cluster_checks import Checker, Outcome, TopicHistory, Violation

REQUEST_TIMEOUT_MS = 3_000
GHOST_S = 1.9
"""After this long an earlier attempt of the same request may still be on its way, and be carried out later."""

TOO_MANY = 100
RETRY_S = 0.2


class TopicClient:
    """Creates topics of its own, changes them, deletes some; one after the other, one request at a time."""

    def __init__(self, number: int, cluster: SimulatedCluster, checker: Checker, rng: Random, pause_s: float) -> None:
        self._number = number
        self._cluster = cluster
        self._checker = checker
        self._rng = rng
        self._pause_s = pause_s
        self._client = cluster.client(f"client-{number}")

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Until everything heals."""
        count = 0
        while not is_over():
            count += 1
            topic = TopicHistory(f"topic-{self._number}-{count}")
            self._checker.topics.append(topic)
            await self._live(topic)

    async def _live(self, topic: TopicHistory) -> None:
        """The life of a topic; ends where the client does not know any more."""
        rng = self._rng
        replication_factor = TOO_MANY if rng.random() < 0.1 else 1
        request = CreateTopics((NewTopic(topic.name, rng.randrange(1, 4), replication_factor),))
        topic.changed("present", await self._ask(request))
        for step in range(rng.randrange(4)):
            if topic.may_be != {"present"} or not topic.is_certain:
                return
            value = str(1_000_000 + step)
            topic.set_value(value, await self._ask(alter_topic(topic.name, "retention.ms", value)))
        if topic.may_be == {"present"} and topic.is_certain and rng.random() < 0.5:
            topic.changed("absent", await self._ask(DeleteTopics((topic.name,))))

    async def _ask(self, request: ClientChange) -> Outcome:
        await asyncio.sleep(self._rng.uniform(0, 2 * self._pause_s))
        node_id = self._rng.choice(list(self._cluster.nodes))
        began = self._cluster.loop.time()
        outcome = await outcome_of(self._client, node_id, request)
        if self._cluster.loop.time() - began > GHOST_S:
            outcome = Outcome.UNKNOWN
        self._checker.seen[f"{type(request).__name__} {outcome.value}"] += 1
        return outcome


class VoterOperator:
    """Takes votes away and gives them back, one at a time; a voter of which the outcome is not known is left alone."""

    def __init__(self, cluster: SimulatedCluster, checker: Checker, rng: Random) -> None:
        self._cluster = cluster
        self._checker = checker
        self._rng = rng
        self._client = cluster.client("operator")
        self._unknown: set[int] = set()

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Until everything heals."""
        while not is_over():
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
            voter_id = self._rng.choice([c for c in self._cluster.controllers if c not in self._unknown] or [0])
            if voter_id:
                await self._change(voter_id)

    async def restore(self, until_s: float) -> None:
        """Everybody votes again.

        Raises:
            Violation: that took too long.
        """
        for voter_id in self._cluster.controllers:
            while any(voter_id not in node.quorum_status.voters for node in self._cluster.running):
                if self._cluster.loop.time() > until_s:
                    raise Violation(f"stuck: voter {voter_id} does not get its vote back")
                self._checker.votes[voter_id] = {True, False}
                await self._add(voter_id)
                await asyncio.sleep(RETRY_S)
            self._checker.votes[voter_id] = {True}

    async def _change(self, voter_id: int) -> None:
        votes = self._checker.votes.setdefault(voter_id, {True})
        adds = votes == {False}
        outcome = await (self._add(voter_id) if adds else self._ask(RemoveVoterRequest(voter_id)))
        self._checker.seen[f"{'AddVoter' if adds else 'RemoveVoter'} {outcome.value}"] += 1
        match outcome:
            case Outcome.DONE:
                self._checker.votes[voter_id] = {adds}
            case Outcome.UNKNOWN:
                self._checker.votes[voter_id] = {True, False}
                self._unknown.add(voter_id)
            case Outcome.NOT_DONE:
                pass

    async def _add(self, voter_id: int) -> Outcome:
        node = self._cluster.nodes[voter_id].node
        if node is None:
            return Outcome.NOT_DONE
        return await self._ask(AddVoterRequest(voter_id, node.directory_id, self._cluster.nodes[voter_id].address))

    async def _ask(self, request: AddVoterRequest | RemoveVoterRequest) -> Outcome:
        node_id = self._rng.choice(list(self._cluster.nodes))
        try:
            await self._client.connection(node_id).call(request, timeout_ms=REQUEST_TIMEOUT_MS)
        except InvalidRequestError:
            return Outcome.NOT_DONE
        except ConnectionLostError as error:
            return Outcome.NOT_DONE if error.refused else Outcome.UNKNOWN
        except ReplogError:
            return Outcome.UNKNOWN
        return Outcome.DONE


def alter_topic(name: str, key: str, value: str) -> AlterConfigs:
    return AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, name, (AlterableConfig(key, value=value),)),))


async def outcome_of(client: SimulatedClient, node_id: int, request: ClientChange) -> Outcome:
    """What the client knows after it has asked.

    A topic that exists was made by an earlier attempt of the same request: its name is unique.  That is known for
    certain, as answers wait until what they say has committed.
    """
    try:
        response = await client.ask(node_id, request, timeout_ms=REQUEST_TIMEOUT_MS)
    except InvalidRequestError:
        return Outcome.NOT_DONE
    except ConnectionLostError as error:
        return Outcome.NOT_DONE if error.refused else Outcome.UNKNOWN
    except ReplogError:
        return Outcome.UNKNOWN
    match response:
        case CreateTopicsResponse(topics=(result,)):
            done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        case DeleteTopicsResponse(topics=(result,)):
            done = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        case AlterConfigsResponse(resources=(result,)):
            done = (ErrorCode.NONE,)
        case _:
            raise Violation(f"{request} was answered with {response}")
    return Outcome.DONE if result.error in done else Outcome.NOT_DONE
