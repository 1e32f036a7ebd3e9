"""What the installed FFmpeg libraries can decode: for whoever looks at an installation, not for the service itself."""

from collections.abc import Iterable


def missing_decoders(names: Iterable[str]) -> list[str]:
    """Those of the decoders that there are not.

    Raises:
        ImportError: PyAV, or a library that it needs, cannot be loaded.
    """
    import av

    return [name for name in names if name not in av.codecs_available]
