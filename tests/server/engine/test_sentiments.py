"""How finals sound: told beside their texts to those who asked, in order. No final is ever missing for it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from asr_model.transcript import Sentiment
from server.engine import sentiment_reader
from server.engine.engine import Engine
from server.engine.engine_config import EngineConfig
from server.errors import ConfigError
from server.events import CloseCause, SequenceClosed
from server.ids import SequenceId
from server.plan import Samples
from server.workers.orders import ModelSource
from tests.support.accumulator_model import exact_audio, summary
from tests.support.engines import CONFIG, Heard, further, listen, running, until
from tests.support.feeling_model import score_of

FIRST, SECOND = exact_audio(1, 400), exact_audio(2, 300)


def feeling(config: EngineConfig = CONFIG, **options: str | float) -> EngineConfig:
    """A service that tells how finals sound, with two copies of the model, so that one text may pass another."""
    model = further("mood", "feeling", instances=2, max_batch=1)
    source = ModelSource(name="feeling", factory="tests.support.feeling_model:build", options=options)
    return replace(config, models=(replace(model, source=source),), sentiment="mood")


async def said(engine: Engine, *utterances: Samples, asks: bool = True) -> Heard:
    """What a sequence of utterances heard."""
    handle = engine.open(SequenceId("s"), sentiments=engine.sentiment_reader if asks else None)
    hearing = asyncio.create_task(listen(handle))
    for audio in utterances:
        await handle.send(audio)
        await handle.finalize()
    await handle.end()
    return await hearing


def told(engine: Engine) -> Mapping[str, int]:
    return engine.stats().sentiments


async def test_finals_are_told_with_the_sentiment_of_their_own_text() -> None:
    async with running(feeling()) as engine:
        heard = await said(engine, FIRST, SECOND)
        assert told(engine) == {"told": 2}
    spoken = [event for event in heard.finals if event.words]
    assert heard.final_texts == [summary(FIRST), summary(SECOND), ""]
    assert [event.sentiment for event in spoken] == [Sentiment.of(score_of(text)) for text in heard.final_texts[:2]]
    assert heard.finals[2].sentiment is None
    assert isinstance(heard.terminal, SequenceClosed)


async def test_without_a_final_model_it_is_that_of_the_live_text() -> None:
    async with running(feeling(replace(CONFIG, final=None))) as engine:
        heard = await said(engine, FIRST)
    assert heard.finals[0].sentiment == Sentiment.of(score_of(summary(FIRST)))


async def test_who_does_not_ask_costs_nothing() -> None:
    async with running(feeling()) as engine:
        heard = await said(engine, FIRST, asks=False)
        assert told(engine) == {}
        assert engine.repository.get("mood").stats().completed == 0
    assert [event.sentiment for event in heard.finals] == [None, None]


async def test_finals_keep_their_order_whatever_that_of_their_sentiments() -> None:
    async with running(feeling(slow=summary(FIRST), slow_s=0.3)) as engine:
        heard = await said(engine, FIRST, SECOND)
    assert heard.final_texts == [summary(FIRST), summary(SECOND), ""]
    assert [event.utterance for event in heard.finals] == [0, 1, 2]
    assert all(event.sentiment is not None for event in heard.finals[:2])


async def test_one_that_is_late_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentiment_reader, "LIMIT_S", 0.1)
    async with running(feeling(slow=summary(FIRST), slow_s=1.0)) as engine:
        heard = await said(engine, FIRST, SECOND)
        assert told(engine) == {"late": 1, "told": 1}
    assert heard.final_texts == [summary(FIRST), summary(SECOND), ""]
    assert [event.sentiment is None for event in heard.finals] == [True, False, True]


async def test_a_model_that_says_nothing_of_use_or_is_gone_takes_no_final_along() -> None:
    async with running(feeling(bad=summary(FIRST))) as engine:
        heard = await said(engine, FIRST)
        assert told(engine) == {"failed": 1}
        await engine.repository.unload("mood")
        without = await said(engine, FIRST)
        assert told(engine) == {"failed": 1, "unknown_model": 1}
    for each in (heard, without):
        assert each.final_texts == [summary(FIRST), ""]
        assert each.finals[0].sentiment is None


async def test_a_sequence_that_is_over_meanwhile_is_told_so_at_once() -> None:
    async with running(feeling(slow=summary(FIRST), slow_s=0.5)) as engine:
        handle = engine.open(SequenceId("s"), sentiments=engine.sentiment_reader)
        await handle.send(FIRST)
        await handle.end()
        await until(lambda: engine.stats().request_batchers["mood"].in_flight > 0)
        await handle.cancel()
        heard = await listen(handle)
    assert isinstance(heard.terminal, SequenceClosed)
    assert heard.terminal.cause is CloseCause.CANCELLED
    assert heard.finals == []


async def test_an_engine_that_stops_tells_the_text_it_has() -> None:
    async with running(feeling(slow=summary(FIRST), slow_s=0.5)) as engine:
        handle = engine.open(SequenceId("s"), sentiments=engine.sentiment_reader)
        await handle.send(FIRST)
        await handle.finalize()
        await until(lambda: engine.stats().request_batchers["mood"].in_flight > 0)
        before = asyncio.all_tasks()
        await engine.stop()
        heard = await listen(handle)
        assert asyncio.all_tasks() <= before
    assert heard.final_texts == [summary(FIRST)]
    assert heard.failure == "shutting_down"


async def test_many_texts_are_read_in_order_and_not_all_at_once() -> None:
    texts = [f"text {number}" for number in range(300)]
    config = feeling()
    config = replace(config, models=tuple(replace(model, max_queued=40) for model in config.models))
    async with running(config) as engine:
        assert engine.sentiment_reader is not None
        found = await engine.sentiment_reader.read_all([*texts, ""])
    assert found == [*(Sentiment.of(score_of(text)) for text in texts), None]


async def test_a_slow_model_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentiment_reader, "TEXTS_AT_ONCE", 1)
    monkeypatch.setattr(sentiment_reader, "ALL_LIMIT_S", 0.1)
    async with running(feeling(slow="slow", slow_s=0.3)) as engine:
        assert engine.sentiment_reader is not None
        found = await engine.sentiment_reader.read_all(["slow", *(f"text {number}" for number in range(50))])
        assert told(engine) == {"told": 1, "late": 50}
    assert found[0] == Sentiment.of(score_of("slow"))
    assert found[1:] == [None] * 50


@pytest.mark.parametrize("model", ["echo", "accumulator", "mean"])
async def test_a_model_that_cannot_tell_it_is_refused_at_the_start(model: str) -> None:
    config = replace(CONFIG, models=(further("mood", model),), sentiment="mood")
    with pytest.raises(ConfigError, match=r"final\.sentiment: mood "):
        async with running(config):
            pass


async def test_the_classifier_of_the_registry_can() -> None:
    config = replace(CONFIG, models=(further("mood", "sentiment"),), sentiment="mood")
    async with running(config) as engine:
        assert engine.sentiment_reader is not None
        good, bad = await engine.sentiment_reader.read_all(["A wonderful, moving film.", "Dull, stupid, a waste."])
    assert good is not None
    assert bad is not None
    assert (good.label, bad.label) == ("positive", "negative")
