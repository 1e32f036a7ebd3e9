"""What the fixtures are: the texts, voices, formats and cuts, as data. ``build.py`` turns them into files."""

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """A voice of one of the two synthesisers, both deterministic."""

    engine: str
    """``espeak-ng`` or ``flite``: the program that is run."""
    name: str
    """As the program's ``-v`` (espeak-ng) or ``-voice`` (flite) takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesised:
    """One synthesised file."""

    file: str
    kind: str
    voice: Voice
    parts: tuple[str, ...]
    """Sentences that are synthesised one by one and joined with ``pause_s`` of digital silence."""
    rate: int
    gains: tuple[float, ...] = (1.0,)
    """One channel each: its gain over the mono signal."""
    subtype: str = "PCM_16"
    """As libsndfile names it; the container follows from the file's name."""
    pause_s: float = 0.25
    edge_s: float = 0.15
    """Digital silence before the first and after the last part, in seconds."""

    @property
    def text(self) -> str:
        """What is said."""
        return " ".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A single word or a phrase cut from a real utterance, between two dips of its energy."""

    utterance: str
    start_ms: int
    end_ms: int
    text: str
    suffix: str = ".flac"

    @property
    def kind(self) -> str:
        """``word`` or ``phrase``."""
        return "phrase" if " " in self.text else "word"

    @property
    def file(self) -> str:
        """Where it lies, under the folder of the fixtures."""
        slug = self.text.lower().replace(" ", "_").replace("'", "")
        return str(PurePosixPath("real", self.kind, f"{slug}_{self.utterance.partition('-')[0]}{self.suffix}"))


EN_US = Voice(engine="espeak-ng", name="en-us")
EN_US_F2 = Voice(engine="espeak-ng", name="en-us+f2")
EN_US_F4 = Voice(engine="espeak-ng", name="en-us+f4")
EN_GB = Voice(engine="espeak-ng", name="en-gb")
EN_GB_RP = Voice(engine="espeak-ng", name="en-gb-x-rp")
EN_GB_RP_F2 = Voice(engine="espeak-ng", name="en-gb-x-rp+f2")
SCOTLAND = Voice(engine="espeak-ng", name="en-gb-scotland")
CARIBBEAN = Voice(engine="espeak-ng", name="en-029")
SLT = Voice(engine="flite", name="slt")
RMS = Voice(engine="flite", name="rms")
AWB = Voice(engine="flite", name="awb")
KAL = Voice(engine="flite", name="kal16")

JOURNEY = (
    "when the morning came we packed our bags and walked down to the harbour where an old man with a grey beard was "
    "waiting for us beside a small white boat and he said that the wind was good and the sea was calm so we put our "
    "bags under the seats and sat down near the front while he pulled the rope and turned the boat away from the wall "
    "and soon the town behind us looked like a picture in a book with its red roofs and narrow streets and the tall "
    "tower of the church and my sister took out some bread and cheese and we ate our breakfast on the water and talked "
    "about the people that we would meet on the other side of the bay and the long road that goes from there up into "
    "the hills and over the bridge to the village where our mother was born and where her brother still lives with his "
    "wife and their two sons in the house that their grandfather built with his own hands"
)
"""One sentence without a comma, so that the synthesiser makes no pause in it."""

SYNTHESISED = (
    Synthesised(
        file="synthesised/en_us_22k.wav",
        kind="sentence",
        voice=EN_US,
        parts=("Please send the report to my office before noon.", "Nobody knew why the old clock had stopped."),
        rate=22050,
    ),
    Synthesised(
        file="synthesised/en_us_16k.flac",
        kind="sentence",
        voice=EN_US,
        parts=("It has been raining since yesterday, and the road is wet.",),
        rate=16000,
    ),
    Synthesised(
        file="synthesised/en_gb_8k.wav",
        kind="sentence",
        voice=EN_GB,
        parts=("I left my umbrella on the bus and had to walk home in the rain.",),
        rate=8000,
    ),
    Synthesised(
        file="synthesised/en_gb_16k_float.wav",
        kind="sentence",
        voice=EN_GB,
        parts=("You can find the answer on the last page of the book.",),
        rate=16000,
        subtype="FLOAT",
    ),
    Synthesised(
        file="synthesised/en_gb_scotland_22k.flac",
        kind="sentence",
        voice=SCOTLAND,
        parts=("The children were laughing and running across the garden.",),
        rate=22050,
    ),
    Synthesised(
        file="synthesised/en_us_f2_44k_stereo.wav",
        kind="sentence",
        voice=EN_US_F2,
        parts=("We walked along the river and watched the boats come in.",),
        rate=44100,
        gains=(1.0, 0.5),
    ),
    Synthesised(
        file="synthesised/en_us_f4_48k_stereo.flac",
        kind="sentence",
        voice=EN_US_F4,
        parts=("In the summer we often swim in the lake behind the house.",),
        rate=48000,
        gains=(0.4, 1.0),
        subtype="PCM_24",
    ),
    Synthesised(
        file="synthesised/en_029_44k.mp3",
        kind="sentence",
        voice=CARIBBEAN,
        parts=(
            "Her new job begins on Monday, and she is very happy about it.",
            "After the storm the sky was clear and the sea was calm.",
        ),
        rate=44100,
        subtype="MPEG_LAYER_III",
    ),
    Synthesised(
        file="synthesised/en_gb_rp_48k.opus",
        kind="sentence",
        voice=EN_GB_RP,
        parts=(
            "The meeting will start in a few minutes in the large room.",
            "He put the letter in his pocket and left the room.",
        ),
        rate=48000,
        subtype="OPUS",
    ),
    Synthesised(
        file="synthesised/en_gb_rp_f2_16k.wav",
        kind="sentence",
        voice=EN_GB_RP_F2,
        parts=("She opened the window because the room was very warm.",),
        rate=16000,
    ),
    Synthesised(
        file="synthesised/slt_16k.wav",
        kind="sentence",
        voice=SLT,
        parts=(
            "The doctor said that he should drink more water.",
            "The ship carried coffee, sugar and cotton from the south.",
        ),
        rate=16000,
    ),
    Synthesised(
        file="synthesised/slt_22k_stereo.mp3",
        kind="sentence",
        voice=SLT,
        parts=("This is the best cup of coffee that I have had in a long time.",),
        rate=22050,
        gains=(1.0, 0.8),
        subtype="MPEG_LAYER_III",
    ),
    Synthesised(
        file="synthesised/rms_48k.wav",
        kind="sentence",
        voice=RMS,
        parts=("The captain looked at the map and changed the course.",),
        rate=48000,
    ),
    Synthesised(
        file="synthesised/awb_8k_mulaw.wav",
        kind="sentence",
        voice=AWB,
        parts=("Could you tell me how to get to the railway station?",),
        rate=8000,
        subtype="ULAW",
    ),
    Synthesised(
        file="synthesised/kal_16k.opus",
        kind="sentence",
        voice=KAL,
        parts=("The teacher asked a question, but nobody knew the answer.",),
        rate=16000,
        subtype="OPUS",
    ),
    Synthesised(
        file="synthesised/two_utterances_16k.flac",
        kind="pause",
        voice=SLT,
        parts=("A small bird was singing outside my bedroom window.", "We need a table near the door."),
        rate=16000,
        pause_s=2.0,
        edge_s=0.3,
    ),
    Synthesised(file="synthesised/stop_16k.wav", kind="command", voice=EN_GB, parts=("Stop.",), rate=16000),
    Synthesised(
        file="synthesised/next_song_22k.flac",
        kind="command",
        voice=EN_US_F2,
        parts=("Play the next song.",),
        rate=22050,
    ),
    Synthesised(file="synthesised/open_door_16k.wav", kind="command", voice=SLT, parts=("Open the door.",), rate=16000),
    Synthesised(file="synthesised/what_time_8k.wav", kind="command", voice=RMS, parts=("What time is it?",), rate=8000),
    Synthesised(
        file="synthesised/five_twelve_times_16k.flac",
        kind="repeat",
        voice=RMS,
        parts=("five, " * 11 + "five.",),
        rate=16000,
    ),
    Synthesised(
        file="synthesised/no_pause_47s_16k.opus",
        kind="long",
        voice=RMS,
        parts=(JOURNEY,),
        rate=16000,
        subtype="OPUS",
    ),
)

WARM_UP = Synthesised(
    file="warmup.flac",
    kind="warm-up",
    voice=EN_US,
    parts=("we packed our bags and walked down to the river where a small white boat was waiting for us",),
    rate=16000,
    edge_s=0.05,
)
"""What the service plays to itself at start-up to measure how many streams it can hold."""

SILENCE_FILE, SILENCE_S, SILENCE_RATE = "synthesised/silence_16k.wav", 2.0, 16000

UTTERANCES = {
    "118-47824-0037": "Alex Buie",
    "669-129074-0001": "Anne",
    "1088-134318-0016": "Christabel",
    "3664-178355-0018": "Barry Eads",
    "6272-70171-0040": "jlenardon",
    "8629-261139-0028": "Shivansh Dhar",
}
"""Whole utterances of Mini LibriSpeech train-clean-5 and their readers, by the names of SPEAKERS.TXT."""

CUTS = (
    Cut(utterance="118-47824-0037", start_ms=3155, end_ms=3545, text="BETTER", suffix=".wav"),
    Cut(utterance="118-47824-0037", start_ms=4490, end_ms=4925, text="BOBBY"),
    Cut(utterance="669-129074-0001", start_ms=1280, end_ms=1695, text="THOUGHT"),
    Cut(utterance="1088-134318-0016", start_ms=5925, end_ms=6565, text="CERTAINLY", suffix=".wav"),
    Cut(utterance="1088-134318-0016", start_ms=9035, end_ms=9785, text="PATAGONIA"),
    Cut(utterance="3664-178355-0018", start_ms=6015, end_ms=6505, text="BACKERS"),
    Cut(utterance="3664-178355-0018", start_ms=5200, end_ms=5695, text="COMSTOCK"),
    Cut(utterance="6272-70171-0040", start_ms=8710, end_ms=9570, text="CULTIVATION"),
    Cut(utterance="8629-261139-0028", start_ms=435, end_ms=845, text="FREDERICK"),
    Cut(utterance="8629-261139-0028", start_ms=7285, end_ms=8020, text="EXCITEMENT", suffix=".wav"),
    Cut(utterance="118-47824-0037", start_ms=2800, end_ms=3545, text="THAT'S BETTER"),
    Cut(utterance="118-47824-0037", start_ms=7335, end_ms=8475, text="GRAHAM MOVED CLOSER"),
    Cut(utterance="669-129074-0001", start_ms=340, end_ms=1695, text="THE LITTLE WOMAN THOUGHT"),
    Cut(utterance="669-129074-0001", start_ms=4045, end_ms=5040, text="AND INDEED"),
    Cut(utterance="1088-134318-0016", start_ms=8295, end_ms=9785, text="BUT NOT PATAGONIA", suffix=".wav"),
    Cut(utterance="3664-178355-0018", start_ms=6015, end_ms=6870, text="BACKERS GAVE UP"),
    Cut(utterance="6272-70171-0040", start_ms=4235, end_ms=5755, text="HOW MISERABLE WAS MY YOUTH"),
    Cut(utterance="8629-261139-0028", start_ms=2910, end_ms=4340, text="THE MOMENT WAS INTENSE"),
)
