"""The query of /v1/listen: what is taken, and the words of each refusal."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.codec.audio_format import MAX_RATE, MIN_RATE, AudioFormat
from server.plan import SequenceOptions
from server.wire.parameters import BOOLEAN, LANGUAGES, MODELS, PARAMETERS, Choice, Nothing, Support
from server.wire.query import BadQuery, SessionOptions, parse_query
from server.wire.text_format import TextFormat


def refused(query: str) -> BadQuery:
    with pytest.raises(BadQuery) as caught:
        parse_query(query)
    return caught.value


class TestAudio:
    def test_without_parameters_the_audio_says_what_it_is(self) -> None:
        assert parse_query("") == SessionOptions()
        assert parse_query("").audio == AudioFormat(encoding=None, sample_rate=None, channels=1)

    @pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
    def test_a_rate_alone_is_of_linear16(self, rate: int) -> None:
        assert parse_query(f"sample_rate={rate}").audio == AudioFormat(encoding="linear16", sample_rate=rate)

    @pytest.mark.parametrize("encoding", ["linear16", "linear32", "float32"])
    def test_linear_audio_without_a_rate_has_that_of_the_models(self, encoding: str) -> None:
        assert parse_query(f"encoding={encoding}").audio.sample_rate == 16_000

    @pytest.mark.parametrize("encoding", ["mulaw", "alaw"])
    def test_telephony_needs_its_rate(self, encoding: str) -> None:
        assert parse_query(f"encoding={encoding}&sample_rate=8000").audio.encoding == encoding
        error = refused(f"encoding={encoding}")
        assert error.parameter == "sample_rate"
        assert str(error).startswith("query parameter sample_rate is missing; allowed: an integer from ")
        assert str(error).endswith(f". encoding={encoding} needs it; telephony has 8000.")

    @pytest.mark.parametrize("encoding", ["flac", "opus", "ogg-opus"])
    def test_codecs_say_their_own_rate(self, encoding: str) -> None:
        assert parse_query(f"encoding={encoding}").audio == AudioFormat(encoding=encoding)
        assert parse_query(f"encoding={encoding}&sample_rate=48000").audio.encoding == encoding

    @pytest.mark.parametrize("encoding", ["amr-nb", "amr-wb", "speex", "g729", "mp3", ""])
    def test_encodings_that_are_not_taken(self, encoding: str) -> None:
        allowed = "linear16, linear32, float32, mulaw, alaw, flac, opus, ogg-opus"
        assert str(refused(f"encoding={encoding}")) == f"query parameter encoding is {encoding!r}; allowed: {allowed}"

    def test_channels(self) -> None:
        mixed = parse_query("encoding=linear16&channels=2")
        assert (mixed.audio.channels, mixed.sequences) == (2, 1)
        apart = parse_query("encoding=linear16&channels=8&multichannel=true")
        assert (apart.audio.channels, apart.sequences) == (8, 8)

    @pytest.mark.parametrize("value", ["0", "9", "-1", "two", "1.0", ""])
    def test_channels_that_are_none(self, value: str) -> None:
        assert refused(f"channels={value}").allowed == "an integer from 1 to 8"

    def test_multichannel_needs_to_know_how_many(self) -> None:
        error = refused("multichannel=true&encoding=linear16")
        assert (error.parameter, error.value) == ("channels", None)
        assert str(error).startswith(
            "query parameter channels is missing; allowed: an integer from 1 to 8. multichannel"
        )
        assert "multichannel=true needs it" in str(error)

    def test_opus_has_two_channels_at_most(self) -> None:
        assert parse_query("encoding=opus&channels=2&multichannel=true").sequences == 2
        assert refused("encoding=opus&channels=3").allowed == "an integer from 1 to 2"

    @pytest.mark.parametrize(
        "value", ["0", "-1", str(MIN_RATE - 1), str(MAX_RATE + 1), "", "16k", "1e4", "16000.0", "٨٠٠٠", "9" * 400, "+1"]
    )
    def test_rates_that_are_none(self, value: str) -> None:
        error = refused(f"sample_rate={value.replace('+', '%2B')}")
        assert error.allowed == f"an integer from {MIN_RATE} to {MAX_RATE}"
        assert error.value == value
        assert len(str(error)) < 200


class TestEndpointing:
    @pytest.mark.parametrize(
        ("query", "silence_ms", "is_speech_final"),
        [
            ("", None, True),
            ("endpointing=true", None, True),
            ("endpointing=false", 0, False),
            ("endpointing=0", 0, False),
            ("endpointing=10", 10, True),
            ("endpointing=10000", 10_000, True),
            # UtteranceEnd follows a final, so its silence ends the utterance too
            ("utterance_end_ms=1000", None, True),
            ("utterance_end_ms=1000&endpointing=300", 300, True),
            ("utterance_end_ms=1000&endpointing=1000", 1000, True),
            ("utterance_end_ms=1000&endpointing=5000", 1000, False),
            ("utterance_end_ms=1000&endpointing=false", 1000, False),
        ],
    )
    def test_silence(self, query: str, silence_ms: int | None, is_speech_final: bool) -> None:
        options = parse_query(f"interim_results=true&{query}")
        assert options.sequence_options() == SequenceOptions(endpoint_silence_ms=silence_ms)
        assert options.endpoint_is_speech_final == is_speech_final

    @pytest.mark.parametrize("value", ["9", "10001", "-10", "10.5", "none", ""])
    def test_other_values(self, value: str) -> None:
        assert refused(f"endpointing={value}").allowed == "true, false, 0 or an integer from 10 to 10000"

    def test_utterance_end_needs_interim_results(self) -> None:
        for query, said in (("", "is missing"), ("&interim_results=false", "is 'false'")):
            error = refused(f"utterance_end_ms=1000{query}")
            assert (error.parameter, error.allowed) == ("interim_results", "true")
            assert str(error).startswith(
                f"query parameter interim_results {said}; allowed: true. utterance_end_ms needs"
            )

    @pytest.mark.parametrize("value", ["999", "10001", "true", "1s"])
    def test_utterance_end_has_bounds(self, value: str) -> None:
        error = refused(f"interim_results=true&utterance_end_ms={value}")
        assert error.allowed == "an integer from 1000 to 10000"


class TestText:
    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("punctuate=true&filler_words=true&profanity_filter=false", TextFormat()),
            ("punctuate=false", TextFormat(punctuate=False)),
            ("punctuate=false&smart_format=false", TextFormat(punctuate=False)),
            ("punctuate=false&smart_format=true", TextFormat()),
            ("filler_words=false", TextFormat(filler_words=False)),
            ("profanity_filter=true", TextFormat(mask_profanity=True)),
        ],
    )
    def test_options(self, query: str, text: TextFormat) -> None:
        assert parse_query(query) == SessionOptions(text=text)


class TestLabels:
    def test_any_number_of_times(self) -> None:
        options = parse_query("tag=a%20b&tag=&extra=x:y&extra=z:1:2")
        assert (options.tags, options.extra) == (("a b", ""), (("x", "y"), ("z", "1:2")))

    @pytest.mark.parametrize("value", ["", "x", ":y", "k:" + "v" * 2050])
    def test_extra_is_a_pair(self, value: str) -> None:
        assert refused(f"extra={value}").allowed == "KEY:VALUE, at most 2048 characters"


class TestModel:
    @pytest.mark.parametrize("name", ["nova-3", "Nova-3", "nova-2-phonecall", "general", "moonshine"])
    def test_general_names(self, name: str) -> None:
        assert parse_query(f"model={name}") == SessionOptions()

    @pytest.mark.parametrize("name", ["nova-3-medical", "nova-2-drivethru", "flux-general-en", "whisper-large", ""])
    def test_names_that_promise_more(self, name: str) -> None:
        assert refused(f"model={name}").parameter == "model"

    def test_names_of_the_configuration(self) -> None:
        assert parse_query("model=our-own", models=("our-own",)) == SessionOptions()
        assert refused("model=our-own").parameter == "model"

    def test_languages_that_are_not_read(self) -> None:
        for language in ("de", "multi", "en-XX", "zh-CN"):
            error = refused(f"language={language}")
            assert (error.parameter, error.value) == ("language", language)
            assert error.allowed.startswith("en, en-us, ")


NO_EFFECT = [
    (name, value)
    for name, parameter in PARAMETERS.items()
    if isinstance(parameter.values, Choice) and parameter.support is not Support.SUPPORTED
    for value in parameter.values.words
]


class TestTable:
    @pytest.mark.parametrize(("name", "value"), NO_EFFECT)
    def test_what_changes_nothing_is_taken_in_any_case(self, name: str, value: str) -> None:
        assert parse_query(f"{name}={value}") == parse_query(f"{name}={value.upper()}") == SessionOptions()

    @pytest.mark.parametrize("name", [name for name, each in PARAMETERS.items() if each.support is Support.REFUSED])
    @pytest.mark.parametrize("value", ["true", "x", "1", ""])
    def test_what_is_refused_says_why(self, name: str, value: str) -> None:
        error = refused(f"{name}={value}")
        assert str(error) == (
            f"query parameter {name} is {value!r}; allowed: {PARAMETERS[name].values.allowed}. {PARAMETERS[name].note}"
        )

    @pytest.mark.parametrize("name", [name for name, each in PARAMETERS.items() if each.values is BOOLEAN])
    @pytest.mark.parametrize("value", ["yes", "1", "on", ""])
    def test_flags_are_true_or_false(self, name: str, value: str) -> None:
        assert refused(f"{name}={value}").allowed == "true, false"

    @pytest.mark.parametrize("name", [name for name, each in PARAMETERS.items() if not each.is_repeatable])
    def test_most_are_given_once(self, name: str) -> None:
        values = PARAMETERS[name].values
        if isinstance(values, Nothing):
            return
        some = next(
            text
            for text in ("true", "false", "1", "8000", "1000", *MODELS, *LANGUAGES, "linear16", "latest", "nova")
            if values.read(text)
        )
        error = refused(f"{name}={some}&{name}={some}")
        assert (error.parameter, error.allowed) == (name, "to be given once")

    def test_every_entry_explains_itself(self) -> None:
        assert all(len(each.note) > 10 and each.note.endswith((".", '"')) for each in PARAMETERS.values())

    def test_every_parameter_of_the_live_api_is_there(self) -> None:
        live = (
            "callback callback_method channels detect_entities diarize diarize_model dictation encoding endpointing "
            "extra interim_results keyterm keywords language language_hint mip_opt_out model multichannel numerals "
            "profanity_filter punctuate redact replace sample_rate search smart_format tag utterance_end_ms vad_events "
            "version"
        )
        assert set(live.split()) <= set(PARAMETERS)


class TestRefused:
    @pytest.mark.parametrize("name", ["sampel_rate", "Encoding", "eot_threshold", "", "a\r\nb"])
    def test_unknown_parameters_by_name(self, name: str) -> None:
        error = refused(f"{name.replace(chr(13), '%0D').replace(chr(10), '%0A')}=1")
        assert (error.parameter, error.value) == (name, None)
        assert str(error).startswith(f"query parameter {name} is not known; allowed: encoding, sample_rate, ")
        assert "keyterm" not in str(error)

    def test_a_query_without_end(self) -> None:
        assert refused("tag=" + "x" * 5000).allowed == "at most 4096 characters"

    @pytest.mark.parametrize("query", ["x" * 4000 + "=1", "model=" + "x" * 4000])
    def test_messages_stay_short(self, query: str) -> None:
        assert len(str(refused(query))) < 1500


class TestClients:
    """Queries as well-known clients send them, with the values that they have by default."""

    def test_pipecat(self) -> None:
        options = parse_query(
            "channels=1&detect_entities=false&diarize=false&dictation=false&encoding=linear16&interim_results=true"
            "&language=en&model=nova-3-general&multichannel=false&numerals=false&profanity_filter=true&punctuate=true"
            "&sample_rate=16000&smart_format=false"
        )
        assert options.interim_results
        assert options.text == TextFormat(mask_profanity=True)

    def test_livekit(self) -> None:
        options = parse_query(
            "model=nova-3&punctuate=true&smart_format=false&no_delay=true&interim_results=true&encoding=linear16"
            "&vad_events=true&sample_rate=16000&channels=1&endpointing=25&filler_words=true&profanity_filter=false"
            "&numerals=false&mip_opt_out=false&language=en-US"
        )
        assert (options.endpointing_ms, options.vad_events, options.text) == (25, True, TextFormat())

    def test_the_example_of_utterance_end(self) -> None:
        options = parse_query(
            "model=nova-2&language=en-US&smart_format=true&encoding=linear16&channels=1&sample_rate=16000"
            "&interim_results=true&utterance_end_ms=1000&vad_events=true&endpointing=300"
        )
        assert (options.utterance_end_ms, options.endpointing_ms, options.vad_events) == (1000, 300, True)


class TestAnything:
    @given(st.text(max_size=60))
    def test_any_text_is_taken_or_refused(self, query: str) -> None:
        with contextlib.suppress(BadQuery):
            assert isinstance(parse_query(query), SessionOptions)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(sorted(PARAMETERS)),
                st.sampled_from(
                    [
                        "true",
                        "false",
                        "0",
                        "1",
                        "2",
                        "25",
                        "1000",
                        "8000",
                        "opus",
                        "mulaw",
                        "linear16",
                        "flac",
                        "x:y",
                        "en",
                        "latest",
                    ]
                ),
            ),
            max_size=6,
        )
    )
    def test_any_known_parameters_are_taken_or_refused(self, pairs: list[tuple[str, str]]) -> None:
        with contextlib.suppress(BadQuery):
            options = parse_query("&".join(f"{name}={value}" for name, value in pairs))
            assert 1 <= options.sequences <= 8
            options.sequence_options()
