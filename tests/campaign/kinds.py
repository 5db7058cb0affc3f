"""What a campaign runs: a table.

A kind is a command.  In each of its jobs the words in braces are replaced: `{seed}` by a fresh number, `{count}` by how many units
(seeds, examples, faults) fit into the time of a job, `{choices}` by so many of the kind's choices, `{folder}` by a folder for what the job
writes.  Another slow check is another row, or a pytest test that is marked `campaign`: its file becomes a row by itself.
"""

from __future__ import annotations

import random
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.proven import ROOT, campaign_files

PYTHON = sys.executable
REPLOG = str(Path(sys.executable).with_name("replog"))
PYTEST = (PYTHON, "-m", "pytest", "-q", "--no-header")
PATHS = (".", "timeline", "quorum", "checkpoints", "chaos")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job.

    Attributes:
        name: What the summary and finds call it.
        command: The words of its command.
        unit_s: What one unit takes, in seconds; of a kind that draws nothing, the whole command.
        units: What a unit is.
        environment: Variables of the command; words in braces are replaced here too.
        choices: What `{choices}` are taken from.
        draws: Whether each job is another one; else it runs once in a campaign.
        grace_s: How long a job may take to put links, disks and processes in order when it is ended.
        repeat: The command that repeats one seed, if a find names it as `[seed N`.
    """

    name: str
    command: tuple[str, ...]
    unit_s: float
    units: str = "seeds"
    environment: Mapping[str, str] = field(default_factory=dict)
    choices: Sequence[str] = ()
    draws: bool = True
    grace_s: float = 30.0
    repeat: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A kind with all words filled in.

    Attributes:
        kind: What it is one of.
        command: The words of its command.
        environment: What its environment has besides.
        seed: The number that was drawn for it.
        count: How many units it runs.
        folder: Where it writes; gone when it has ended.
    """

    kind: Kind
    command: tuple[str, ...]
    environment: Mapping[str, str]
    seed: int
    count: int
    folder: Path

    @property
    def line(self) -> str:
        """The line for a shell in the repository's root that runs it again."""
        paths = f"PYTHONPATH={':'.join(PATHS)}"
        variables = (f"{name}={value}" for name, value in self.environment.items())
        command = (word.replace(str(self.folder), tempfile.gettempdir()) for word in self.command)
        return " ".join([paths, *variables, shlex.join(command)])


def make_job(kind: Kind, seed: int, duration_s: float, folder: Path) -> Job:
    """Fills in a kind's words.

    Args:
        kind: What is to be run.
        seed: The fresh number.
        duration_s: How long it may take, about; one unit at least is run.
        folder: Where the job may write.
    """
    count = max(1, int(duration_s / kind.unit_s)) if kind.draws else 1
    chosen = random.Random(seed).sample(kind.choices, min(count, len(kind.choices)))
    words = {"seed": seed, "count": count, "choices": ",".join(chosen), "folder": folder}
    command = tuple(word.format_map(words) for word in kind.command)
    environment = {name: value.format_map(words) for name, value in kind.environment.items()}
    return Job(kind, command, environment, seed, len(chosen) or count, folder)


def simulation(name: str, seed_s: float) -> Kind:
    """Returns a simulation of tests/sim, of whose seeds each takes so many seconds of CPU."""
    module = (PYTHON, "-m", f"tests.sim.{name}")
    return Kind(
        name,
        (*module, "--first", "{seed}", "--seeds", "{count}"),
        seed_s,
        grace_s=0.0,
        repeat=(*module, "--seed", "{seed}"),
    )


def tests(name: str, file: str, unit_s: float, units: str, **environment: str) -> Kind:
    """Returns a file of tests that takes from its environment how much it tries, and draws it anew."""
    return Kind(name, (*PYTEST, file, "--hypothesis-seed={seed}"), unit_s, units, environment)


PROPERTIES = {
    "client/groups/test_groups_classic.py": 0.5,
    "client/groups/test_groups_properties.py": 0.5,
    "controller/test_controller_properties.py": 2.0,
    "coordinator/test_classic_simulation.py": 2.0,
    "coordinator/test_mixed_simulation.py": 1.0,
    "kafka/test_kafka_any_request.py": 2.0,
    "log/test_log_compaction_history.py": 1.0,
    "log/test_log_crash.py": 1.0,
    "log/test_log_replica_move.py": 3.0,
    "metadata/test_metadata_image_records.py": 2.0,
    "metadata/test_metadata_loader.py": 0.5,
    "metadata/test_metadata_tree.py": 0.5,
    "records/test_records_fuzz.py": 1.0,
    "records/test_records_round_trip.py": 2.0,
    "rpc/test_rpc_metadata_records.py": 1.0,
    "spark/test_spark_arrow_batches.py": 1.0,
    "spark/test_spark_json_decoder.py": 3.0,
    "timeline/test_timeline_model.py": 1.0,
}
"""Files of tests/unit whose usual examples are few (`tests.random_examples`), and what these take, in seconds."""


