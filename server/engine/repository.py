"""The models of a service by name: what is loaded, and loading, replacing and unloading it while the service runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from server.engine.live_host import FINAL, LIVE, FinalHost, LiveHost
from server.engine.model_settings import AnySettings, FinalSettings, LiveSettings, TensorSettings
from server.engine.served_model import ModelState, ServedModel
from server.engine.tensor_host import TensorHost
from server.errors import ConfigError, UnknownModel

Overrides = Mapping[str, object]
SettingsOf = Callable[[str, Overrides], AnySettings]
"""The settings of a name with some fields of its section changed.

Raises:
    ConfigError: A field is unknown or out of bounds.
"""
Host = LiveHost | FinalHost | TensorHost


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One model of the repository."""

    name: str
    version: str
    state: ModelState
    reason: str
    """Why it is not ready; "" if it is."""


class ModelRepository:
    """Names that are configured: ``live``, ``final`` (where there is one) and those of ``[[models]]``.

    Args:
        hosts: By name.
        settings: Of each, as configured.
        settings_of: Applies overrides; None: there are none.
    """

    def __init__(
        self, hosts: Mapping[str, Host], settings: Mapping[str, AnySettings], settings_of: SettingsOf | None
    ) -> None:
        self._hosts = hosts
        self._settings = settings
        self._settings_of = settings_of

    def names(self) -> tuple[str, ...]:
        """All of them, loaded or not."""
        return tuple(self._hosts)

    def get(self, name: str) -> ServedModel:
        """A model; it may be unloaded, as its state says.

        Raises:
            UnknownModel: There is no such name.
        """
        return self._host(name)

    def index(self) -> tuple[IndexEntry, ...]:
        """Every name with its state."""
        return tuple(
            IndexEntry(name=name, version=host.version, state=host.state, reason=host.reason)
            for name, host in self._hosts.items()
        )

    async def load(self, name: str, overrides: Overrides | None = None) -> None:
        """Loads a model, or replaces the one that is loaded: a new copy comes up beside the old one, then takes all new
        sequences and requests; the old one ends what it has and stops. Returns when the new one serves.

        Args:
            name: One of ``names``.
            overrides: Fields of its section of the configuration that are other now; until the next load.

        Raises:
            UnknownModel: There is no such name.
            ConfigError: The model, or what is over it, is refused. What was loaded goes on.
            InstanceFailed: It could not be loaded. What was loaded goes on.
            ShuttingDown: The service stops.
        """
        host, settings = self._host(name), self._settings[name]
        if overrides:
            if self._settings_of is None:
                raise ConfigError("this engine takes no other settings than those that it was made with")
            settings = self._settings_of(name, overrides)
        match host, settings:
            case LiveHost(), LiveSettings():
                await host.load(settings)
            case FinalHost(), FinalSettings():
                await host.load(settings)
            case TensorHost(), TensorSettings():
                await host.load(settings)
            case _:
                raise ConfigError(f"{name}: these are the settings of another role")

    async def unload(self, name: str) -> None:
        """Takes no more requests for it, waits for what it has, stops it.

        Raises:
            UnknownModel: There is no such name.
            ConfigError: ``live`` cannot be unloaded, only replaced.
        """
        if name == LIVE:
            raise ConfigError("live cannot be unloaded: load it again to replace it")
        await self._host(name).unload()

    def _host(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            without = "" if FINAL in self._hosts else " (there is no final model)"
            raise UnknownModel(f"no model is named {name!r}; there are {', '.join(self._hosts)}{without}")
        return host
