"""Python and the packages that the service needs."""

import platform
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Final

from server.doctor.finding import Finding, fault, ok, warning

OLDEST_PYTHON: Final = (3, 11)
PACKAGES: Final = {
    "numpy": "numpy",
    "safetensors": "safetensors",
    "websockets": "websockets",
    "aiohttp": "aiohttp",
    "pydantic": "pydantic",
    "prometheus-client": "prometheus_client",
    "typer": "typer",
    "rich": "rich",
    "jiwer": "jiwer",
    "psutil": "psutil",
}
"""Distributions and the modules in them. torch, codecs and weights have checks of their own."""
CODEC_PACKAGES: Final = {"soundfile": "soundfile", "soxr": "soxr", "av": "av"}
DECODERS: Final = ("flac", "opus", "vorbis", "mp3", "aac")
"""What clients may send compressed."""
WEIGHTS_PACKAGE: Final = "moonshine-cpp"


def check_python() -> Iterator[Finding]:
    """Version and machine."""
    text = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if sys.version_info < OLDEST_PYTHON:
        yield fault("python", text, "install Python 3.11 or newer")
    else:
        yield ok("python", text)


def check_packages() -> Iterator[Finding]:
    """Everything that the service imports, apart from torch and codecs."""
    faults = list(_missing("packages", PACKAGES))
    yield from faults
    if not faults:
        yield ok("packages", ", ".join(f"{name} {version(name)}" for name in PACKAGES))


def check_codecs() -> Iterator[Finding]:
    """Decoders and the resampler."""
    faults = list(_missing("codecs", CODEC_PACKAGES))
    yield from faults
    if faults:
        return
    from server.codec.available import missing_decoders

    missing = missing_decoders(DECODERS)
    versions = ", ".join(f"{name} {version(name)}" for name in CODEC_PACKAGES)
    if missing:
        yield warning(
            "codecs",
            f"{versions}; no decoder for {', '.join(missing)}",
            "clients that send it are refused; install the published wheels: pip install --force-reinstall av",
        )
    else:
        yield ok("codecs", f"{versions}; {', '.join(DECODERS)}")


def check_weights_package() -> Iterator[Finding]:
    """The files of Moonshine's package against the checksums that it was installed with."""
    try:
        package = distribution(WEIGHTS_PACKAGE)
    except PackageNotFoundError:
        return  # the weights may be elsewhere; the models' check says if they are not
    damaged = [name for name, is_whole in _checksums(package) if not is_whole]
    if damaged:
        yield fault(
            "moonshine files",
            f"{', '.join(damaged)}: not as installed",
            f"pip install --force-reinstall --no-deps {WEIGHTS_PACKAGE}",
        )
    else:
        yield ok("moonshine files", f"{WEIGHTS_PACKAGE} {package.version}: checksums match")


def _missing(check: str, packages: dict[str, str]) -> Iterator[Finding]:
    for name, module in packages.items():
        try:
            version(name)
            import_module(module)
        except PackageNotFoundError:
            yield fault(check, f"{name} is not installed", f"pip install {name}")
        except (ImportError, OSError) as error:  # a shared library that is missing is an OSError
            advice = f"pip install --force-reinstall {name}; a system library may be missing"
            yield fault(check, f"{name} cannot be loaded: {error}", advice)


def _checksums(package: Distribution) -> Iterator[tuple[str, bool]]:
    """The model files of a package and whether each is as it was installed."""
    import base64
    import hashlib

    for file in package.files or ():
        if "base-en" not in file.parts or file.hash is None:
            continue
        try:
            digest = hashlib.new(file.hash.mode, Path(file.locate()).read_bytes()).digest()
        except OSError:
            yield str(file), False
            continue
        yield str(file), base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
