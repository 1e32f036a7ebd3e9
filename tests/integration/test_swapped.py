"""``moorage serve`` with the wrong scheduler: it does not serve, and says what it saw."""

from pathlib import Path

import pytest

from tests.integration.test_serve import launch


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            '[live]\nscheduler = "dynamic"\n',
            "live.scheduler: the configuration says dynamic (the model declares sequence), but light-lstm is stateful"
            " and needs the sequence batcher: tick 3 of a sequence was answered “",
        ),
        (
            '[[models]]\nname = "mirror"\nmodel = "echo"\nscheduler = "sequence"\n',
            "mirror.scheduler: the configuration says sequence (the model declares dynamic), but echo is stateless"
            " and needs the dynamic batcher: the second of two requests is answered ",
        ),
    ],
)
async def test_a_swapped_configuration_is_refused_with_the_evidence(tmp_path: Path, settings: str, said: str) -> None:
    toml = tmp_path / "moorage.toml"
    toml.write_text(settings)
    process = await launch("--port", "0", "--config", str(toml), MOORAGE_LIVE__MODEL="light-lstm")
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode().startswith(said), errors.decode()