def kinds() -> list[Kind]:
    """Returns all kinds: first those that draw anew each time, then what runs once."""
    from replog_chaos.faults import FAULTS

    chaos = (REPLOG, "chaos", "run", "--report", "{folder}/chaos.html", "--faults", "{choices}")
    faults = tuple(FAULTS)
    drawing = [
        simulation("quorum_simulation", 0.035),
        simulation("controller_simulation", 0.03),
        simulation("metadata_cluster_simulation", 0.4),
        simulation("data_cluster_simulation", 0.8),
        simulation("one_machine_simulation", 0.5),
        simulation("blackout_simulation", 0.4),
        simulation("fresh_ends_simulation", 0.7),
        simulation("kafka_simulation", 1.5),
        simulation("group_simulation", 1.5),
        simulation("group_transactions", 1.5),
        simulation("transaction_simulation", 2.5),
        simulation("orderly_stops_simulation", 1.0),
        simulation("disk_damage_simulation", 6.0),
        Kind("group_day", (PYTHON, "-m", "tests.sim.group_day", "--seed", "{seed}", "--hours", "{count}"), 30, "hours"),
        Kind("chaos", chaos, 12, "faults", choices=faults),
        Kind("chaos over TCP", (*chaos, "--transport", "tcp"), 12, "faults", choices=faults),
        Kind("chaos with librdkafka", (*chaos, "--kafka"), 12, "faults", choices=faults),
        *(
            Kind(
                f"chaos groups, {members}",
                (REPLOG, "chaos", "groups", "--members", members, "--restarts", "{count}"),
                5,
                "restarts",
            )
            for members in ("replog", "confluent", "confluent-classic")
        ),
        *(
            Kind(
                f"chaos transactions, {clients}",
                (REPLOG, "chaos", "transactions", "--clients", clients, "--rounds", "{count}"),
                180,
                "rounds",
            )
            for clients in ("librdkafka", "replog")
        ),
        tests(
            "bytes at Kafka's port", "tests/kafka/test_kafka_port_fuzz.py", 0.05, "inputs", REPLOG_KAFKA_FUZZ="{count}"
        ),
        tests(
            "logins at Kafka's port",
            "tests/kafka/test_kafka_login_fuzz.py",
            0.7,
            "conversations",
            REPLOG_LOGIN_FUZZ="{count}",
        ),
        tests(
            "bit flips",
            "tests/unit/log/test_log_bit_flips.py",
            0.025,
            "bits",
            REPLOG_BIT_FLIPS="{count}",
            REPLOG_SEED="{seed}",
        ),
        tests(
            "log model",
            "tests/unit/log/test_log_model.py::TestLogModel",
            0.1,
            "examples",
            REPLOG_MODEL_EXAMPLES="{count}",
        ),
        tests("crash points", "tests/unit/log/test_log_crash_points.py", 25, "rounds", REPLOG_SEED="{seed}"),
        tests(
            "Kafka's messages",
            "tests/unit/kafka/test_kafka_messages.py",
            0.3,
            "examples of each",
            REPLOG_KAFKA_EXAMPLES="{count}",
            REPLOG_SEED="{seed}",
        ),
        *(
            tests(
                f"examples of {file}",
                f"tests/unit/{file}",
                unit_s,
                "times the usual ones",
                REPLOG_EXAMPLES="{count}",
                REPLOG_SEED="{seed}",
            )
            for file, unit_s in PROPERTIES.items()
        ),
    ]
    # so that a short campaign gets to most of them
    return sorted(drawing, key=lambda kind: kind.unit_s) + _once()


def _once() -> list[Kind]:
    """Returns what draws nothing: once in a campaign is enough."""
    interrupts = "tests/unit/local/test_local_interrupted_steps.py"
    all_steps = {"REPLOG_INTERRUPT_STEPS": "all"}
    steps = Kind("interrupted steps", (*PYTEST, interrupts), 60, "runs", all_steps, draws=False)
    matrix = "tests/unit/log/test_log_damage_matrix.py"
    damage = Kind("damaged files", (*PYTEST, matrix), 20, "runs", {"REPLOG_DAMAGE": "all"}, draws=False)
    marked = (
        Kind(file.removeprefix("tests/"), (*PYTEST, "-m", "campaign", file), 60, "runs", draws=False)
        for file in campaign_files(ROOT)
    )
    return [steps, damage, *marked]
