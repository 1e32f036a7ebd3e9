"""Pieces of recordings on the final model, behind the utterances of live streams. Runs on the event loop."""

import asyncio
from typing import Final

from asr_model.transcript import FinalOutput
from server.clock import Clock
from server.effects import RequestCompleted, RequestEffect, RequestFailed
from server.engine.final_pass import FinalPass
from server.engine.request_driver import RequestDriver
from server.errors import MoorageError, QueueFull, StepFailed
from server.plan import Request, Samples

RECORDING_LEVEL: Final = 2
"""In the final model's queue: nobody speaks meanwhile."""


async def read_piece(
    driver: RequestDriver, final_pass: FinalPass, clock: Clock, samples: Samples, *, within_ns: int | None
) -> FinalOutput:
    """One piece; cancelling the call cancels it.

    Args:
        driver: Of the final model.
        final_pass: Gives the request its id.
        clock: Time.
        samples: float32 [N].
        within_ns: Time that it may wait for its batch; None: as long as it takes.

    Raises:
        BadAudio, MessageTooLarge: It cannot be read.
        QueueFull: Too many pieces wait.
        RequestTimeout: It waited for too long.
        StepFailed, InstanceFailed: The model failed.
    """
    future: asyncio.Future[FinalOutput] = asyncio.get_running_loop().create_future()
    request_id = final_pass.next_id()
    deadline_ns = None if within_ns is None else clock.now_ns() + within_ns
    request = Request(
        request_id=request_id,
        payload=samples,
        priority=RECORDING_LEVEL,
        timeout_ns=within_ns,
        deadline_ns=deadline_ns,
    )
    driver.offer(request, lambda effect: _settle(future, effect))
    driver.run()
    try:
        return await future
    except asyncio.CancelledError:
        driver.cancel(request_id)
        driver.run()
        raise


def refuse_recordings() -> QueueFull:
    """Where the configuration has no room for them."""
    return QueueFull("recordings are not read here (final.recordings_max_queued is 0)")


def _settle(future: "asyncio.Future[FinalOutput]", effect: RequestEffect) -> None:
    if future.done():
        return
    error: MoorageError | None = effect.error if isinstance(effect, RequestFailed) else None
    output = effect.output if isinstance(effect, RequestCompleted) else None
    if isinstance(output, FinalOutput):
        future.set_result(output)
    else:
        future.set_exception(error or StepFailed(f"the model answered {type(output).__name__}"))
