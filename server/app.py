"""The composition root: a configuration becomes a running service."""

import asyncio
import logging
import os
import signal

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from server.clock import SystemClock
from server.composition import engine_config, model_cards, package_version
from server.config import MoorageConfig
from server.engine import Engine
from server.errors import ConfigError
from server.gateway import Gateway
from server.http import LISTEN_PATH, Site
from server.metrics import ServiceCollector, metrics_page
from server.stats import ModelStats
from server.wire.messages import ModelCards

logger = logging.getLogger(__name__)


class Service:
    """Engine and gateway of one configuration.

    Args:
        config: The whole configuration.
        engine: A stopped engine.
        cards: The engine's models as clients are told of them.
    """

    def __init__(self, config: MoorageConfig, engine: Engine, cards: ModelCards) -> None:
        self._config = config
        self.engine = engine
        collector = ServiceCollector(engine.stats, lambda: self.gateway.stats())
        site = Site(stats=engine.stats, metrics=metrics_page(collector), version=package_version())
        self.gateway = Gateway(engine, config.server, site, cards)

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
        try:
            await self.engine.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Accepts no more, tells every live client (1012), ends the workers. Nothing is left running."""
        self.gateway.stop_accepting()
        await self.engine.stop()
        await self.gateway.stop()


def build_service(config: MoorageConfig) -> Service:
    """The service of a configuration, with a process per model instance.

    Raises:
        ConfigError: A model is not known.
    """
    return Service(config, Engine(engine_config(config), SystemClock()), model_cards(config))


async def run_service(config: MoorageConfig, console: Console) -> None:
    """Serves until SIGINT or SIGTERM.

    Raises:
        ConfigError, InstanceFailed: As ``Service.start``.
    """
    service = build_service(config)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    starting = asyncio.create_task(service.start())
    stopping = asyncio.create_task(stopped.wait())
    try:
        with console.status("loading models"):
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            announce(service, config, console)
            await stopping
        console.print("stopping", style="dim")
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await service.stop()


def configure_logging(level: str) -> None:
    """The only place that does; modules just name their loggers. Where nobody looks, one plain line per event."""
    console = Console(stderr=True)
    if console.is_terminal:
        logging.basicConfig(
            level=level.upper(), format="%(name)s: %(message)s", handlers=[RichHandler(console=console)]
        )
    else:
        logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # a line for each connection and each port scan is no news
    logging.getLogger("websockets").setLevel(max(logging.WARNING, logging.getLogger().level))


def announce(service: Service, config: MoorageConfig, console: Console) -> None:
    """What was loaded, and how to talk to it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "model", "scheduler", "device", "instances", "slots"):
        table.add_column(column)
    for model in service.engine.stats().models:
        table.add_row(model.role, model.name, model.scheduler, model.device, str(model.instances), _slots(model))
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    address = f"{host}:{service.gateway.port}"
    console.print(table)
    lines = (
        "",
        f"listening   ws://{address}{LISTEN_PATH}?sample_rate=16000&interim_results=true",
        f"try         moorage replay speech.wav --url ws://{address}",
        f"health      http://{address}/healthz  /readyz  /metrics  /v1/models",
    )
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _slots(model: ModelStats) -> str:
    if model.scheduler != "sequence":
        return "–"
    measured = "" if model.streams is None else f" (measured: {model.streams} in real time)"
    return f"{model.slots} each, {model.slot_bytes / 2**20:.1f} MiB a slot{measured}"
