"""The settings of models: their copies, their scheduler and what bounds its queues. Kernels are another matter."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from server.configuration.section import MODEL_NAME_PATTERN, Device, Scalar, Section

SchedulerWord = Literal["", "sequence", "dynamic"]
MAX_RESOURCES: Final = 64
MAX_INSTANCES: Final = 64
ROLES: Final = frozenset({"live", "final", "none"})
"""Names that no model of ``[[models]]`` may have."""


class InstanceGroup(Section):
    """Copies of a model on one device."""

    device: Device = "auto"
    """Where they run; with several CUDA devices ``auto`` spreads them."""
    count: int = Field(default=1, ge=1, le=MAX_INSTANCES)
    """Loaded copies."""
    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads of each; 0 shares the machine's cores among the instances of all models."""


def _is_groups(value: object) -> str:
    return "groups" if isinstance(value, list | tuple) else "number"


Instances = Annotated[
    Annotated[int, Field(ge=1, le=MAX_INSTANCES), Tag("number")]
    | Annotated[tuple[InstanceGroup, ...], Field(max_length=MAX_INSTANCES, strict=False), Tag("groups")],
    Discriminator(_is_groups),
]
INSTANCES_WORDS: Final = f"an integer from 1 to {MAX_INSTANCES}, or a list of tables with device, count and threads"
Sizes = tuple[Annotated[int, Field(ge=1, le=4096)], ...]
Resources = dict[str, Annotated[int, Field(ge=1, le=1_000_000)]]


