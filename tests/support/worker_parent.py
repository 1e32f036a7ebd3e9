"""A program that brings up a worker process, prints its pid, and then waits to be killed."""

import asyncio

from server.workers.orders import Load, ModelSource
from server.workers.worker import ProcessChannel, Worker, WorkerKind, shared_cells


async def main() -> None:
    channel = ProcessChannel(shared_cells(WorkerKind.PROCESS, 1), "orphan-to-be")
    worker = Worker("orphan-to-be", channel, lambda: None, plan_limit_s=60.0)
    source = ModelSource(name="accumulator", factory="tests.support.accumulator_model:make_live")
    await worker.load(Load(source=source, instance=0, device="cpu", threads=1))
    print(channel.pid, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
