"""``etl config show`` and ``etl config schema``."""

from __future__ import annotations

from etl.cli.options import LOCAL, Json, LogFormatOption, LogLevelOption, NoColor, PipelineFile, epilog
from etl.cli.output import emit_json, emit_table, plain_table
from etl.cli.session import Terminal, log_flags
from etl.config.figures import printable
from etl.errors import ExitCode

SHOW_EPILOG = epilog(
    "etl config show -p pipeline.yaml",
    "ETL__BATCH__MAX_BYTES=8MiB etl config show -p pipeline.yaml --json",
    codes=LOCAL,
)
SCHEMA_EPILOG = epilog("etl config schema > pipeline.schema.json", codes=(ExitCode.OK, ExitCode.USAGE))


def show(
    pipeline: PipelineFile,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Show the merged configuration and where each value came from; secrets stay masked."""
    from etl.config.explain import explain
    from etl.config.loader import load

    settings = explain(load(pipeline, flags=log_flags(Terminal(log_level, log_format, no_color))))
    if as_json:
        emit_json({s.key: {"value": s.value, "origin": s.origin} for s in settings})
        return
    table = plain_table("key", "value", "from")
    for setting in settings:
        value = setting.value
        text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        table.add_row(*map(printable, (setting.key, text, setting.origin)))
    emit_table(table, no_color=no_color)


def schema() -> None:
    """Print the JSON Schema of a pipeline's file, for editors and tools."""
    from etl.config.models import PipelineConfig

    identity = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    emit_json(identity | PipelineConfig.model_json_schema())
