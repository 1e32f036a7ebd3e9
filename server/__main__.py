"""``moorage`` and ``python -m server``."""

from server.cli import build_cli


def main() -> None:
    """Runs the command line."""
    build_cli()()


if __name__ == "__main__":
    main()
