"""Models that take tensors, in an engine: the accumulator under the sequence batcher, ``mean`` under the dynamic."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
import pytest_asyncio

from server.engine.engine import Engine
from server.engine.served_model import ModelState, ServedModel
from server.errors import (
    BadTensor,
    CapacityExceeded,
    ConfigError,
    MissingStart,
    MoorageError,
    QueueFull,
    SequenceAlreadyEnded,
    ShuttingDown,
    UnknownModel,
)
from server.plan import CorrelationId, Tensors
from tests.support.engines import ACCUMULATOR, floats, further, integers, output, running, turn, until, with_models

CONFIG = with_models(
    further("sum", "accumulator", instances=2, slots=4, max_batch=4),
    further("mean", "mean", max_batch=4, max_delay_ms=200.0),
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Engine]:
    """One for all tests, so that each also shows that the one before left nothing."""
    async with running(CONFIG) as engine:
        yield engine
        assert engine.stats().sequence_batchers["sum"].live == 0


@pytest.fixture
def adder(engine: Engine) -> ServedModel:
    return engine.repository.get("sum")


async def say(model: ServedModel, correlation_id: CorrelationId, *values: int) -> list[float]:
    """A whole sequence, one turn a value; every answer."""
    answers = []
    for index, value in enumerate(values):
        place = turn(correlation_id, start=index == 0, end=index == len(values) - 1)
        answers += output(await model.infer(integers(value), turn=place))
    return answers


async def refused(model: ServedModel, tensors: Tensors, **options: object) -> MoorageError:
    with pytest.raises(MoorageError) as caught:
        await model.infer(tensors, **options)  # type: ignore[arg-type]  # given as keywords
    return caught.value


async def test_eight_sequences_at_once_each_hear_their_own_sum_on_both_instances(engine: Engine) -> None:
    model = engine.repository.get("sum")
    before = engine.stats().further["sum"]
    values = {name: [name * 10 + index for index in range(5)] for name in range(1, 9)}
    heard = await asyncio.gather(*(say(model, name, *each) for name, each in values.items()))
    assert heard == [[float(sum(each[: index + 1])) for index in range(5)] for each in values.values()]
    after = engine.stats().further["sum"]
    assert after.outcomes["completed"] - before.outcomes.get("completed", 0) == 40
    assert set(after.busy_s) == {0, 1}
    assert after.batch_size.total - before.batch_size.total == 40
    assert after.batch_size.count - before.batch_size.count < 40, "no two sequences ever shared a step"


async def test_a_number_and_the_text_of_it_are_two_sequences(adder: ServedModel) -> None:
    await adder.infer(integers(1), turn=turn(42, start=True))
    await adder.infer(integers(100), turn=turn("42", start=True))
    assert output(await adder.infer(integers(2), turn=turn(42, end=True))) == [3]
    assert output(await adder.infer(integers(200), turn=turn("42", end=True))) == [300]


async def test_turns_that_come_all_at_once_run_in_their_order(adder: ServedModel) -> None:
    calls = [adder.infer(integers(10**n), turn=turn(5, start=n == 0, end=n == 5)) for n in range(6)]
    assert [output(each) for each in await asyncio.gather(*calls)] == [[1], [11], [111], [1111], [11111], [111111]]


async def test_a_start_of_a_live_sequence_begins_it_anew(engine: Engine, adder: ServedModel) -> None:
    assert output(await adder.infer(integers(7), turn=turn(9, start=True))) == [7]
    assert output(await adder.infer(integers(1), turn=turn(9, start=True))) == [1]
    assert output(await adder.infer(integers(1), turn=turn(9, end=True))) == [2]
    assert engine.stats().sequence_batchers["sum"].restarts == 1


async def test_turns_out_of_place(adder: ServedModel) -> None:
    assert isinstance(await refused(adder, integers(1)), MissingStart)
    assert isinstance(await refused(adder, integers(1), turn=turn(1000)), MissingStart)
    await say(adder, 1001, 1, 2)
    assert isinstance(await refused(adder, integers(1), turn=turn(1001)), SequenceAlreadyEnded | MissingStart)
    mean_of_none = await refused(adder, integers(1, 2), turn=turn(1002, start=True))
    assert (mean_of_none.code, "one row" in str(mean_of_none)) == ("bad_tensor", True)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (Tensors(arrays={}), "sum: input INPUT is missing"),
        (Tensors(arrays={"X": np.zeros((1, 1), np.int32)}), "sum: the model has no input X; it has INPUT"),
        (Tensors(arrays={"INPUT": np.zeros((1, 1), np.int64)}), "sum: input INPUT is INT64, it must be INT32"),
        (Tensors(arrays={"INPUT": np.zeros((1, 2), np.int32)}), "sum: input INPUT has shape [1, 2], it must be [1, 1]"),
    ],
)
async def test_what_the_model_does_not_take(adder: ServedModel, tensors: Tensors, said: str) -> None:
    error = await refused(adder, tensors, turn=turn(3, start=True))
    assert isinstance(error, BadTensor)
    assert str(error) == said


async def test_a_full_model_refuses_and_a_cancelled_call_frees_its_slot(engine: Engine, adder: ServedModel) -> None:
    for name in range(100, 108):
        await adder.infer(integers(1), turn=turn(name, start=True))
    assert isinstance(await refused(adder, integers(1), turn=turn(200, start=True)), CapacityExceeded)
    calls = [asyncio.create_task(adder.infer(integers(1), turn=turn(100))) for _ in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(ends[1], asyncio.CancelledError)
    assert all(isinstance(end, SequenceAlreadyEnded | Tensors) for end in (ends[0], ends[2]))
    assert isinstance(ends[2], SequenceAlreadyEnded), "the whole sequence went with it"
    await until(lambda: sum(each.slots_held for each in engine.stats().sequence_batchers["sum"].instances) == 7)
    assert output(await adder.infer(integers(5), turn=turn(200, start=True, end=True))) == [5]
    for name in range(101, 108):
        assert output(await adder.infer(integers(1), turn=turn(name, end=True))) == [2]


async def test_independent_requests_of_several_lengths_share_one_batch(engine: Engine) -> None:
    mean = engine.repository.get("mean")
    before = engine.stats().further["mean"].batch_size
    rows = [[1.0], [1.0, 2.0], [3.0, 4.0, 5.0, 6.0], [10.0, 20.0]]
    answers = await asyncio.gather(*(mean.infer(floats(*row)) for row in rows))
    assert [output(each, "MEAN") for each in answers] == [[1.0], [1.5], [4.5], [15.0]]
    after = engine.stats().further["mean"].batch_size
    assert (after.count - before.count, after.total - before.total) == (1, 4)
    assert isinstance(await refused(mean, floats(1.0), turn=turn(1, start=True)), BadTensor)


async def test_a_request_may_be_cancelled_and_its_company_is_answered(engine: Engine) -> None:
    mean = engine.repository.get("mean")
    calls = [asyncio.create_task(mean.infer(floats(value))) for value in (1.0, 2.0)]
    await asyncio.sleep(0)
    calls[0].cancel()
    first, second = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(second, Tensors)
    assert output(second, "MEAN") == [2.0]


async def test_the_models_that_listen_take_no_tensors(engine: Engine) -> None:
    live = engine.repository.get("live")
    assert (live.state, live.scheduler, live.declared.listens) == (ModelState.READY, "sequence", True)
    assert isinstance(await refused(live, integers(1)), BadTensor)
    with pytest.raises(UnknownModel, match="there are live, sum, mean"):
        engine.repository.get("sums")


async def test_what_is_told_of_them(engine: Engine) -> None:
    stats = engine.repository.get("sum").stats()
    assert (stats.model.role, stats.model.name, stats.model.scheduler) == ("sum", "accumulator", "sequence")
    assert (stats.model.declared_scheduler, stats.model.configured_scheduler) == ("sequence", "")
    assert (stats.model.instances, stats.model.instance_slots, stats.model.strategy) == (2, (4, 4), "oldest")
    assert (stats.completed > 50, set(stats.failed)) == (True, {"cancelled", "sequence_ended"})
    index = {entry.name: (entry.version, entry.state, entry.reason) for entry in engine.repository.index()}
    assert index == dict.fromkeys(("live", "sum", "mean"), ("1", ModelState.READY, ""))


async def test_many_rows_of_one_request_come_back_together(engine: Engine) -> None:
    async with running(with_models(further("echo", "mean", max_batch=8))) as other:
        tensors = Tensors(arrays={"INPUT": np.arange(12, dtype=np.float32).reshape(4, 3)}, n_rows=4)
        answer = await other.repository.get("echo").infer(tensors)
        assert (output(answer, "MEAN"), answer.n_rows) == ([1.0, 4.0, 7.0, 10.0], 4)
        too_many = Tensors(arrays={"INPUT": np.zeros((9, 1), np.float32)}, n_rows=9)
        assert isinstance(await refused(other.repository.get("echo"), too_many), BadTensor)


async def test_a_queue_that_is_full_refuses() -> None:
    config = with_models(further("mean", "mean", max_batch=8, max_delay_ms=60_000.0, max_queued=2))
    async with running(config) as engine:
        mean = engine.repository.get("mean")
        calls = [asyncio.create_task(mean.infer(floats(1.0))) for _ in range(2)]
        await asyncio.sleep(0)
        assert isinstance(await refused(mean, floats(1.0)), QueueFull)
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [ShuttingDown] * 2, "stopping answers those who wait"


async def test_a_request_with_a_timeout_of_its_own() -> None:
    config = with_models(further("mean", "mean", max_batch=8, max_delay_ms=60_000.0))
    async with running(config) as engine:
        error = await refused(engine.repository.get("mean"), floats(1.0), timeout_ns=20_000_000)
        assert error.code == "request_timeout"
        assert engine.repository.get("mean").stats().failed == {"request_timeout": 1}


async def test_a_model_that_declares_no_scheduler_needs_one_in_the_configuration() -> None:
    source = replace(ACCUMULATOR, factory="tests.support.accumulator_model:make_undeclared")
    config = with_models()
    undeclared = replace(config, live=replace(config.live, source=source))
    with pytest.raises(ConfigError, match=r"live\.scheduler: accumulator does not say which batcher it needs"):
        async with running(undeclared):
            pass
    async with running(replace(undeclared, live=replace(undeclared.live, scheduler="sequence"))) as engine:
        assert engine.repository.get("live").scheduler == "sequence"
        (model,) = engine.stats().models
        assert (model.declared_scheduler, model.configured_scheduler) == ("", "sequence")


async def test_a_model_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"models\.x\.model: light-lstm listens to audio"):
        async with running(with_models(further("x", "light-lstm"))):
            pass


async def test_the_swapped_scheduler_is_refused_and_where_it_is_allowed_answers_wrongly_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    swapped = further("sum", "accumulator", instances=2, scheduler="dynamic")
    with pytest.raises(ConfigError, match="accumulator is stateful and needs the sequence batcher"):
        async with running(with_models(swapped)):
            pass
    async with running(with_models(replace(swapped, allow_wrong_scheduler=True))) as engine:
        answers = await say(engine.repository.get("sum"), 77, 1, 2, 3)
        stats = {model.role: model for model in engine.stats().models}["sum"]
    assert answers != [1, 3, 6], "nothing takes a turn to the state of the one before"
    assert (stats.is_wrong_scheduler, stats.scheduler, stats.declared_scheduler) == (True, "dynamic", "sequence")
    assert any("WRONG" in record.message for record in caplog.records if record.levelname == "ERROR")