class ModelSection(Section):
    """What every model has."""

    model: str = Field(min_length=1)
    """Name in the model registry."""
    scheduler: SchedulerWord = ""
    """Which batcher it gets: ``sequence`` for a model that keeps state between requests, ``dynamic`` for one that keeps
    none. Empty: as the model declares; one that declares nothing does not start without this. What is said here and
    declared there is checked by a probe: the wrong one is refused."""
    allow_wrong_scheduler: bool = False
    """Serves the model under a scheduler that contradicts what it declares or what the probe found: answers are wrong
    then, without an error. For the demo alone; it is shouted in logs, metrics and ``/v1/models``."""
    instances: Instances = 1
    """Loaded copies. A list places them: ``[{device = "cuda:0", count = 2}, {device = "cpu", count = 1}]``."""
    device: Device = "auto"
    """Where the instances run, where ``instances`` is a number; with several CUDA devices ``auto`` spreads them."""
    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads of each instance, where ``instances`` is a number; 0 shares the machine's cores among the instances
    of all models."""
    optimize: Literal["none", "compile", "cuda-graph", "int8", "bf16"] = "none"
    """Other kernels for the same answers, up to rounding; it never changes which requests share a batch. What a model
    does not have on its device is refused."""
    resources: Resources = Field(default={}, max_length=MAX_RESOURCES)
    """What a batch takes of ``[resources]`` while it runs: models that share one take turns."""
    resource_priority: int = Field(default=1, ge=1, le=1000)
    """Its weight where models wait for the same resource: 1 goes first, 2 gets half the turns of 1, and so on."""
    preferred_sizes: Sizes = Field(default=(), max_length=64, strict=False)
    """Batch sizes that run at once when they can be had, the largest first; others wait for the maximum delay. The
    sequence batcher has them for strategy ``oldest`` alone."""
    options: dict[str, Scalar] = Field(default={})
    """Settings of the model itself; the model checks them."""

    @model_validator(mode="after")
    def _places_said_once(self) -> "ModelSection":
        if self.instances == ():
            raise ValueError("instances is empty, allowed: at least one place")
        if not isinstance(self.instances, int) and (self.device != "auto" or self.threads):
            raise ValueError("instances is a list of places, so that device and threads belong in its tables")
        if self.n_instances > MAX_INSTANCES:
            raise ValueError(f"instances are {self.n_instances} in all, allowed: at most {MAX_INSTANCES}")
        return self

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """The instances by place."""
        if isinstance(self.instances, int):
            return (InstanceGroup(device=self.device, count=self.instances, threads=self.threads),)
        return self.instances

    @property
    def n_instances(self) -> int:
        """All of them."""
        return sum(group.count for group in self.groups)


class LiveConfig(ModelSection):
    """The live model: stateful, under the sequence batcher."""

    model: str = Field(default="moonshine-live", min_length=1)
    """Name in the model registry."""
    instances: Instances = 2
    """Loaded copies; a stream stays on one of them. On a CPU two of one thread hold twice the streams of one of two. A
    list places them: ``[{device = "cuda:0", count = 2}, {device = "cpu", count = 1}]``."""
    slots: int = Field(default=0, ge=0, le=65_536)
    """Live sequences per instance; 0 takes ``load_fraction`` of what a measurement at warm-up allows in real time."""
    max_slots: int = Field(default=1024, ge=1, le=65_536)
    """Upper limit of ``slots``, measured or given: it bounds the memory that state takes."""
    load_fraction: float = Field(default=0.8, gt=0.0, le=1.0)
    """Part of the measured real-time streams that is offered as slots."""
    strategy: Literal["oldest", "direct"] = "oldest"
    """How a step reads its slots: ``oldest`` gathers the rows that are ready, the longest waiting first; ``direct``
    runs over neighbouring slots as they lie, with a mask. The text is the same."""
    max_batch: int = Field(default=64, ge=1, le=4096)
    """Rows of one step at most."""
    max_delay_ms: float = Field(default=10.0, ge=0.0, le=1000.0)
    """Time a ready tick may wait for company in its batch."""
    min_slot_utilisation: float = Field(default=0.0, ge=0.0, le=1.0)
    """With ``direct``: part of its slots from which a step waits no longer; 0: of ``max_batch`` alone."""
    max_ticks: int = Field(default=1, ge=1, le=16)
    """Ticks of a sequence that is late which one step may read; the text is the same as one by one. A model that reads
    one tick at a time gets them one by one within the step."""
    deadline_ms: float = Field(default=0.0, ge=0.0, le=60_000.0)
    """Time after its audio is there within which a tick should be answered: rows run by deadline, and none waits for
    company beyond it. 0: in the order in which they became ready."""
    flush_deadline_ms: float = Field(default=0.0, ge=0.0, le=60_000.0)
    """The same for what ends an utterance or a stream; 0: as ``deadline_ms``."""
    lead_ms: float = Field(default=0.0, ge=0.0, le=1000.0)
    """Time before the expected end of a step at which an instance's next one is formed, so that it begins without a
    pause. 0: it is formed when the last one is back."""
    max_queued_s: float = Field(default=10.0, ge=1.0, le=600.0)
    """Audio of one sequence that may wait for its turn; after it the client's messages are not read on."""
    backlog: int = Field(default=0, ge=0, le=65_536)
    """Streams that may wait for a slot, told their place (Queued). 0: a full service refuses with 503."""
    backlog_wait_s: float = Field(default=0.0, ge=0.0, le=86_400.0)
    """Time that a stream may wait for its slot; then it ends with ``backlog_timeout``. 0: without limit."""

    @model_validator(mode="after")
    def _slots_within_limit(self) -> "LiveConfig":
        if self.slots > self.max_slots:
            raise ValueError(f"slots is {self.slots}, allowed: at most max_slots, which is {self.max_slots}")
        _check_backlog(self.backlog, self.backlog_wait_s)
        return self


class FinalConfig(ModelSection):
    """The final model: stateless, under the dynamic batcher. Recordings are read by it too."""

    model: str = Field(default="moonshine-base", min_length=1)
    """Name in the model registry; ``none`` makes the live text the final text."""
    target_size: int = Field(default=2, ge=1, le=1024)
    """Requests of a batch: it starts when so many wait … Few tell finals sooner on a CPU, many use a GPU better."""
    window_ms: float = Field(default=20.0, ge=0.0, le=10_000.0)
    """… or when the oldest has waited this long, whichever comes first."""
    max_queued: int = Field(default=1024, ge=1, le=1_000_000)
    """Utterances that may wait; above it the live text becomes the final text, and is counted."""
    timeout_ms: float = Field(default=0.0, ge=0.0, le=3_600_000.0)
    """Time that an utterance may wait for its batch; 0: without limit."""
    timeout_action: Literal["reject", "delay"] = "reject"
    """What happens then: ``reject`` makes the live text the final text, ``delay`` lets all others go first."""
    recordings_max_queued: int = Field(default=256, ge=0, le=1_000_000)
    """Pieces of recordings that may wait, behind all utterances of live streams; 0: recordings are refused."""
    max_batch_s: float = Field(default=120.0, ge=30.0, le=3600.0)
    """Padded audio of one batch at most: requests times the longest of them."""
    sentiment: str = ""
    """Name of the model of ``[[models]]`` that tells how finals and recordings sound, to clients that ask for it;
    empty: none does, and asking is refused."""

    @property
    def enabled(self) -> bool:
        """Whether there is a second pass at all."""
        return self.model != "none"


