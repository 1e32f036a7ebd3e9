"""The settings of models: where their copies are, which batcher they get, what they share."""

import tomllib
from pathlib import Path

import pytest

from server.composition import check_models
from server.configuration.config import MoorageConfig, load_config
from server.configuration.report import config_text
from server.errors import ConfigError

MODELS = """
[resources]
memory = 4
"odd name" = 2

[live]
instances = [{device = "cuda:0", count = 2}, {device = "cpu", count = 1, threads = 3}]
resources = {memory = 3}

[[models]]
name = "sum"
model = "accumulator"
scheduler = "sequence"
preferred_sizes = [4, 2]
resources = {memory = 1, "odd name" = 2}
instances = 2
[models.options]
corrid = true

[[models]]
name = "feeling"
model = "sentiment"
"""


def loaded(text: str, tmp_path: Path) -> MoorageConfig:
    path = tmp_path / "moorage.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, environment={})


def fault(text: str, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(text, tmp_path)
    return str(caught.value)


def test_places_of_instances(tmp_path: Path) -> None:
    live = loaded(MODELS, tmp_path).live
    assert [(group.device, group.count, group.threads) for group in live.groups] == [("cuda:0", 2, 0), ("cpu", 1, 3)]
    assert live.n_instances == 3
    plain = loaded("[live]\ninstances = 3\ndevice = 'cpu'\nthreads = 2", tmp_path).live
    assert [(group.device, group.count, group.threads) for group in plain.groups] == [("cpu", 3, 2)]


def test_further_models(tmp_path: Path) -> None:
    config = loaded(MODELS, tmp_path)
    first, second = config.models
    assert (first.name, first.model, first.scheduler, first.preferred_sizes) == (
        "sum",
        "accumulator",
        "sequence",
        (4, 2),
    )
    assert (first.resources, first.options) == ({"memory": 1, "odd name": 2}, {"corrid": True})
    assert (second.scheduler, second.groups[0].count) == ("", 1)


def test_what_is_shown_loads_to_the_same(tmp_path: Path) -> None:
    before = loaded(MODELS, tmp_path)
    shown = config_text(tmp_path / "moorage.toml", {})
    assert loaded(shown, tmp_path) == before
    assert [model["name"] for model in tomllib.loads(shown)["models"]] == ["sum", "feeling"]


def test_what_is_shown_of_a_model_is_what_its_batcher_has(tmp_path: Path) -> None:
    loaded(MODELS, tmp_path)
    path = tmp_path / "moorage.toml"
    path.write_text(config_text(path, {}), encoding="utf-8")
    check_models(load_config(path, environment={"MOORAGE_LIVE__DEVICE": "auto"}))
    by_name = {model["name"]: model for model in tomllib.loads(path.read_text(encoding="utf-8"))["models"]}
    assert by_name["sum"].keys() & {"slots", "timeout_ms", "max_batch"} == {"slots", "max_batch"}
    assert by_name["feeling"].keys() & {"slots", "timeout_ms", "max_batch"} == {"timeout_ms", "max_batch"}


def test_instances_from_the_environment() -> None:
    live = load_config(environment={"MOORAGE_LIVE__INSTANCES": '[{device = "cpu", count = 2}]'}).live
    assert live.n_instances == 2
    assert load_config(environment={"MOORAGE_RESOURCES__GPU": "2"}).resources == {"gpu": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[live]\ninstances = 0", "live.instances: given 0, allowed: an integer from 1 to 64, or a list of tables"),
        ("[live]\ninstances = '2'", "live.instances: given '2', allowed: an integer from 1 to 64, or a list of tables"),
        ("[live]\ninstances = []", "live: instances is empty, allowed: at least one place"),
        ("[live]\ninstances = [{count = 0}]", "live.instances.0.count: given 0, allowed: an integer from 1 to 64"),
        ("[live]\ninstances = [{n = 1}]", "live.instances.0.n: unknown, allowed: device, count, threads"),
        ("[live]\ninstances = [{}]\nthreads = 2", "live: instances is a list of places, so that device and threads"),
        ("[live]\nresources = {gpu = 1}", "live.resources: gpu is not in [resources]; known: none is configured"),
        ("[resources]\ngpu = 1\n[final]\nresources = {gpu = 2}", "final.resources.gpu: 2, but [resources] has 1"),
        (
            "[live]\ninstances = [{count = 64}, {device = 'cpu', count = 1}]",
            "live: instances are 65 in all, allowed: at most 64",
        ),
        (
            "[live]\nbacklog_wait_s = 5.0",
            "live: backlog_wait_s is set, but backlog is 0: nobody waits; allowed: both or",
        ),
        ("[[models]]\nname = 'a'\nmodel = 'x'\nbacklog_wait_s = 5.0", "models.0: backlog_wait_s is set, but backlog"),
        ("[resources]\ngpu = 0", "resources.gpu: given 0, allowed: an integer from 1 to 1000000"),
        ("[resources]\ngpu = '1'", "resources.gpu: given '1', allowed: an integer from 1 to 1000000"),
        ("[live]\nresources = {core = 0}", "live.resources.core: given 0, allowed: an integer from 1 to 1000000"),
        ("[live]\npreferred_sizes = [0]", "live.preferred_sizes.0: given 0, allowed: an integer from 1 to 4096"),
        (
            "[[models]]\nname = 'a'\nmodel = 'x'\npreferred_sizes = [2, 'b']",
            "models.0.preferred_sizes.1: given 'b', allowed: an integer from 1 to 4096",
        ),
        ("[[models]]\nname = 'live'\nmodel = 'x'", "models.0: name: given 'live', which is the name of a role"),
        ("[[models]]\nname = 'a b'\nmodel = 'x'", "models.0.name: given 'a b', allowed: 1 to 64 letters, digits and"),
        ("[[models]]\nname = 'a'", "models.0.model: missing"),
        ("[[models]]\nname = 'a'\nmodel = 'x'\n[[models]]\nname = 'a'\nmodel = 'y'", "models: several have the name a"),
        (
            "[[models]]\nname = 'a'\nmodel = 'x'\ndefault_priority_level = 2",
            "models.0: default_priority_level is 2, allowed: at most priority_levels, which is 1",
        ),
        (
            "[[models]]\nname = 'a'\nmodel = 'x'\noptions = {b = [1]}",
            "models.0.options.b: given [1], allowed: a text, a number or a boolean",
        ),
        ("[live]\nscheduler = 'best'", "live.scheduler: given 'best', allowed: \"\", sequence, dynamic"),
        ("[live]\noptimize = 'fast'", "live.optimize: given 'fast', allowed: none, compile, cuda-graph, int8, bf16"),
    ],
)
def test_faults(text: str, said: str, tmp_path: Path) -> None:
    (line,) = fault(text, tmp_path).splitlines()
    assert line.startswith(said)
