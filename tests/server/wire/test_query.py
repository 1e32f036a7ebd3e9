"""The query of /v1/listen: what is taken, and the words of each refusal."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.wire.query import HONOURED, INERT, BadQuery, SessionOptions, parse_query


def refused(query: str) -> BadQuery:
    with pytest.raises(BadQuery) as caught:
        parse_query(query)
    return caught.value


class TestTaken:
    def test_defaults(self) -> None:
        assert parse_query("") == SessionOptions(sample_rate=16_000, interim_results=False)

    def test_what_is_honoured(self) -> None:
        options = parse_query("encoding=linear16&sample_rate=48000&channels=1&interim_results=true")
        assert options == SessionOptions(sample_rate=48_000, interim_results=True)

    @pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
    def test_rates(self, rate: int) -> None:
        assert parse_query(f"sample_rate={rate}").sample_rate == rate

    @pytest.mark.parametrize(("name", "value"), [(name, value) for name in INERT for value in INERT[name].values])
    def test_what_changes_nothing(self, name: str, value: str) -> None:
        assert parse_query(f"{name}={value}") == SessionOptions()

    def test_labels_take_any_text_any_number_of_times(self) -> None:
        assert parse_query("tag=a%20b&tag=&extra=x:y&extra=z") == SessionOptions()

    def test_language_in_any_case(self) -> None:
        assert parse_query("language=en-US&model=Nova-3") == SessionOptions()

    def test_each_inert_parameter_says_why(self) -> None:
        assert all(len(inert.why) > 10 for inert in INERT.values())
        assert not set(HONOURED) & set(INERT)


class TestRefused:
    @pytest.mark.parametrize(
        "value", ["0", "-1", "7999", "48001", "", "16k", "1e4", "16000.0", "٨٠٠٠", "9" * 400, "+8000"]
    )
    def test_rates(self, value: str) -> None:
        error = refused(f"sample_rate={value.replace('+', '%2B')}")
        assert str(error) == f"query parameter sample_rate is {value!r}; allowed: an integer from 8000 to 48000"

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("encoding=opus", "query parameter encoding is 'opus'; allowed: linear16"),
            ("channels=2", "query parameter channels is '2'; allowed: 1"),
            ("interim_results=yes", "query parameter interim_results is 'yes'; allowed: true, false"),
            ("interim_results=", "query parameter interim_results is ''; allowed: true, false"),
            ("punctuate=false", "query parameter punctuate is 'false'; allowed: true"),
            ("diarize=true", "query parameter diarize is 'true'; allowed: false"),
            ("sample_rate=16000&sample_rate=8000", "query parameter sample_rate is '8000'; allowed: to be given once"),
        ],
    )
    def test_values(self, query: str, message: str) -> None:
        assert str(refused(query)) == message

    def test_languages_that_are_not_read(self) -> None:
        error = refused("language=de")
        assert (error.parameter, error.value) == ("language", "de")
        assert error.allowed.startswith("en, en-us, ")

    @pytest.mark.parametrize("name", ["callback", "keywords", "sampel_rate", "Encoding", "", "a\r\nb"])
    def test_unknown_parameters_by_name(self, name: str) -> None:
        error = refused(f"{name.replace(chr(13), '%0D').replace(chr(10), '%0A')}=1")
        assert (error.parameter, error.value) == (name, None)
        assert str(error).startswith(f"query parameter {name} is not known; allowed: encoding, sample_rate, ")

    def test_a_query_without_end(self) -> None:
        assert refused("tag=" + "x" * 5000).allowed == "at most 2048 characters"


class TestAnything:
    @given(st.text(max_size=60))
    def test_any_text_is_taken_or_refused(self, query: str) -> None:
        with contextlib.suppress(BadQuery):
            assert isinstance(parse_query(query), SessionOptions)
