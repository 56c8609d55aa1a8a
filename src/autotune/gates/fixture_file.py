"""Reads the file of a fixtures gate: every mistake at once, each with its line."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from autotune.gates.answers import find_violation
from autotune.gates.expectations import Expectation

_COUNT = {"type": "integer", "minimum": 0}
_BUDGET = {"type": "integer", "minimum": 1}
_TEXTS = {"type": ["string", "array"], "items": {"type": "string"}}
_FUNCTION = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "parameters": {"type": "object"}},
    "required": ["name"],
}
_TOOL = {"type": "object", "properties": {"function": _FUNCTION}, "required": ["function"]}
_FORMAT = {
    "type": "object",
    "required": ["type"],
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {
        "required": ["json_schema"],
        "properties": {
            "json_schema": {
                "type": "object",
                "properties": {"schema": {"type": "object"}},
                "required": ["schema"],
            }
        },
    },
}
_EXPECT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "tool": {"type": ["string", "null"]},
        "arguments": {"type": "object"},
        "json_schema": {"type": "object"},
        "matches": {"type": "string"},
        "not_matches": {"type": "string"},
        "contains": _TEXTS,
        "not_contains": _TEXTS,
        "min_chars": _COUNT,
        "max_chars": _COUNT,
        "max_words": _COUNT,
        "max_tokens": _COUNT,
        "max_latency_s": {"type": "number", "exclusiveMinimum": 0},
    },
}
_LINE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "messages"],
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "tools": {"type": "array", "items": _TOOL},
        "tool_choice": {"type": ["string", "object"]},
        "response_format": _FORMAT,
        "stream": {"type": "boolean"},
        "max_tokens": _BUDGET,
        "temperature": {"type": "number", "minimum": 0},
        "expect": _EXPECT,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """One line: a question and what is expected of its answer."""

    id: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    stream: bool = False
    max_tokens: int | None = None
    temperature: float = 0.0
    expect: Expectation = field(default_factory=Expectation)


def read_fixtures(path: Path) -> tuple[Fixture, ...]:
    """Read every line.

    Raises:
        ValueError: The file cannot be read, is empty, or has mistakes: all of them, a line each.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"file: {path} cannot be read: {error}") from None
    fixtures: dict[str, Fixture] = {}
    problems: list[str] = []
    # Only at line feeds: JSON may hold U+2028 as it is.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            fixture = _read_line(line)
            if fixture.id in fixtures:
                raise ValueError(f"the id {fixture.id!r} is taken by an earlier line")  # noqa: TRY301 - told with its line
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
        else:
            fixtures[fixture.id] = fixture
    if problems:
        raise ValueError("\n".join(problems))
    if not fixtures:
        raise ValueError(f"file: {path} holds no fixture")
    return tuple(fixtures.values())


def _read_line(line: str) -> Fixture:
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    violation = find_violation(data, _LINE)
    if violation is not None:
        raise ValueError(violation)
    _check_schemas(data)
    return Fixture(
        **{
            **data,
            "messages": tuple(data["messages"]),
            "tools": tuple(data.get("tools", ())),
            "expect": _read_expectation(data.get("expect", {})),
        }
    )


def _check_schemas(data: Mapping[str, Any]) -> None:
    for tool in data.get("tools", ()):
        function = tool["function"]
        _check_schema(f"tools: {function['name']}", function.get("parameters", {}))
    wanted = data.get("response_format", {}).get("json_schema", {}).get("schema", {})
    _check_schema("response_format.json_schema.schema", wanted)
    _check_schema("expect.json_schema", data.get("expect", {}).get("json_schema", {}))


def _check_schema(where: str, schema: Mapping[str, Any]) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"{where}: no JSON schema: {error.message}") from None


def _read_expectation(data: Mapping[str, Any]) -> Expectation:
    read: dict[str, Any] = dict(data)
    read["no_tool"] = "tool" in data and data["tool"] is None
    for name in ("matches", "not_matches"):
        if name in data:
            read[name] = _read_pattern(f"expect.{name}", data[name])
    for name in ("contains", "not_contains"):
        texts = data.get(name, ())
        read[name] = (texts,) if isinstance(texts, str) else tuple(texts)
    return Expectation(**read)


def _read_pattern(where: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{where}: no regular expression: {error}") from None
