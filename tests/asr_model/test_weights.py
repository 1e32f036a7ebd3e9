"""Where the weights come from, and what is said when they do not come."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from asr_model.moonshine.weights import (
    DECODER_FILE,
    ENCODER_FILE,
    TOKENIZER_FILE,
    VARIABLE,
    MoonshineWeights,
    WeightsError,
    convert_weights,
    load_weights,
)


@pytest.fixture(scope="module")
def weights() -> MoonshineWeights:
    return load_weights()


@pytest.fixture
def folder(weights: MoonshineWeights, tmp_path: Path) -> Path:
    """A copy of the package's files."""
    copy = tmp_path / "base-en"
    shutil.copytree(weights.source, copy)
    return copy


def test_the_package_holds_the_whole_model(weights: MoonshineWeights) -> None:
    described = weights.description()
    assert described["encoder_parameters"] == sum(p.numel() for p in weights.encoder().parameters()) == 20_153_120
    assert described["decoder_parameters"] == sum(p.numel() for p in weights.decoder().parameters()) == 41_360_800
    assert described["licence"] == "MIT, Copyright (c) 2025 Moonshine AI"
    assert weights.tokenizer().text([15043]) == "Hello"


def test_modules_are_for_inference_and_not_shared(weights: MoonshineWeights) -> None:
    one, other = weights.encoder(), weights.encoder()
    assert not one.training
    assert not any(p.requires_grad for p in one.parameters())
    one.ln.weight.fill_(0)
    assert other.ln.weight.abs().min() > 0


def test_a_converted_file_holds_the_same_weights_bit_for_bit(weights: MoonshineWeights, tmp_path: Path) -> None:
    out = tmp_path / "moonshine.safetensors"
    convert_weights(None, out)
    assert out.stat().st_size < 63e6
    converted = load_weights(out)
    assert converted.tokenizer_bytes == weights.tokenizer_bytes
    for one, other in ((weights.encoder(), converted.encoder()), (weights.decoder(), converted.decoder())):
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_the_variable_names_the_source(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(folder))
    assert load_weights().source == folder


@pytest.mark.parametrize("name", [ENCODER_FILE, DECODER_FILE, TOKENIZER_FILE])
def test_a_missing_file_is_named_with_the_way_to_get_it(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(WeightsError) as caught:
        load_weights(folder)
    assert f"{folder / name} is missing" in str(caught.value)
    assert "--platform manylinux2014_x86_64 --target moonshine moonshine-cpp" in str(caught.value)


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere is missing"):
        load_weights(tmp_path / "nowhere")


def test_without_the_package_the_message_says_how_to_get_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r"not installed") as caught:
        load_weights()
    assert "pip install --no-deps --only-binary=:all:" in str(caught.value)
    assert f"export {VARIABLE}=" in str(caught.value)


@pytest.mark.parametrize("name", [ENCODER_FILE, DECODER_FILE, TOKENIZER_FILE])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw[: len(raw) // 2], id="cut in half"),
        pytest.param(lambda raw: b"", id="empty"),
        pytest.param(lambda raw: raw[:4096], id="head alone"),
        pytest.param(lambda raw: b"version https://git-lfs.github.com/spec/v1\n", id="pointer"),
        pytest.param(lambda raw: raw[:8] + b"\xff" * 4096 + raw[4104:], id="overwritten"),
    ],
)
def test_a_damaged_file_is_an_error_of_ours(folder: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    with pytest.raises(WeightsError):
        load_weights(folder).encoder()


def test_another_models_file_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "other.safetensors"
    save_file({"encoder.ln.weight": torch.ones(3)}, out)
    with pytest.raises(WeightsError, match="not a file of convert_weights"):
        load_weights(out)
    out.write_bytes(b"{}")
    with pytest.raises(WeightsError, match=r"other\.safetensors"):
        load_weights(out)


def test_a_converted_file_without_a_layer_is_refused(weights: MoonshineWeights, tmp_path: Path) -> None:
    packed = {name: value for name, value in weights.packed.items() if "layers.7" not in name}
    partial = MoonshineWeights(source=tmp_path, packed=packed, tokenizer_bytes=weights.tokenizer_bytes)
    with pytest.raises(WeightsError, match="not the weights of Moonshine base"):
        partial.decoder()
