"""Write docs/reference/configuration.md from the models; ``--check`` only compares and exits 1 on a difference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etl.config.models import PipelineConfig

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "configuration.md"

INTRO = """\
# Configuration

<!-- Written by tools/gen_config_reference.py from the models in etl/config; do not edit. -->

One YAML file is one pipeline: one publication of one Postgres into one destination.
The smallest file names the pipeline, the publication and the destination:

```yaml
pipeline: {id: 1, publication: etl_demo}
destination: {type: duckdb, path: ./warehouse.duckdb}
```

**Check it** with `etl config show -p FILE`: it prints every key, its value, and where the value came from.
`etl config schema` prints the JSON Schema for your editor. An unknown key is an error, and says what was probably meant.

**Precedence.** Flag, then environment variable, then file, then default.
The variable of a key is `ETL__` and the path of the key, with `__` between the parts: `source.host` is
`ETL__SOURCE__HOST`, `batch.max_bytes` is `ETL__BATCH__MAX_BYTES`. An empty variable counts as not set. Lists and whole
sections are JSON: `ETL__TABLES='[{"name": "public.orders", "mode": "changelog"}]'`.

**Secrets.** `password` and `dsn` take text, `{env: NAME}` or `{file: PATH}`. A reference is better than text: the file
can then be committed. Wherever a secret would be shown (logs, errors, `config show`) it is masked.

**What libpq knows.** Leave connection keys out and libpq finds them as in any other client: `PGHOST`, `PGPASSWORD` and
the other `PG*` variables, `.pgpass`, and service files (`PGSERVICE`).

**TLS.** For a host that is not this machine the connection must be encrypted and the server's name verified
(`sslmode: verify-full`) unless the file, the connection string, `PGSSLMODE` or a service file says otherwise. On a
private network whose server has no certificate, such as a Compose network, write `sslmode: disable`.

**Paths** are relative to the directory of the file that is read, also when they come from a variable; `~` is expanded.

**Sizes** are bytes as a number, or a number with a unit: `kB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB`
(powers of 1024). **Durations** have their unit in the name of the key.
"""

KINDS = {
    "string": "text",
    "integer": "number",
    "boolean": "true, false",
    "array": "list of sections",
    "object": "section of text",
}
UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def main() -> int:
    text = render()
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


def render() -> str:
    schema = PipelineConfig.model_json_schema()
    definitions = schema["$defs"]
    parts = [INTRO, "## Top level\n", table(schema, definitions, path="")]
    for name, field in schema["properties"].items():
        for title, section in sections(name, field, definitions):
            parts += [f"## {title}\n", heading(section), table(section, definitions, path=name)]
            for path, nested in nested_sections(name, section, definitions):
                parts += [f"### `{path}`\n", heading(nested), table(nested, definitions, path=path)]
    return "\n".join(parts)


def nested_sections(
    path: str, section: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sections inside a section, at any depth; a secret is no section."""
    for key, field in section["properties"].items():
        for reference in references(field):
            if reference != "Secret":
                yield f"{path}.{key}", definitions[reference]
                yield from nested_sections(f"{path}.{key}", definitions[reference], definitions)


def sections(
    name: str, field: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The models a key leads to: none for scalars, one for sections, several for destinations."""
    for reference in references(field):
        section = definitions[reference]
        kind = section["properties"].get("type", {}).get("const")
        title = f"`{name}[]`" if "items" in field else f"`{name}`"
        yield (f"{title}, type `{kind}`" if kind else title), section


def references(field: dict[str, Any]) -> list[str]:
    if "$ref" in field:
        return [field["$ref"].rpartition("/")[2]]
    parts = [
        *field.get("anyOf", ()),
        *field.get("oneOf", ()),
        *([field["items"]] if "items" in field else ()),
    ]
    return [found for part in parts for found in references(part)]


def heading(section: dict[str, Any]) -> str:
    return section["description"].replace("``", "`") + "\n"


def table(section: dict[str, Any], definitions: dict[str, Any], path: str) -> str:
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, field in section["properties"].items():
        default = "required" if key in section.get("required", ()) else default_text(field)
        description = field.get("description") or described(field, definitions)
        titles = link_titles(path, key, field, definitions)
        if titles:
            description += f" See {', '.join(f'[{title}](#{anchor(title)})' for title in titles)}."
        lines.append(f"| `{key}` | {kind_text(field)} | {default} | {' '.join(description.split())} |")
    return "\n".join(lines) + "\n"


def link_titles(path: str, key: str, field: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    """The headings below which the keys of a section are listed."""
    if path == "":
        return [title for title, _ in sections(key, field, definitions)]
    return [f"`{path}.{key}`" for reference in references(field) if reference != "Secret"]


def anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def described(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    return next((definitions[name]["description"].split("\n\n")[0] for name in references(field)), "")


def kind_text(field: dict[str, Any]) -> str:
    kinds = [part for part in field.get("anyOf", [field]) if part.get("type") != "null"]
    if any("pattern" in part and "MiB" in part["pattern"] for part in kinds):
        return "size"
    return " or ".join(dict.fromkeys(kind_of(part) for part in kinds))


def kind_of(part: dict[str, Any]) -> str:
    choices = part.get("enum") or ([part["const"]] if "const" in part else [])
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if part.get("$ref", "").endswith("/Secret"):
        return "secret"
    if "$ref" in part or "oneOf" in part:
        return "section"
    if part.get("items", {}).get("type") == "string":
        return "list of text"
    return "path" if part.get("format") == "path" else KINDS[part["type"]] + limits(part)


def limits(part: dict[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    if low is None or (low == 0 and high is None):
        return ""
    return f" from {low}" if high is None or high >= 2**62 else f" {low} to {high}"


def default_text(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict | list):
        return ""
    if kind_text(field) == "size":
        return next(
            (f"`{default // size}{unit}`" for size, unit in UNITS if default % size == 0), f"`{default}`"
        )
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    sys.exit(main())
