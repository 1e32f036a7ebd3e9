"""A microphone on a service, for as long as it is wanted, over as many connections as that takes."""

import asyncio
from dataclasses import dataclass, field

from clients.connection import (
    ANYONE,
    KEY_REFUSED,
    Access,
    Connection,
    ConnectionFailed,
    ListenOptions,
    Refused,
    open_connection,
)
from clients.exchange import exchange
from clients.messages import Results
from clients.mic.audio_source import AudioSource
from clients.mic.level import LevelMeter
from clients.mic.view import MicView
from clients.transcribe.audio_file import to_linear16

PATIENCE_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
"""Between attempts to reach a service that has gone: doubled from the one to the other."""
SERVER_FAULT = 500


@dataclass(slots=True, kw_only=True)
class MicSession:
    """What is recorded is sent, what is answered is shown."""

    source: AudioSource
    view: MicView
    url: str
    access: Access = ANYONE
    patience_s: float = PATIENCE_S
    """How long a service that is busy or has gone is asked again."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _was_open: bool = field(default=False, init=False)
    _waited_s: float = field(default=0.0, init=False)
    """Since the service answered last."""

    def stop(self) -> None:
        """Record no more; ``run`` ends once all that was recorded is answered."""
        self.source.stop()
        self._stopping.set()
        self.view.finishing()

    async def run(self) -> None:
        """Until ``stop``, or the source has ended, and all is answered.

        Raises:
            BadParameter: The key or the file of authorities cannot be used.
            ConnectionFailed: There is no service, or it has gone and did not come back in time.
            NoMicrophone: The source went away.
        """
        meter = LevelMeter(self.source.sample_rate)
        while True:
            try:
                return await self._listen(meter)
            except ConnectionFailed as error:
                self.view.cut_off()
                pause_s = self._pause_s(error)
                if pause_s is None or self._stopping.is_set():
                    raise
                self.view.wait(error, pause_s)
                self._waited_s += pause_s
                if await self._is_stopped_within(pause_s):
                    raise

    async def _listen(self, meter: LevelMeter) -> None:
        """One connection, to its end."""
        options = ListenOptions(sample_rate=self.source.sample_rate)
        async with open_connection(self.url, options, self.access) as connection:
            self._was_open = True
            self.view.listening(self.source.name, self.source.sample_rate)
            await exchange(self._send(connection, meter), self._receive(connection))

    async def _send(self, connection: Connection, meter: LevelMeter) -> None:
        while (samples := await self.source.read()) is not None:
            level = meter.add(samples)
            if level is not None:
                self.view.level(level, lost_s=self.source.lost_s, overflows=self.source.overflows)
            await connection.send_audio(to_linear16(samples))
        await connection.close_stream()

    async def _receive(self, connection: Connection) -> None:
        async for message in connection.messages():
            if isinstance(message, Results):
                self._waited_s = 0.0
                self.view.show(message)

    def _pause_s(self, error: ConnectionFailed) -> float | None:
        """How long to wait before the service is asked again; None: not at all."""
        if self._waited_s >= self.patience_s:
            return None
        backoff_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, self._waited_s))
        if isinstance(error, Refused):
            if error.retry_after_s is not None:
                return max(error.retry_after_s, FIRST_PAUSE_S)
            if error.status in KEY_REFUSED or error.status < SERVER_FAULT:
                return None
        return backoff_s if self._was_open else None

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
