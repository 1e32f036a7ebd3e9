"""Sentiment of live finals over the wire: asked for by the query, refused before the upgrade where nobody tells it."""

import pytest
from websockets.exceptions import InvalidStatus

from asr_model.transcript import Sentiment
from tests.server.engine.test_sentiments import FIRST, SECOND, feeling
from tests.support.accumulator_model import summary
from tests.support.feeling_model import score_of
from tests.support.models import http
from tests.support.service import Sent, client, exchange, serving
from tests.support.wire import linear16

FINALIZE = '{"type": "Finalize"}'
END = '{"type": "CloseStream"}'


async def test_who_asks_is_told_beside_the_text_of_each_final() -> None:
    messages: list[Sent] = [linear16(FIRST), FINALIZE, linear16(SECOND), END]
    async with serving(feeling()) as service:
        asked = await exchange(service, messages, "sentiment=true&interim_results=true")
        plain = await exchange(service, messages)
    assert asked.texts == plain.texts
    told = [each["channel"]["alternatives"][0] for each in asked.finals if each["channel"]["alternatives"][0]["words"]]
    expected = [Sentiment.of(score_of(summary(audio))) for audio in (FIRST, SECOND)]
    assert [(each["sentiment"], each["sentiment_score"]) for each in told] == [(e.label, e.score) for e in expected]
    for each in (*asked.interims, *plain.finals):
        assert "sentiment" not in each["channel"]["alternatives"][0]


async def test_a_service_that_does_not_tell_it_says_so_before_the_upgrade() -> None:
    async with serving() as service:
        with pytest.raises(InvalidStatus) as caught:
            async with client(service, "sentiment=true"):
                pass
        assert caught.value.response.status_code == 400
        assert "sentiment is 'true'; allowed: false" in caught.value.response.headers["dg-error"]
        assert service.gateway.stats().refusals == {"bad_parameter": 1}
        heard = await exchange(service, [linear16(FIRST), END], "sentiment=false")
    assert heard.texts == [summary(FIRST)]


async def test_a_service_whose_model_is_unloaded_refuses_it_as_well() -> None:
    """And tells it again once the model is back."""
    recording = "/v1/listen?encoding=linear16&sample_rate=16000&utterances=true&sentiment=true"
    async with serving(feeling()) as service, http(service) as web:
        await service.engine.repository.unload("mood")
        with pytest.raises(InvalidStatus) as caught:
            async with client(service, "sentiment=true"):
                pass
        refused = await web.post(recording, content=linear16(FIRST))
        await service.engine.repository.load("mood")
        told = await web.post(recording, content=linear16(FIRST))
    assert caught.value.response.status_code == 400
    assert "sentiment is 'true'; allowed: false" in caught.value.response.headers["dg-error"]
    assert (refused.status_code, refused.json()["parameter"]) == (400, "sentiment"), refused.text
    (utterance,) = told.json()["results"]["utterances"]
    expected = Sentiment.of(score_of(summary(FIRST)))
    assert (utterance["sentiment"], utterance["sentiment_score"]) == (expected.label, expected.score)
    assert told.json()["results"]["sentiments"]["average"]["sentiment"] == expected.label
