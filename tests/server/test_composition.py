"""From the configuration to the engine's: every field arrives."""

import pytest

from asr_model.declared import DECLARED
from asr_model.registry import FACTORIES
from server.batching.request_queue import TimeoutAction
from server.batching.sequence_config import DuplicateStart, Strategy
from server.composition import (
    ARCHITECTURES,
    check_models,
    engine_config,
    model_cards,
    package_version,
    settings_of,
)
from server.configuration.config import (
    FinalConfig,
    LiveConfig,
    MoorageConfig,
    ServerConfig,
    TensorModelConfig,
    Tree,
    load_config,
)
from server.configuration.model_sections import InstanceGroup
from server.engine.engine_config import tensor_batcher, turn_batcher
from server.engine.model_settings import LiveSettings, TensorSettings
from server.errors import ConfigError
from server.workers.orders import Loaded
from server.workers.worker import WorkerKind

LIVE = LiveConfig(
    instances=2,
    device="cuda:1",
    slots=3,
    max_slots=4,
    load_fraction=0.5,
    max_batch=6,
    max_delay_ms=7.5,
    max_queued_s=8.5,
    threads=9,
    options={"a": 1},
)
FINAL = FinalConfig(
    instances=11,
    device="cpu",
    target_size=12,
    window_ms=13.5,
    max_queued=14,
    max_batch_s=50.5,
    threads=16,
    options={"b": True},
)

LOADED = Loaded(
    model="x",
    scheduler="sequence",
    device="cpu",
    tick_samples=100,
    lookahead_samples=10,
    slot_bytes=0,
    precision="float32",
)


def test_every_field_arrives() -> None:
    config = MoorageConfig(server=ServerConfig(idle_timeout_s=2.5, max_queued_finals=17), live=LIVE, final=FINAL)
    engine = engine_config(config, WorkerKind.THREAD)
    live, final = engine.live, engine.final
    assert final is not None
    assert (engine.idle_timeout_s, engine.max_finals, engine.worker_kind) == (2.5, 17, WorkerKind.THREAD)
    assert (live.source.name, live.source.options) == ("moonshine-live", {"a": 1})
    assert (live.instances, live.device, live.slots, live.threads) == (2, "cuda:1", 3, 9)
    assert (live.limits.max_slots, live.limits.load_fraction, live.limits.max_batch) == (4, 0.5, 6)
    assert (live.max_delay_ms, live.max_queued_s) == (7.5, 8.5)
    assert (final.source.name, final.source.options) == ("moonshine-base", {"b": True})
    assert (final.instances, final.device, final.target_size, final.threads) == (11, "cpu", 12, 16)
    assert (final.window_ms, final.max_queued, final.max_batch_s) == (13.5, 14, 50.5)


def test_no_second_pass() -> None:
    config = MoorageConfig(final=FinalConfig(model="none"))
    assert engine_config(config).final is None
    assert model_cards(config).final is None


def test_models_run_in_processes_unless_said_otherwise() -> None:
    assert engine_config(MoorageConfig()).worker_kind is WorkerKind.PROCESS


def test_cards() -> None:
    cards = model_cards(MoorageConfig())
    assert cards.final is not None
    assert (cards.live.name, cards.final.name) == ("moonshine-live", "moonshine-base")
    assert cards.live.version == package_version()
    assert cards.live.model_uuid != cards.final.model_uuid


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            MoorageConfig(live=LiveConfig(model="whisper")),
            "live.model: given 'whisper', allowed: moonshine-live, moonshine-base, light-lstm",
        ),
        (
            MoorageConfig(final=FinalConfig(model="whisper")),
            "final.model: given 'whisper', allowed: moonshine-live, moonshine-base, light-lstm, none",
        ),
    ],
)
def test_unknown_models(config: MoorageConfig, message: str) -> None:
    for build in (engine_config, model_cards):
        with pytest.raises(ConfigError) as caught:
            build(config)
        assert str(caught.value) == message


def test_the_names_are_those_of_the_registry() -> None:
    assert set(ARCHITECTURES) == {name for name, declared in DECLARED.items() if declared.listens}
    assert set(FACTORIES) == set(DECLARED)


