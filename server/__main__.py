"""``moorage`` and ``python -m server``."""

import os

from server.cli import build_cli


def main() -> None:
    """Runs the command line."""
    # read when torch is loaded: threads that spin while they wait starve the other instances of a small machine
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    build_cli()()


if __name__ == "__main__":
    main()
