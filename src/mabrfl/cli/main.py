"""The ``mabrfl`` command: start, exit codes, and messages after mistakes and interruptions.

:func:`main` imports the rest, because a user may press Ctrl-C in the meantime.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from mabrfl.cli.stopping import Stopped, importing, stop_on_sigterm
from mabrfl.errors import MabRflError, extra_needed

INTERRUPTED = 130
OUTPUT_LOST = 1

_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)
"""The errors of a standard output that is closed, or that goes to a disk that is full or gone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake is one line on stderr.

    Codes: 0 done; 1 standard output was closed or is full; 2 wrong usage; 3 to 11 the kinds of :mod:`mabrfl.errors`;
    130 Ctrl-C; 143 terminated.
    """
    _prepare()
    try:
        with stop_on_sigterm():
            with importing():
                import click
                import typer

                from mabrfl.cli.app import app
            try:
                with extra_needed("this command"):
                    code = typer.main.get_command(app).main(
                        args=None if arguments is None else list(arguments), prog_name="mabrfl", standalone_mode=False
                    )
                sys.stdout.flush()
            except (click.ClickException, MabRflError) as error:
                return _report_mistake(error)
            except click.Abort:
                return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Stopped as stopped:
        return stopped.exit_code
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        return _report_output_error(error)
    return code if isinstance(code, int) else 0


def _prepare() -> None:
    """Let imports find modules in the current folder, and make the output work with any terminal, or none."""
    sys.path.append(os.getcwd())
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The parent process closed it; the next file that is opened must not get its number.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _report_output_error(error: OSError) -> int:
    """Report that standard output cannot be written; a closed pipe needs no report, its reader closed it."""
    # The buffer still holds text that cannot be written; without this the interpreter complains at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:
        sys.stderr.write(f"error: cannot write to standard output: {error.strerror}\n")
    return OUTPUT_LOST


def _report_mistake(error: Any) -> int:
    import click
    from rich.console import Console
    from rich.text import Text

    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    # Older versions of click have no such class, and print the help by themselves.
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        click.echo(message, err=True)
    else:
        # Click and typer both add their suggestion.
        line = re.sub(r"(Did you mean [^?]+\?)( \1)+", r"\1", " ".join(message.split()))
        Console(stderr=True).print(Text(f"error: {line}", style="red"), soft_wrap=True)
    return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