def test_every_field_of_the_schedulers_arrives() -> None:
    places = (InstanceGroup(device="cpu", count=2, threads=3), InstanceGroup(device="cuda:1"))
    live = LIVE.model_copy(
        update={
            "instances": places,
            "device": "auto",
            "threads": 0,
            "scheduler": "sequence",
            "optimize": "int8",
            "resources": {"gpu": 2},
            "resource_priority": 3,
            "preferred_sizes": (2, 4),
            "strategy": "oldest",
            "min_slot_utilisation": 0.0,
            "max_ticks": 5,
            "deadline_ms": 6.5,
            "flush_deadline_ms": 7.25,
            "lead_ms": 8.5,
            "backlog": 9,
            "backlog_wait_s": 10.5,
        }
    )
    final = FINAL.model_copy(update={"timeout_ms": 11.5, "timeout_action": "delay", "recordings_max_queued": 12})
    engine = engine_config(MoorageConfig(live=live, final=final, resources={"gpu": 2}))
    assert [(place.device, place.threads) for place in engine.live.places] == [("cpu", 3), ("cpu", 3), ("cuda:1", 0)]
    batcher = engine.live_batcher(LOADED, (1, 2, 3), ("cpu", "cpu", "cuda:1"))
    assert (batcher.instances, batcher.slots, batcher.devices) == (3, (1, 2, 3), ("cpu", "cpu", "cuda:1"))
    assert (batcher.strategy, batcher.preferred_sizes, batcher.max_ticks) == (Strategy.OLDEST, (2, 4), 5)
    assert (batcher.deadline_ns, batcher.flush_deadline_ns, batcher.lead_ns) == (6_500_000, 7_250_000, 8_500_000)
    assert (batcher.backlog, batcher.backlog_levels, batcher.backlog_wait_ns) == (9, 8, 10_500_000_000)
    pool = engine.live_pool()
    assert (pool.scheduler, pool.optimize, pool.allow_wrong_scheduler) == ("sequence", "int8", False)
    assert 4 in pool.batches
    assert (engine.live.resources, engine.live.resource_priority, engine.resources) == ({"gpu": 2}, 3, {"gpu": 2})
    assert engine.final is not None
    levels = engine.final_batcher(engine.final).levels
    assert [(level.max_queued, level.timeout_ns) for level in levels] == [(14, 11_500_000), (12, 0)]
    assert levels[0].timeout_action is TimeoutAction.DELAY


def test_without_a_deadline_of_its_own_a_flush_has_that_of_a_tick() -> None:
    config = MoorageConfig(live=LIVE.model_copy(update={"deadline_ms": 5.0}))
    assert engine_config(config).live_batcher(LOADED, 1).flush_deadline_ns == 5_000_000


