"""``moorage`` and ``python -m server``."""

import os
import sys


def main() -> None:
    """Runs the command line."""
    # read when torch is loaded: threads that spin while they wait starve the other instances of a small machine
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from server.cli import build_cli

        cli = build_cli()
    except (ImportError, OSError) as error:  # a package or a system library is missing
        _doctor_or_words(error)
    else:
        cli()


def _doctor_or_words(error: ImportError | OSError) -> None:
    """The doctor is for installations such as this one, so it must do with less than the other commands."""
    if "doctor" in sys.argv[1:2]:
        try:
            import typer

            from server.doctor.command import command
        except (ImportError, OSError) as missing:
            error = missing
        else:
            del sys.argv[1]
            typer.run(command)
    sys.stderr.write(f"moorage: {error}\nThe installation is not complete: pip install moorage, or moorage doctor\n")
    raise SystemExit(1)


if __name__ == "__main__":
    main()
