"""How errors end the process: one block of text on standard error, and the exit code of the error's class."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from etl.cli.output import say
from etl.errors import EtlError, ExitCode


class ReportingGroup(TyperGroup):
    """The root of all verbs: the one place where errors are told to a person."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; turn what it raises into text and an exit code."""
        try:
            return super().invoke(ctx)
        except EtlError as error:
            _report(error)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            raise
        except Exception as error:  # the last resort: nothing stands above
            if _belongs_to_typer(error):
                raise
            _report_bug(error)
            raise typer.Exit(ExitCode.UNEXPECTED) from None


def _belongs_to_typer(error: Exception) -> bool:
    """Usage errors and exits carry their own code and are shown by typer."""
    return hasattr(error, "exit_code") or isinstance(error, typer.Abort)


def _report(error: EtlError) -> None:
    where = [f"table {error.table}"] if error.table else []
    where += [f"at {error.lsn}"] if error.lsn is not None else []
    _tell(error.message, where=", ".join(where), hint=error.hint, error=error)


def _report_bug(error: Exception) -> None:
    from etl.telemetry.logging import place_of

    _tell(
        f"unexpected {type(error).__name__} at {place_of(error)}; this is a bug in etl",
        where="",
        hint="please report it with the traceback that --log-level debug shows",
        error=error,
    )


def _tell(message: str, *, where: str, hint: str, error: Exception) -> None:
    from etl.telemetry.logging import is_debug, render_traceback
    from etl.telemetry.redaction import redact

    if is_debug():
        say(render_traceback(error))
    say(redact(message), heading="error: ")
    if where:
        say(f"  where: {redact(where)}")
    if hint:
        say(f"  hint: {redact(hint)}")
