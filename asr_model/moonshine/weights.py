"""Where Moonshine's weights come from, and how they become layers.

They are published inside the PyPI package ``moonshine-cpp`` (Moonshine AI, MIT) as onnxruntime files, every matrix as
int8 with one scale and one offset. ``convert_weights`` packs the same numbers and the tokenizer into one file of ours.
Both load to bit-equal layers.
"""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from asr_model.moonshine.dimensions import LAYERS
from asr_model.moonshine.layers import Decoder, Encoder
from asr_model.moonshine.ort_file import Graph, read_graph
from asr_model.moonshine.tokenizer import Tokenizer

PACKAGE: Final = "moonshine_cpp"
VARIABLE: Final = "MOORAGE_MOONSHINE"
ENCODER_FILE: Final = "encoder_model.ort"
DECODER_FILE: Final = "decoder_model_merged.ort"
TOKENIZER_FILE: Final = "tokenizer.bin"
LICENCE: Final = "MIT, Copyright (c) 2025 Moonshine AI"
FORMAT: Final = "moorage-moonshine-1"
TOKENIZER_TENSOR: Final = "tokenizer"
HOW_TO_GET: Final = f"""\
On Linux x86-64 the package moonshine-cpp holds them: pip install moonshine-cpp
On any other system take the data files out of that package, which needs none of its programs:
    pip install --no-deps --only-binary=:all: --platform manylinux2014_x86_64 --target moonshine moonshine-cpp
    export {VARIABLE}="$PWD/moonshine/moonshine_cpp/models/base-en"
{VARIABLE} names a folder with {ENCODER_FILE}, {DECODER_FILE} and {TOKENIZER_FILE}, or a converted file."""


Module = TypeVar("Module", bound=nn.Module)


