"""Processes that the benchmark starts and talks to: the bare loops and the load client."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Generic, Self, TypeVar

from server.errors import MoorageError

Order = TypeVar("Order")
Reply = TypeVar("Reply")
STOP_S = 5.0


class ChildLost(MoorageError):
    """A process of the benchmark's own died."""

    code = "child_lost"


class Child(Generic[Order, Reply]):
    """One process; it ends when this does.

    Args:
        main: Called in the process with its end of the pipe.
        name: For people.
    """

    def __init__(self, main: "Callable[[Pipe[Reply, Order]], None]", name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=main, args=(theirs,), name=name, daemon=True)
        self._process.start()
        theirs.close()
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join(STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    def send(self, order: Order) -> None:
        """Hands over an order; whoever sends several collects as many replies."""
        try:
            self._pipe.send(order)
        except OSError as error:
            raise ChildLost(f"{self._name} died") from error

    def receive(self) -> Reply:
        """Waits for the next reply.

        Raises:
            ChildLost: There will be none.
        """
        try:
            return self._pipe.recv()  # type: ignore[no-any-return]  # what the other end sends
        except (EOFError, OSError) as error:
            raise ChildLost(f"{self._name} died") from error