def test_further_models_arrive() -> None:
    model = TensorModelConfig(
        name="sum",
        model="accumulator",
        instances=2,
        slots=3,
        max_batch=4,
        max_delay_ms=5.5,
        deadline_ms=6.5,
        idle_timeout_s=7.5,
        max_queued_turns=8,
        backlog=9,
        backlog_wait_s=10.5,
        max_queued=11,
        priority_levels=3,
        default_priority_level=2,
        timeout_ms=12.5,
        preferred_sizes=(2,),
        options={"corrid": True},
    )
    (settings,) = engine_config(MoorageConfig(models=(model,))).models
    assert (settings.name, settings.source.name, settings.source.options) == ("sum", "accumulator", {"corrid": True})
    turns = turn_batcher(settings, LOADED, (3, 3), ())
    assert (turns.instances, turns.slots, turns.max_batch, turns.takes_turns) == (2, (3, 3), 4, True)
    assert (turns.max_delay_ns, turns.deadline_ns, turns.idle_timeout_ns) == (5_500_000, 6_500_000, 7_500_000_000)
    assert (turns.max_queued_turns, turns.backlog, turns.backlog_wait_ns) == (8, 9, 10_500_000_000)
    assert turns.duplicate_start is DuplicateStart.RESTART
    requests = tensor_batcher(settings, LOADED)
    assert (requests.instances, requests.target_size, requests.window_ns) == (2, 4, 5_500_000)
    assert (len(requests.levels), requests.default_level, requests.preferred_sizes) == (3, 2, (2,))
    assert (requests.levels[2].max_queued, requests.levels[2].timeout_ns) == (11, 12_500_000)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"live": {"scheduler": "dynamic"}},
            "live.scheduler: moonshine-live needs the sequence batcher, but dynamic is configured",
        ),
        (
            {"final": {"scheduler": "sequence"}},
            "final.scheduler: moonshine-base needs the dynamic batcher, but sequence",
        ),
        ({"models": [{"name": "a", "model": "light-lstm"}]}, "models.a.model: given 'light-lstm', allowed: "),
        ({"models": [{"name": "a", "model": "sums"}]}, "models.a.model: given 'sums', allowed: "),
        ({"live": {"model": "accumulator"}}, "live.model: given 'accumulator', allowed: "),
        ({"live": {"preferred_sizes": [65]}}, "live: preferred_sizes must be 1 to max_batch = 64, not 65"),
        ({"live": {"min_slot_utilisation": 0.5}}, 'live: min_slot_utilisation is for strategy "direct"'),
        ({"final": {"preferred_sizes": [3]}}, "final: preferred_sizes must be"),
        (
            {"models": [{"name": "a", "model": "mean", "preserve_ordering": True, "priority_levels": 2}]},
            "models.a: preserve_ordering is for one level",
        ),
        ({"models": [{"name": "a", "model": "accumulator", "options": {"x": 1}}]}, "models.a.options: "),
        (
            {"models": [{"name": "a", "model": "mean", "scheduler": "sequence"}]},
            "models.a.scheduler: mean needs the dy",
        ),
        (
            {"live": {"optimize": "compile"}},
            "live.optimize: given 'compile', allowed: none, bf16, int8 (moonshine-live)",
        ),
        ({"live": {"model": "light-lstm", "optimize": "int8"}}, "live.optimize: given 'int8', allowed: none (light-ls"),
        (
            {"live": {"optimize": "int8", "instances": [{"device": "cpu"}, {"device": "cuda:1"}]}},
            "live.optimize: given 'int8', allowed: none, bf16 (moonshine-live on CUDA)",
        ),
        ({"final": {"optimize": "cuda-graph"}}, "final.optimize: given 'cuda-graph', allowed: none, bf16, int8 (moo"),
        (
            {"models": [{"name": "a", "model": "mean", "optimize": "int8"}]},
            "models.a.optimize: given 'int8', allowed: none (mean)",
        ),
        (
            {"live": {"optimize": "int8", "options": {"optimize": "bf16"}}},
            "live: optimize is int8, but options.optimize is bf16; allowed: one of them, or both the same",
        ),
        (
            {"final": {"optimize": "int8", "options": {"dtype": "bf16"}}},
            "final.options: dtype = 'bf16' and optimize = 'int8' exclude each other",
        ),
    ],
)
def test_what_no_model_or_batcher_would_take(tree: Tree, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_models(load_config(environment={}, overrides=tree))
    assert str(caught.value).startswith(said)


SEQUENCE_FIELDS: Tree = {
    "strategy": "oldest",
    "slots": 8,
    "min_slot_utilisation": 0.0,
    "idle_timeout_s": 5.0,
    "max_queued_turns": 3,
    "backlog": 2,
    "backlog_wait_s": 1.0,
}
DYNAMIC_FIELDS: Tree = {
    "max_queued": 5,
    "priority_levels": 2,
    "default_priority_level": 2,
    "timeout_ms": 4.0,
    "timeout_action": "delay",
    "preserve_ordering": False,
}


@pytest.mark.parametrize(
    ("model", "other", "fields"),
    [
        ("mean", "sequence", SEQUENCE_FIELDS),
        ("accumulator", "dynamic", DYNAMIC_FIELDS),
    ],
)
def test_settings_of_the_other_batcher_are_refused_by_name(model: str, other: str, fields: Tree) -> None:
    tree: Tree = {"models": [{"name": "a", "model": model, **fields}]}
    with pytest.raises(ConfigError) as caught:
        check_models(load_config(environment={}, overrides=tree))
    lines = str(caught.value).splitlines()
    own = "dynamic" if other == "sequence" else "sequence"
    assert lines == [f"models.a.{name}: is for the {other} batcher, {model} has the {own} one" for name in fields]


@pytest.mark.parametrize(("model", "fields"), [("mean", DYNAMIC_FIELDS), ("accumulator", SEQUENCE_FIELDS)])
def test_those_of_its_own_are_taken(model: str, fields: Tree) -> None:
    shared: Tree = {"max_batch": 4, "max_delay_ms": 1.0, "deadline_ms": 5.0, "preferred_sizes": [2]}
    tree: Tree = {"models": [{"name": "a", "model": model, **fields, **shared}]}
    check_models(load_config(environment={}, overrides=tree))


def test_the_switch_for_the_wrong_batcher_needs_no_other_setting_changed() -> None:
    model: Tree = {"name": "a", "model": "accumulator", "slots": 2, "scheduler": "dynamic"}
    with pytest.raises(ConfigError, match=r"models\.a\.scheduler: accumulator needs the sequence batcher"):
        check_models(load_config(environment={}, overrides={"models": [model]}))
    check_models(load_config(environment={}, overrides={"models": [model | {"allow_wrong_scheduler": True}]}))


def test_a_contradiction_that_is_none() -> None:
    same: Tree = {"optimize": "int8", "options": {"optimize": "int8"}}
    check_models(load_config(environment={}, overrides={"live": same}))
    silent: Tree = {"optimize": "none", "options": {"optimize": "bf16"}}
    check_models(load_config(environment={}, overrides={"live": silent}))


def test_every_fault_has_a_line() -> None:
    tree: Tree = {
        "live": {"scheduler": "dynamic"},
        "models": [{"name": "a", "model": "x"}, {"name": "b", "model": "mean", "scheduler": "sequence"}],
    }
    with pytest.raises(ConfigError) as caught:
        check_models(load_config(environment={}, overrides=tree))
    places = [line.partition(":")[0] for line in str(caught.value).splitlines()]
    assert places == ["live.scheduler", "models.a.model", "models.b.scheduler"]


def test_what_is_allowed_by_name_is_allowed() -> None:
    tree: Tree = {"live": {"scheduler": "dynamic", "allow_wrong_scheduler": True}}
    check_models(load_config(environment={}, overrides=tree))


def test_a_section_with_some_fields_changed() -> None:
    config = load_config(
        environment={},
        overrides={"live": {"slots": 3}, "models": [{"name": "sum", "model": "accumulator"}], "resources": {"gpu": 1}},
    )
    change = settings_of(config)
    live = change("live", {"backlog": 5, "resources": {"gpu": 1}})
    assert isinstance(live, LiveSettings)
    assert (live.slots, live.backlog, live.resources) == (3, 5, {"gpu": 1})
    added = change("sum", {"slots": 2, "instances": [{"device": "cpu", "count": 2}]})
    assert isinstance(added, TensorSettings)
    assert (added.name, added.slots, len(added.places)) == ("sum", 2, 2)
    assert change("final", {"target_size": 3}).source.name == "moonshine-base"
    assert change("live", {}).instances == 2  # whatever the file does not say stays a default
    for name, overrides, said in (
        ("sum", {"slot": 1}, "models.0.slot: unknown (did you mean slots?)"),
        ("sum", {"slots": 0}, "models.0.slots: given 0, allowed: an integer from 1"),
        ("sum", {"name": "other"}, "sum.name: a model keeps its name"),
        ("sum", {"model": "moonshine-base"}, "models.sum.model: given 'moonshine-base', allowed: "),
        ("sum", {"timeout_ms": 1.0}, "models.sum.timeout_ms: is for the dynamic batcher, accumulator has"),
        ("live", {"model": "light-lstm"}, "live.model: which one it is was told to clients"),
        ("final", {"model": "none"}, "final.model: which one it is was told to clients"),
        ("live", {"resources": {"gpu": 2}}, "live.resources.gpu: 2, but [resources] has 1"),
    ):
        with pytest.raises(ConfigError) as caught:
            change(name, overrides)
        assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("nobody", "(mood)"), ("adder", "(mood)"), ("live", "(mood)")],
)
def test_who_tells_the_sentiment_must_be_there_and_keep_no_state(name: str, allowed: str) -> None:
    models = [{"name": "adder", "model": "accumulator"}, {"name": "mood", "model": "sentiment"}]
    with pytest.raises(ConfigError) as caught:
        check_models(load_config(environment={}, overrides={"final": {"sentiment": name}, "models": models}))
    assert str(caught.value).startswith(f"final.sentiment: given {name!r}, allowed: models of [[models]]")
    assert str(caught.value).endswith(allowed)
    config = load_config(environment={}, overrides={"final": {"sentiment": "mood"}, "models": models})
    check_models(config)
    assert engine_config(config).sentiment == "mood"
