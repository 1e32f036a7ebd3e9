"""Models, their drivers and the live sequences of one service: what exists, and how it begins and ends.

Everything here runs on the event loop and does little: models run in workers (I10), decisions are the batchers', time
is the pump's.
"""

import asyncio

from asr_model.transcript import FinalOutput
from server.audit.auditor import Auditor
from server.audit.replaying import Audits
from server.batching.resources import ResourceLedger
from server.clock import Clock
from server.engine.engine_config import SAMPLE_RATE, EngineConfig
from server.engine.engine_stats import EngineParts, engine_stats
from server.engine.final_pass import FinalPass
from server.engine.live_host import FINAL, LIVE, FinalHost, LiveHost
from server.engine.live_sequences import LiveSequences
from server.engine.model_host import HostParts
from server.engine.model_settings import AnySettings
from server.engine.pump import Pump
from server.engine.recordings import read_piece, refuse_recordings
from server.engine.repository import Host, ModelRepository, SettingsOf
from server.engine.sentiment_reader import SentimentReader, check_tells_sentiment
from server.engine.sequence_handle import SequenceHandle
from server.engine.served_model import ServedModel
from server.engine.tensor_host import TensorHost
from server.errors import MoorageError, UnknownModel
from server.figures.stats import EngineStats
from server.ids import SequenceId
from server.plan import NOTHING_ASKED, Samples, SequenceOptions
from server.workers.pool import together
from server.workers.worker import gate_places


