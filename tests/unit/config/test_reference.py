from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from etl.config.explain import explain
from etl.config.loader import load
from etl.config.models import PipelineConfig

ROOT = Path(__file__).parents[3]


def test_the_reference_is_what_the_models_say():
    tool = ROOT / "tools" / "gen_config_reference.py"

    assert subprocess.run([sys.executable, str(tool), "--check"], check=False).returncode == 0, (
        "run tools/gen_config_reference.py"
    )


def test_every_key_is_described_for_people_and_editors():
    def undescribed(schema: dict[str, object], path: str) -> list[str]:
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        return [
            f"{path}.{key}"
            for key, field in properties.items()
            if "description" not in field and "$ref" not in field
        ]

    schema = PipelineConfig.model_json_schema()
    found = undescribed(schema, "") + [
        name for key, section in schema["$defs"].items() for name in undescribed(section, key)
    ]

    assert found == []


def test_explaining_lists_every_key_once_with_its_origin(write: Callable[..., Path]):
    settings = explain(load(write("source: {host: a}"), environ={"ETL__SOURCE__USER": "u"}))
    origins = {setting.key: setting.origin for setting in settings}

    assert len(origins) == len(settings)
    assert origins["source.host"] == "file:1"
    assert origins["source.user"] == "env ETL__SOURCE__USER"
    assert origins["source.port"] == "default"
    assert origins["batch.max_bytes"] == "default"
