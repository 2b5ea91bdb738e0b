"""What is wrong with a configuration, in a line each: where, what, and what was probably meant. Never a value."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from etl.config.shape import place_at, without_tags
from etl.config.values import ConfigModel
from etl.config.yaml_file import Key

_TEXTS = {
    "missing": "is required",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path",
    "tuple_type": "must be a list",
    "dict_type": "must be a section with keys",
    "model_type": "must be a section with keys",
    "model_attributes_type": "must be a section with keys",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must not be longer than {max_length} characters",
    "string_pattern_mismatch": "must be written schema.name",
}


def describe_problems(
    root: type[ConfigModel], error: ValidationError, where: Callable[[Key], str]
) -> list[str]:
    """One line per problem of `error`; `where` names the origin (line, variable, flag) of a key."""
    lines = []
    for details in error.errors(include_url=False):
        key = without_tags(root, details["loc"])
        if details["type"] == "union_tag_invalid":
            key = (*key, "type")
        name = ".".join(map(str, key)) or "the file"
        lines.append(f"{where(key)}: {name} {_explain(root, key, details)}")
    return lines


def did_you_mean(given: str, known: tuple[str, ...]) -> str:
    """`` (did you mean 'x'?)`` or the list of what is known."""
    if close := get_close_matches(given.lower(), known, n=1, cutoff=0.6):
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(known)}" if known else ""


def _explain(root: type[ConfigModel], key: Key, details: ErrorDetails) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        guess = did_you_mean(str(key[-1]), place_at(root, key[:-1]).keys)
        return f"is not a known key; {guess}" if guess else "is not a known key"
    if kind in {"literal_error", "union_tag_invalid"}:
        return _explain_choice(details["input"], place_at(root, key).choices)
    if kind == "union_tag_not_found":
        return f"needs a type: {', '.join(place_at(root, (*key, 'type')).choices)}"
    text = _TEXTS.get(kind)
    return text.format(**details.get("ctx", {})) if text else details["msg"]


def _explain_choice(given: object, choices: tuple[str, ...]) -> str:
    text = f"must be {'one of ' if len(choices) > 1 else ''}{', '.join(choices)}"
    value = given.get("type") if isinstance(given, dict) else given
    close = get_close_matches(value.lower(), choices, n=1, cutoff=0.6) if isinstance(value, str) else []
    return f"{text}; did you mean {close[0]!r}?" if close and len(choices) > 1 else text