class Engine:
    """Models, batchers and live sequences of one service.

    Args:
        config: What to run.
        clock: Time; nothing else here reads one.
        settings_of: How models that are loaded again get other settings; None: they do not.
    """

    def __init__(self, config: EngineConfig, clock: Clock, settings_of: SettingsOf | None = None) -> None:
        self._config = config
        self._clock = clock
        self._pump = Pump(clock)
        self._ledger = ResourceLedger(config.resources)
        self._sequences = LiveSequences(config, clock, self._pump)
        self._audits = Audits(Auditor(config.audit), self._sequences, clock)
        self._sequences.watch(self._audits)
        self._final_pass = FinalPass() if config.final is not None else None
        parts = HostParts(
            config=config,
            clock=clock,
            pump=self._pump,
            gate=gate_places(config.worker_kind),
            ledger=self._ledger,
        )
        self._live = LiveHost(parts, self._sequences)
        self._final = FinalHost(parts, self._final_pass) if self._final_pass is not None else None
        self._further = tuple(TensorHost(model.name, parts) for model in config.models)
        self._is_loaded = False
        self._recorded_samples = 0
        self.repository = ModelRepository(self._hosts(), self._settings(), settings_of)
        """The models by name."""
        self._sentiments = SentimentReader(self._find_sentiment) if config.sentiment else None

    # Life

    async def start(self) -> None:
        """Loads all models, warms them up, measures what is to be measured. After an error nothing is left running.

        Raises:
            ConfigError: A model refused its settings or needs the other scheduler, or there are not its resources.
            InstanceFailed: A model could not be loaded.
        """
        try:
            await self._bring_up()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends every sequence with ShuttingDown, then all workers. No process, thread or task is left."""
        self._is_loaded = False
        await self._audits.stop()
        self._pump.stop()
        self._sequences.stop()
        if self._sentiments is not None:
            await self._sentiments.stop()
        await asyncio.gather(*(host.stop() for host in self._hosts().values()))

    @property
    def is_ready(self) -> bool:
        """Whether sequences are taken (if there is a slot) and some live instance can run them."""
        return self._is_loaded and self._sequences.is_open

    # Sequences

    def open(
        self,
        sequence_id: SequenceId,
        options: SequenceOptions = NOTHING_ASKED,
        *,
        priority: int = 0,
        solo: bool = False,
        sentiments: SentimentReader | None = None,
    ) -> SequenceHandle:
        """Opens a sequence; it has a slot from now on, or waits for one: its first event is then ``Queued``.

        Args:
            sequence_id: Not live now.
            options: What its client asked for.
            priority: Its level where sequences wait for a slot, 1 is the highest; 0: the lowest.
            solo: Its steps are its own, as if nobody else were there.
            sentiments: Who tells how its finals sound, after their texts are there: ``sentiment_reader``. None: nobody.

        Raises:
            CapacityExceeded: Every slot is taken, and there is no room to wait for one.
            DuplicateSequence: The id is live.
            ShuttingDown: The engine is not started, or stopped.
        """
        return self._sequences.open(sequence_id, options, priority=priority, solo=solo, sentiments=sentiments)

    def cancel(self, handle: SequenceHandle, error: MoorageError | None = None) -> None:
        """The caller leaves, or has to: ``error`` is then told and counted. What is pending is dropped."""
        self._sequences.cancel(handle, error)

    @property
    def sentiment_reader(self) -> SentimentReader | None:
        """Who tells how texts sound; None where nobody does."""
        return self._sentiments

    # Recordings

    async def read_recording(self, samples: Samples, *, within_s: float | None = None) -> FinalOutput:
        """One piece of a recording on the final model, behind the utterances of live streams. Cancelling the call
        cancels it.

        Args:
            samples: float32 [N], no longer than one utterance.
            within_s: Time that it may wait for its batch; None: as long as it takes.

        Raises:
            UnknownModel: There is no final model, or it is unloaded.
            BadAudio, MessageTooLarge, QueueFull, RequestTimeout, StepFailed, InstanceFailed: As ``read_piece``.
        """
        if self._final is None or self._final_pass is None:
            raise UnknownModel('there is no final model to read recordings (final.model = "none")')
        current = self._final.current
        if not current.settings.recordings_max_queued:
            raise refuse_recordings()
        within_ns = None if within_s is None else round(within_s * 1e9)
        output = await read_piece(current.driver, self._final_pass, self._clock, samples, within_ns=within_ns)
        self._recorded_samples += samples.size
        return output

    def stats(self) -> EngineStats:
        """A snapshot."""
        return engine_stats(
            EngineParts(
                is_ready=self.is_ready,
                is_loaded=self._is_loaded,
                sequences=self._sequences,
                live=self._live,
                final=self._final,
                final_pass=self._final_pass,
                further=self._further,
                ledger=self._ledger,
                audits=self._audits,
                sentiments=self._sentiments,
                recorded_s=self._recorded_samples / SAMPLE_RATE,
            )
        )

    def _find_sentiment(self) -> ServedModel:
        return self.repository.get(self._config.sentiment)

    # Bringing up

    def _hosts(self) -> dict[str, Host]:
        hosts: dict[str, Host] = {LIVE: self._live}
        if self._final is not None:
            hosts[FINAL] = self._final
        return hosts | {host.name: host for host in self._further}

    def _settings(self) -> dict[str, AnySettings]:
        settings: dict[str, AnySettings] = {LIVE: self._config.live}
        if self._config.final is not None:
            settings[FINAL] = self._config.final
        return settings | {model.name: model for model in self._config.models}

    async def _bring_up(self) -> None:
        """Loads everything at the same time, then prepares: the live model alone, so that its measurement is right."""
        live = self._live.new_copy(self._config.live)
        final, settings = None, self._config.final
        if self._final is not None and settings is not None:
            final = self._final.new_copy(settings)
        further = [host.new_copy(model) for host, model in zip(self._further, self._config.models, strict=True)]
        pools = [live.pool, *([final.pool] if final is not None else []), *(copy.pool for copy in further)]
        await together([pool.load() for pool in pools])
        self._live.check(live)
        if self._final is not None and final is not None:
            self._final.check(final)
        for host, copy in zip(self._further, further, strict=True):
            host.check(copy)
            if host.name == self._config.sentiment:
                check_tells_sentiment(host.name, copy.pool.scheduler, copy.declared)
        for pool in pools:
            await pool.prepare()
        for host, copy in zip(self._further, further, strict=True):
            host.begin(copy)
        if self._final is not None and final is not None:
            self._final.begin(final)
            self._sequences.use_finals(self._final_pass)
        self._live.begin(live)
        self._is_loaded = True
