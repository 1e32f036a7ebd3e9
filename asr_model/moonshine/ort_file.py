"""Reads what a converter needs from an onnxruntime model file (``.ort``): named arrays, and which node uses which.

The file is a flatbuffer. A few numbers name the fields' places in its tables; they are fixed by the format. Only what
leads to weights is read, so that neither onnxruntime nor its generated bindings are needed to load them.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

IDENTIFIER: Final = b"ORTM"
SESSION_MODEL: Final = 6
MODEL_GRAPH: Final = 18
GRAPH_INITIALIZERS: Final = 4
GRAPH_NODES: Final = 8
NODE_NAME: Final = 4
NODE_OPERATOR: Final = 14
NODE_INPUTS: Final = 20
NODE_OUTPUTS: Final = 22
NODE_ATTRIBUTES: Final = 24
ATTRIBUTE_GRAPH: Final = 18
TENSOR_NAME: Final = 4
TENSOR_SHAPE: Final = 8
TENSOR_KIND: Final = 10
TENSOR_BYTES: Final = 12
KINDS: Final = {1: "<f4", 3: "i1", 7: "<i8"}
"""The kinds of array that Moonshine's files use, as numpy calls them."""

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation of the graph, with the names of the values it takes and gives."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Arrays by name and all nodes, those of inner graphs (an If's branches) included."""

    arrays: dict[str, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)


def read_graph(path: Path) -> Graph:
    """The graph of an ``.ort`` file. The arrays share the memory of the file's content.

    Raises:
        ValueError: it is no such file, or damaged.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    if content[4:8] != IDENTIFIER:
        raise ValueError("not an onnxruntime model file")
    graph = Graph()
    try:
        root = _Table(content, *struct.unpack_from("<I", content))
        _collect(root.child(SESSION_MODEL).child(MODEL_GRAPH), graph)
    except (struct.error, LookupError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged onnxruntime model file ({error})") from error
    return graph


def _collect(table: "_Table", graph: Graph) -> None:
    for tensor in table.children(GRAPH_INITIALIZERS):
        if tensor.has(TENSOR_BYTES):
            raw = np.frombuffer(tensor.vector(TENSOR_BYTES), KINDS[tensor.number(TENSOR_KIND)])
            shape = np.frombuffer(tensor.vector(TENSOR_SHAPE, 8), "<i8") if tensor.has(TENSOR_SHAPE) else ()
            graph.arrays[tensor.text(TENSOR_NAME)] = raw.reshape(shape)
    for node in table.children(GRAPH_NODES):
        graph.nodes.append(
            Node(
                operator=node.text(NODE_OPERATOR),
                name=node.text(NODE_NAME),
                inputs=tuple(node.texts(NODE_INPUTS)),
                outputs=tuple(node.texts(NODE_OUTPUTS)),
            )
        )
        for attribute in node.children(NODE_ATTRIBUTES):
            if attribute.has(ATTRIBUTE_GRAPH):
                _collect(attribute.child(ATTRIBUTE_GRAPH), graph)


@dataclass(frozen=True, slots=True)
class _Table:
    """A flatbuffer table: a record whose fields are found through a list of offsets that stands before it."""

    content: bytes
    at: int

    def has(self, place: int) -> bool:
        return self._offset(place) != 0

    def number(self, place: int) -> int:
        """A 32-bit integer; 0 where the field is left out."""
        return self._int(self.at + self._offset(place)) if self.has(place) else 0

    def child(self, place: int) -> "_Table":
        return _Table(self.content, self._target(place))

    def children(self, place: int) -> Iterator["_Table"]:
        return (_Table(self.content, at) for at in self._elements(place))

    def text(self, place: int) -> str:
        return self._text(self._target(place))

    def texts(self, place: int) -> Iterator[str]:
        return (self._text(at) for at in self._elements(place))

    def vector(self, place: int, element_bytes: int = 1) -> bytes:
        """The bytes of a vector of numbers."""
        start = self._target(place) + 4
        size = self._int(start - 4) * element_bytes
        found = self.content[start : start + size]
        if len(found) < size:
            raise IndexError("it ends too early")
        return found

    def _offset(self, place: int) -> int:
        listed = self.at - self._int(self.at, "<i")
        return self._int(listed + place, "<H") if place < self._int(listed, "<H") else 0

    def _target(self, place: int) -> int:
        if not self.has(place):
            raise LookupError("a field is missing")
        at = self.at + self._offset(place)
        return at + self._int(at)

    def _elements(self, place: int) -> Iterator[int]:
        if not self.has(place):
            return
        start = self._target(place)
        for at in range(start + 4, start + 4 + 4 * self._int(start), 4):
            yield at + self._int(at)

    def _text(self, at: int) -> str:
        return self.content[at + 4 : at + 4 + self._int(at)].decode()

    def _int(self, at: int, form: str = "<I") -> int:
        if at < 0:
            raise IndexError("an offset points before its start")
        return int(struct.unpack_from(form, self.content, at)[0])