class WeightsError(Exception):
    """Weights that are missing, damaged or of another model; the message says which file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A tensor as stored: float32 as it is, or int8 with the scale and offset that give its values."""

    values: Tensor
    scale: float = 1.0
    offset: float = 0.0

    def full(self) -> Tensor:
        """The float32 values."""
        if self.values.dtype == torch.float32:
            return self.values.clone()
        return self.values.float().mul_(self.scale).add_(self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonshineWeights:
    """Moonshine base, English, packed. Names are those of the layers' parameters after ``encoder.`` or ``decoder.``."""

    source: Path
    packed: dict[str, Packed]
    tokenizer_bytes: bytes

    def encoder(self) -> Encoder:
        """A new encoder, float32 on the CPU, for inference."""
        with torch.device("meta"):
            module = Encoder()
        return self._filled(module, "encoder.")

    def decoder(self) -> Decoder:
        """A new decoder, float32 on the CPU, for inference."""
        with torch.device("meta"):
            module = Decoder()
        return self._filled(module, "decoder.")

    def tokenizer(self) -> Tokenizer:
        """The vocabulary.

        Raises:
            WeightsError: it is damaged.
        """
        try:
            return Tokenizer(self.tokenizer_bytes)
        except ValueError as error:
            raise WeightsError(f"{self.source}: {error}") from error

    def description(self) -> dict[str, str | int]:
        """What these weights are, for the service's start and the model card."""
        sizes = {name: packed.values.numel() for name, packed in self.packed.items()}
        return {
            "model": "Moonshine base, English",
            "source": str(self.source),
            "licence": LICENCE,
            "encoder_parameters": sum(size for name, size in sizes.items() if name.startswith("encoder.")),
            "decoder_parameters": sum(size for name, size in sizes.items() if name.startswith("decoder.")),
        }

    def _filled(self, module: Module, prefix: str) -> Module:
        state = {name.removeprefix(prefix): p.full() for name, p in self.packed.items() if name.startswith(prefix)}
        try:
            module.load_state_dict(state, assign=True)
        except RuntimeError as error:
            raise WeightsError(f"{self.source}: these are not the weights of Moonshine base: {error}") from error
        return module.requires_grad_(False).eval()


def load_weights(source: Path | None = None) -> MoonshineWeights:
    """Reads the weights.

    Args:
        source: a folder with the package's three files, or a file of ``convert_weights``. Without it: what the
            environment variable MOORAGE_MOONSHINE names, else the installed package ``moonshine-cpp``.

    Raises:
        WeightsError: nothing is there (the message says how to get them), or it is damaged.
    """
    found = source or _default_source()
    try:
        weights = _from_folder(found) if found.is_dir() else _from_file(found)
    except FileNotFoundError as error:
        raise WeightsError(f"{error.filename or found} is missing.\n{HOW_TO_GET}") from error
    except (OSError, ValueError, LookupError, SafetensorError) as error:
        raise WeightsError(f"{found}: the weights cannot be read: {error}") from error
    weights.tokenizer()
    return weights


def convert_weights(source: Path | None, out: Path) -> None:
    """Writes the weights of ``source`` (as in ``load_weights``) and the tokenizer into one safetensors file.

    Raises:
        WeightsError: as ``load_weights``.
    """
    weights = load_weights(source)
    tensors = {name: packed.values.contiguous() for name, packed in weights.packed.items()}
    tensors[TOKENIZER_TENSOR] = torch.frombuffer(bytearray(weights.tokenizer_bytes), dtype=torch.uint8)
    numbers = {name: f"{p.scale!r} {p.offset!r}" for name, p in weights.packed.items() if p.values.dtype == torch.int8}
    save_file(tensors, out, metadata={"format": FORMAT, "licence": LICENCE, **numbers})


def _default_source() -> Path:
    if named := os.environ.get(VARIABLE):
        return Path(named)
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise WeightsError(f"Moonshine's weights are not installed.\n{HOW_TO_GET}")
    return Path(package.submodule_search_locations[0]) / "models" / "base-en"


def _from_file(path: Path) -> MoonshineWeights:
    packed = {}
    with safe_open(path, framework="pt") as content:
        numbers = content.metadata() or {}
        if numbers.get("format") != FORMAT:
            raise ValueError("not a file of convert_weights")
        for name in content.keys():  # noqa: SIM118 (not a mapping)
            scale, offset = (float(number) for number in numbers.get(name, "1.0 0.0").split())
            packed[name] = Packed(values=content.get_tensor(name), scale=scale, offset=offset)
    raw = packed.pop(TOKENIZER_TENSOR).values.numpy().tobytes()
    return MoonshineWeights(source=path, packed=packed, tokenizer_bytes=raw)


def _from_folder(folder: Path) -> MoonshineWeights:
    tokenizer_bytes = (folder / TOKENIZER_FILE).read_bytes()
    encoder, decoder = (_OrtWeights(read_graph(folder / name)) for name in (ENCODER_FILE, DECODER_FILE))
    packed = {f"encoder.{name}": tensor for name, tensor in _encoder(encoder).items()}
    packed |= {f"decoder.{name}": tensor for name, tensor in _decoder(decoder).items()}
    return MoonshineWeights(source=folder, packed=packed, tokenizer_bytes=tokenizer_bytes)


class _OrtWeights:
    """Weights of one graph. A quantised one is ``NAME_quantized * NAME_scale + NAME_zero_point``, in float."""

    def __init__(self, graph: Graph) -> None:
        self.arrays = graph.arrays
        self.factor = {
            node.name: node.inputs[1].removesuffix("_add_tensor") for node in graph.nodes if node.operator == "MatMul"
        }

    def quantised(self, name: str) -> Packed:
        scale, offset = (float(self.arrays[f"{name}_{part}"][0]) for part in ("scale", "zero_point"))
        return Packed(values=self._tensor(f"{name}_quantized"), scale=scale, offset=offset)

    def matrix(self, node: str) -> Packed:
        """The weight of a MatMul node, in torch's order [out, in]."""
        stored = self.quantised(self.factor[node])
        return Packed(values=stored.values.T.contiguous(), scale=stored.scale, offset=stored.offset)

    def vector(self, name: str) -> Packed:
        return Packed(values=self._tensor(name).flatten())

    def _tensor(self, name: str) -> Tensor:
        return torch.from_numpy(np.array(self.arrays[name]))


def _encoder(weights: _OrtWeights) -> dict[str, Packed]:
    found = {f"c{i}.weight": weights.quantised(f"conv{i}.weight") for i in (1, 2, 3)}
    found |= {f"c{i}.bias": weights.vector(f"conv{i}.bias") for i in (2, 3)}
    found["gn.weight"] = weights.vector("onnx::Mul_1942")
    found["gn.bias"] = weights.vector("onnx::Add_1943")
    found["ln.weight"] = weights.vector("layer_norm.weight")
    parts = {
        "att.q": "self_attn/q_proj",
        "att.k": "self_attn/k_proj",
        "att.v": "self_attn/v_proj",
        "att.o": "self_attn/dense",
        "fc1": "mlp/fc1",
        "fc2": "mlp/fc2",
    }
    for i in range(LAYERS):
        for ours, theirs in parts.items():
            found[f"layers.{i}.{ours}.weight"] = weights.matrix(f"/layers.{i}/{theirs}/MatMul")
        for part in ("fc1", "fc2"):
            found[f"layers.{i}.{part}.bias"] = weights.vector(f"layers.{i}.mlp.{part}.bias")
        found[f"layers.{i}.n1.weight"] = weights.vector(f"layers.{i}.input_layernorm.weight")
        found[f"layers.{i}.n2.weight"] = weights.vector(f"layers.{i}.post_attention_layernorm.weight")
    return found


def _decoder(weights: _OrtWeights) -> dict[str, Packed]:
    found = {
        "embed.weight": weights.quantised("model.decoder.embed_tokens.weight_merged_0"),
        "ln.weight": weights.vector("model.decoder.norm.weight_merged_0"),
    }
    projections = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "dense"}
    for i in range(LAYERS):
        layer = f"model.decoder.layers.{i}"
        node = f"/model/decoder/layers.{i}"
        for ours, attention in (("own", "self_attn"), ("cross", "encoder_attn")):
            for part, theirs in projections.items():
                found[f"layers.{i}.{ours}.{part}.weight"] = weights.matrix(f"{node}/{attention}/{theirs}/MatMul")
        for part in ("up", "down"):
            found[f"layers.{i}.{part}.weight"] = weights.matrix(f"{node}/mlp/{part}_proj/MatMul")
            found[f"layers.{i}.{part}.bias"] = weights.vector(f"{layer}.mlp.{part}_proj.bias_merged_0")
        for ours, norm in (("n1", "input"), ("n2", "post_attention"), ("n3", "final")):
            found[f"layers.{i}.{ours}.weight"] = weights.vector(f"{layer}.{norm}_layernorm.weight_merged_0")
    return found