class TensorModelConfig(ModelSection):
    """A further model, which takes tensors: reached under its name at ``/v2/models``. What is for one batcher alone is
    refused where it has the other."""

    name: str = Field(pattern=MODEL_NAME_PATTERN)
    """What clients call it."""
    strategy: Literal["oldest", "direct"] = "oldest"
    """Sequence batcher: as of ``live``."""
    slots: int = Field(default=8, ge=1, le=65_536)
    """Sequence batcher: live sequences per instance."""
    max_batch: int = Field(default=8, ge=1, le=4096)
    """Rows of one batch at most."""
    max_delay_ms: float = Field(default=0.0, ge=0.0, le=10_000.0)
    """Time that a request may wait for company."""
    min_slot_utilisation: float = Field(default=0.0, ge=0.0, le=1.0)
    """Sequence batcher with ``direct``: as of ``live``."""
    deadline_ms: float = Field(default=0.0, ge=0.0, le=60_000.0)
    """Time within which a request should be answered: those nearest to it go first. 0: none."""
    idle_timeout_s: float = Field(default=60.0, ge=0.0, le=86_400.0)
    """Sequence batcher: time without a request after which a sequence ends; 0: never."""
    max_queued_turns: int = Field(default=64, ge=1, le=65_536)
    """Sequence batcher: requests of one sequence that may wait."""
    backlog: int = Field(default=0, ge=0, le=65_536)
    """Sequence batcher: sequences that may wait for a slot."""
    backlog_wait_s: float = Field(default=0.0, ge=0.0, le=86_400.0)
    """Sequence batcher: time that a sequence may wait for its slot; 0: without limit."""
    max_queued: int = Field(default=1024, ge=1, le=1_000_000)
    """Dynamic batcher: requests of one level that may wait."""
    priority_levels: int = Field(default=1, ge=1, le=100)
    """Dynamic batcher: levels of requests; 1 is the highest."""
    default_priority_level: int = Field(default=1, ge=1, le=100)
    """Dynamic batcher: level of requests that name none."""
    timeout_ms: float = Field(default=0.0, ge=0.0, le=3_600_000.0)
    """Dynamic batcher: time that a request may wait for its batch; 0: without limit. A request may ask for less."""
    timeout_action: Literal["reject", "delay"] = "reject"
    """Dynamic batcher: what happens then: ``reject`` fails the request, ``delay`` lets all others go first."""
    preserve_ordering: bool = False
    """Dynamic batcher: whether answers are told in the order of the requests."""

    @model_validator(mode="after")
    def _consistent(self) -> "TensorModelConfig":
        if self.name in ROLES:
            raise ValueError(f"name: given {self.name!r}, which is the name of a role; allowed: any other")
        if self.default_priority_level > self.priority_levels:
            raise ValueError(
                f"default_priority_level is {self.default_priority_level}, "
                f"allowed: at most priority_levels, which is {self.priority_levels}"
            )
        _check_backlog(self.backlog, self.backlog_wait_s)
        return self

    def foreign_fields(self, scheduler: str) -> dict[str, str]:
        """The fields that are set, if only to their defaults, and are for the batcher that it does not have; with the
        batcher that they are for."""
        return {
            name: batcher
            for batcher, names in BATCHER_FIELDS.items()
            for name in names
            if batcher != scheduler and name in self.model_fields_set
        }


BATCHER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sequence": (
        "strategy",
        "slots",
        "min_slot_utilisation",
        "idle_timeout_s",
        "max_queued_turns",
        "backlog",
        "backlog_wait_s",
    ),
    "dynamic": (
        "max_queued",
        "priority_levels",
        "default_priority_level",
        "timeout_ms",
        "timeout_action",
        "preserve_ordering",
    ),
}
"""What a model that takes tensors is told for one batcher alone."""


def _check_backlog(backlog: int, backlog_wait_s: float) -> None:
    if backlog_wait_s and not backlog:
        raise ValueError("backlog_wait_s is set, but backlog is 0: nobody waits; allowed: both or neither")


def repeated_name(models: tuple[TensorModelConfig, ...]) -> str | None:
    """A name that several of them have."""
    name, count = next(iter(Counter(each.name for each in models).most_common(1)), ("", 0))
    return name if count > 1 else None
