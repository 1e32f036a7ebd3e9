"""The composition root: a configuration becomes a running service."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Final

from rich.console import Console
from rich.table import Table

from server.access.access import AccessControl, warnings_of
from server.access.tls import TlsContext
from server.clock import SystemClock
from server.codec.pool import CodecPool
from server.composition import codec_limits, engine_config, model_cards, package_version, settings_of
from server.configuration.config import MoorageConfig
from server.engine.engine import Engine
from server.errors import ConfigError
from server.figures.metrics import ServiceCollector, metrics_page
from server.figures.stats import ModelStats
from server.gateway.entrance import GatewayParts
from server.gateway.gateway import Gateway
from server.gateway.http import LISTEN_PATH, Site
from server.rest.app import build_rest
from server.rest.parts import RestParts
from server.wire.messages import ModelCards

CERTIFICATE_CHECK_S: Final = 60.0
"""Time between two looks at whether the certificate's files have changed."""

logger = logging.getLogger(__name__)


class Service:
    """Engine and gateway of one configuration.

    Args:
        config: The whole configuration.
        engine: A stopped engine.
        cards: The engine's models as clients are told of them.

    Raises:
        ConfigError: The certificate cannot be used.
    """

    def __init__(self, config: MoorageConfig, engine: Engine, cards: ModelCards) -> None:
        self._config = config
        self._tls = TlsContext(config.tls) if config.tls.enabled else None
        self._access = AccessControl(config.access)
        self._watching: asyncio.Task[None] | None = None
        self.engine = engine
        self.gateway: Gateway
        tls = self._tls
        collector = ServiceCollector(
            engine.stats, lambda: self.gateway.stats(), lambda: tls.expires_at_s if tls is not None else None
        )
        site = Site(
            stats=engine.stats,
            metrics=metrics_page(collector),
            version=package_version(),
            is_draining=lambda: self.gateway.is_draining,
        )
        codecs, clock = CodecPool(codec_limits(config.codec)), SystemClock()
        self.rest = build_rest(
            RestParts(
                engine=engine,
                access=self._access,
                codecs=codecs,
                config=config,
                cards=cards,
                site=site,
                clock=clock,
            )
        )
        self.gateway = Gateway(
            GatewayParts(
                engine=engine,
                config=config.server,
                site=site,
                cards=cards,
                access=self._access,
                codecs=codecs,
                clock=clock,
                rest=self.rest,
                tls=self._tls.context if self._tls is not None else None,
                logs_transcripts=config.log.transcripts,
            )
        )

    async def start(self) -> None:
        """Listens at once, so that ``/healthz`` and ``/readyz`` answer, then loads the models.

        Raises:
            ConfigError: The address cannot be had, or a model refused its settings.
            InstanceFailed: A model could not be loaded.
        """
        try:
            await self.gateway.start()
        except OSError as error:
            server = self._config.server
            # asyncio writes the address once more into the text of a system error; name resolution has negative numbers
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            message = f"server.host, server.port: cannot listen on {server.host}:{server.port}: {reason}"
            raise ConfigError(message) from error
        if self._tls is not None:
            self._watching = asyncio.create_task(self._watch_certificate(self._tls))
        try:
            await self.engine.start()
        except BaseException:
            await self.stop()
            raise

    async def drain(self) -> None:
        """Takes no new streams and lets the live ones end, as long as the configuration allows; then ends them."""
        await self.gateway.drain()

    async def stop(self) -> None:
        """Accepts no more, tells every live client (1012), ends the workers. Nothing is left running."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self.gateway.stop_accepting()
        await self.engine.stop()
        await self.gateway.stop()

    def reload(self, load: Callable[[], MoorageConfig]) -> None:
        """Reads API keys, origins and the certificate anew, for the next connections; the rest stays as it was.

        What cannot be used leaves the old in place.
        """
        try:
            access = load().access
            if self._tls is not None:
                self._tls.reload()
        except ConfigError as error:
            logger.error("nothing was reloaded: %s", error)
            return
        self._access.configure(access)
        logger.info("API keys, origins and certificate were reloaded")

    async def _watch_certificate(self, tls: TlsContext) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_S)
            try:
                if tls.reload_if_changed():
                    logger.info("the certificate has changed and was reloaded")
            except ConfigError as error:
                logger.error("the certificate has changed and cannot be used: %s", error)


def build_service(config: MoorageConfig) -> Service:
    """The service of a configuration, with a process per model instance.

    Raises:
        ConfigError: A model is not known, or the certificate cannot be used.
    """
    engine = Engine(engine_config(config), SystemClock(), settings_of(config))
    return Service(config, engine, model_cards(config))


class Halt:
    """What signals ask for: first to drain, then to stop at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def ask(self) -> None:
        """Another signal came."""
        (self.at_once if self.asked.is_set() else self.asked).set()


async def run_service(config: MoorageConfig, console: Console, load: Callable[[], MoorageConfig]) -> None:
    """Serves until SIGINT or SIGTERM, then drains; the second of them stops at once.

    Args:
        config: What to serve.
        console: Where it says that it is ready.
        load: Reads the configuration again at SIGHUP, for ``Service.reload``.

    Raises:
        ConfigError, InstanceFailed: As ``Service.start``.
    """
    service = build_service(config)
    halt = Halt()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, halt.ask)
    loop.add_signal_handler(signal.SIGHUP, service.reload, load)
    try:
        with console.status("loading models"):
            is_started = await _unless(halt.asked, service.start())
        if is_started:
            announce(service, config, console)
            await halt.asked.wait()
            n_streams = service.gateway.stats().connections
            if n_streams:
                limit_s = config.server.drain_timeout_s
                console.print(f"{n_streams} streams have {limit_s:g} s to end; once more stops at once", style="dim")
            await _unless(halt.at_once, service.drain())
        console.print("stopping", style="dim")
    finally:
        await service.stop()


async def _unless(event: asyncio.Event, work: Coroutine[object, object, None]) -> bool:
    """Whether the work came to its end before the event; else it is cancelled. Raises what the work raises."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def announce(service: Service, config: MoorageConfig, console: Console) -> None:
    """What was loaded, and how to talk to it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "model", "scheduler", "device", "instances", "slots"):
        table.add_column(column)
    for model in service.engine.stats().models:
        table.add_row(model.role, model.name, _scheduler(model), model.device, str(model.instances), _slots(model))
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    address = f"{host}:{service.gateway.port}"
    secure = "s" if config.tls.enabled else ""
    console.print(table)
    lines = (
        "",
        f"listening   ws{secure}://{address}{LISTEN_PATH}?encoding=linear16&sample_rate=16000&interim_results=true",
        f"try         moorage replay speech.wav --url ws{secure}://{address}",
        f"health      http{secure}://{address}/healthz  /readyz  /metrics  /v1/models",
    )
    for warning in warnings_of(config):
        logger.warning("%s", warning)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _scheduler(model: ModelStats) -> str:
    return f"{model.scheduler} (WRONG)" if model.is_wrong_scheduler else model.scheduler


def _slots(model: ModelStats) -> str:
    if model.scheduler != "sequence":
        return "–"
    measured = "" if model.streams is None else f" (measured: {model.streams} in real time)"
    slots = dict.fromkeys(model.instance_slots or (model.slots,))
    return f"{', '.join(map(str, slots))} each, {model.slot_bytes / 2**20:.1f} MiB a slot{measured}"
