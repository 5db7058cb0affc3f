"""A node killed under one of Kafka's clients, at Apache Kafka's brokers and at replog's."""

from __future__ import annotations

import time

from bench.model import WrongResultError
from bench.systems.brokers import FailoverReport, FailoverSystem, Killed
from bench.systems.kafka.clients import KafkaClientSystem

TIMEOUT_S = 120.0
POLL_S = 0.005


class KafkaClientFailover(KafkaClientSystem, FailoverSystem):
    """The producer has the defaults of its client: no setting but the brokers' addresses.  Both wait for all replicas."""

    def durability(self) -> str:
        doubles = "not idempotent" if self._kind.doubles_by_default else "idempotent"
        return f"{self._brokers.durability()}, {doubles}"

    def fail_over(self, killed: Killed, *, rate_per_s: float, before_s: float, after_s: float) -> FailoverReport:
        topic, victim = self._brokers.create_led_topic(killed)
        self.client.ask("producer", topic)
        self.client.ask("steady-begin", rate_per_s)
        time.sleep(before_s)
        killed_s = self._kill_under(victim)
        time.sleep(after_s)
        self.client.ask("steady-end", self.client.answer_file)
        told = [(int(offset), float(at_s)) for offset, at_s in self.client.read_lines()]
        self.client.ask("producer-close")
        with self.consumer(topic):
            self.client.ask("dump", self.client.answer_file)
        values = {int(offset): value.encode() for offset, value in self.client.read_lines()}
        self._brokers.bring_back(victim, topic)
        self.delete_topic(topic)
        if refused := sum(offset < 0 for offset, _ in told):
            raise WrongResultError(f"{self.name}: the client gave up {refused} of {len(told)} records")
        return FailoverReport(
            acks_s=[at_s for _, at_s in told],
            killed_s=killed_s,
            sent=[b"value %d" % number for number in range(len(told))],
            found=[values.get(offset) for offset, _ in told],
            found_count=len(values),
            may_double=self._kind.doubles_by_default,
        )

    def _kill_under(self, victim: int) -> float:
        """Kills a node; returns when, once a record that was sent after it is acknowledged."""
        killed_s = time.monotonic()
        sent, _ = map(int, self.client.ask("steady-seen"))
        self._brokers.kill(victim)
        while True:
            _, highest = map(int, self.client.ask("steady-seen"))
            if highest > sent:
                return killed_s
            if time.monotonic() - killed_s > TIMEOUT_S:
                raise WrongResultError(f"{self.name}: no acknowledgement {TIMEOUT_S:.0f} s after the kill")
            time.sleep(POLL_S)
