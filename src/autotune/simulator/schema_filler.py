"""Builds a small instance of a JSON schema, with values from the request where they fit.

Honours type, enum, const, required, properties, items, bounds, lengths, pattern, format, $ref,
anyOf, oneOf and allOf. Optional properties are left out unless the request speaks of them.
"""

import re
from collections.abc import Mapping
from typing import Any

from autotune.simulator.patterns import example_of
from autotune.simulator.text_facts import TextFacts

_DEEPEST = 12
_SHORTEST_WORD = 3
_FORMATS = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:30:00Z",
    "time": "09:30:00Z",
    "email": "someone@example.com",
    "uuid": "3f0c2a4e-8b1d-4c57-9a6e-0d2b7f5e1c34",
    "uri": "https://example.com/",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
}
_ORIGIN = {"from", "origin", "source", "departure"}
_DESTINATION = {"to", "destination", "target", "arrival"}
_SAID = re.compile(r"\b(?:saying|says|that reads|with the (?:text|body|message))\b:?\s+(.+)$")
_WHOLE_TEXT = {"query", "question", "prompt", "text", "content", "message", "body", "task", "note"}


class SchemaFiller:
    """Fills schemas from one text; a number is used once, in the order of the text."""

    def __init__(self, facts: TextFacts, root: Mapping[str, Any]) -> None:
        self._facts = facts
        self._root = root
        self._numbers = list(facts.numbers)
        self._names = list(facts.names)

    def prefer(self, name: str) -> None:
        """Use this name first."""
        self._names = [name, *(other for other in self._names if other != name)]

    def fill(self, schema: Any, name: str = "", depth: int = 0) -> Any:
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return "value"
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._choice(schema["enum"])
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            return self.fill(self._best_branch(branches), name, depth + 1)
        return self._typed(schema, name, depth)

    def _typed(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._boolean(name)
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            target: Any = self._root
            for part in reference.removeprefix("#").strip("/").split("/"):
                target = target.get(part, {}) if isinstance(target, Mapping) and part else target
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        for part in schema.get("allOf", ()):
            schema = _merged(schema, self._resolved(part))
        return schema

    @staticmethod
    def _best_branch(branches: list[Any]) -> Any:
        real = [branch for branch in branches if branch.get("type") != "null"]
        return real[0] if real else branches[0]

    def _choice(self, values: list[Any]) -> Any:
        """Take the value that the text names, else the first."""
        lowered = self._facts.text.lower()
        named = [value for value in values if isinstance(value, str) and value.lower() in lowered]
        whole = [value for value in named if re.search(rf"\b{re.escape(value.lower())}\b", lowered)]
        return (whole or named or values)[0]

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = schema.get("required")
        if required is None:
            required = list(properties)  # models fill what they are shown
        wanted = [
            name for name in properties if name in required or self._spoken_of(name, properties)
        ]
        wanted += [name for name in required if name not in properties]
        filled = {name: self.fill(properties.get(name, {}), name, depth + 1) for name in wanted}
        missing = int(schema.get("minProperties", 0)) - len(filled)
        extra = schema.get("additionalProperties")
        for index in range(max(0, missing)):
            filled[f"key{index}"] = self.fill(
                extra if isinstance(extra, Mapping) else {}, "", depth + 1
            )
        return filled

    def _spoken_of(self, name: str, properties: Mapping[str, Any]) -> bool:
        if any(
            word in self._facts.words for word in _words_of(name) if len(word) >= _SHORTEST_WORD
        ):
            return True
        values = properties[name].get("enum") if isinstance(properties[name], Mapping) else None
        return any(
            isinstance(value, str)
            and len(value) >= _SHORTEST_WORD
            and value.lower() in self._facts.words
            for value in values or ()
        )

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        items = schema.get("items") or {}
        count = max(int(schema.get("minItems", 0)), 1)
        if "maxItems" in schema:
            count = min(count, int(schema["maxItems"]))
        if _type_of(items) == "string" and not {"enum", "pattern", "format"} & set(items):
            count = max(count, min(len(self._names), int(schema.get("maxItems", len(self._names)))))
        values: list[Any] = []
        for index in range(count):
            value = self._distinct(items, name, depth, values, index)
            if values and schema.get("uniqueItems") and value in values:
                value = f"{value} {index + 1}" if isinstance(value, str) else value
            values.append(value)
        return values

    def _distinct(self, items: Any, name: str, depth: int, before: list[Any], index: int) -> Any:
        enum = items.get("enum") if isinstance(items, Mapping) else None
        if enum:
            rest = [value for value in enum if value not in before]
            return self._choice(rest or enum)
        value = self.fill(items, name.rstrip("s"), depth + 1)
        if before and isinstance(value, int | float) and value in before:
            return value + index
        if self._names and value == self._names[0]:
            self._names.pop(0)
        return value

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        low, high = _bounds(schema, whole=whole)
        step = schema.get("multipleOf")
        for number in self._numbers:
            fits = low <= number <= high and (not whole or number == int(number))
            if fits and not (step and number % step):
                self._numbers.remove(number)
                return int(number) if whole or number == int(number) else number
        value = min(max(1.0, low), high)
        if step:
            value = -(-value // step) * step
        if whole:
            return int(-(-value // 1))
        return int(value) if value == int(value) else value

    def _boolean(self, name: str) -> bool:
        negation = (
            rf"\b(?:no|not|without|disable|off)\b[\w\s]{{0,12}}{re.escape(name.rpartition('_')[2])}"
        )
        return not re.search(negation, self._facts.text.lower())

    def _string(self, schema: Mapping[str, Any], name: str) -> str:
        if schema.get("pattern"):
            return self._patterned(str(schema["pattern"]))
        value = self._formatted(str(schema.get("format", "")), name) or self._named(name)
        value = value or (self._names[0] if self._names else "")
        value = value or (self._facts.quoted[0] if self._facts.quoted else name or "value")
        least = int(schema.get("minLength", 0))
        if len(value) < least:
            value = (value + " " + "x" * least)[:least]
        return value[: int(schema.get("maxLength", len(value)))]

    def _patterned(self, pattern: str) -> str:
        facts = self._facts
        for candidate in (*facts.quoted, *facts.codes, *facts.dates, *facts.text.split()):
            if re.search(pattern, candidate):
                return candidate
        return example_of(pattern)

    def _formatted(self, form: str, name: str) -> str:
        facts = self._facts
        words = set(_words_of(name))
        found: tuple[str, ...] = ()
        if form == "email" or words & {"email", "mail", "recipient"}:
            found = facts.emails
        elif form == "uri" or words & {"url", "link", "uri"}:
            found = facts.urls
        elif words & {"path", "file", "filename", "filepath"}:
            found = facts.paths
        elif form == "date" or words & {"date", "day", "when"}:
            found = tuple(date for date in facts.dates if form != "date" or date[:1].isdigit())
        elif words & {"time", "clock"}:
            found = facts.times
        elif words & {"currency", "symbol", "ticker"}:
            found = self._code(words)
        return found[0] if found else _FORMATS.get(form, "")

    def _code(self, words: set[str]) -> tuple[str, ...]:
        codes = self._facts.codes
        return codes[1:] if words & _DESTINATION and len(codes) > 1 else codes

    def _named(self, name: str) -> str:
        facts = self._facts
        words = set(_words_of(name))
        if words & _ORIGIN:
            return facts.after("from") or ""
        if words & _DESTINATION:
            return facts.after("to") or (facts.emails[0] if facts.emails else "")
        if words & {"expression", "equation", "formula", "calculation"} and facts.arithmetic:
            return facts.arithmetic
        if words & _WHOLE_TEXT:
            said = _SAID.search(facts.text)
            if said:
                return said[1].strip().strip("\"'")
            return facts.quoted[0] if facts.quoted else facts.text.strip()
        if words & {"title", "subject", "label"} and facts.quoted:
            return facts.quoted[0]
        return ""


def _words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def _type_of(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "string"
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _bounds(schema: Mapping[str, Any], *, whole: bool) -> tuple[float, float]:
    nudge = 1.0 if whole else 0.01
    low = float(schema.get("minimum", float("-inf")))
    high = float(schema.get("maximum", float("inf")))
    if "exclusiveMinimum" in schema:
        low = max(low, float(schema["exclusiveMinimum"]) + nudge)
    if "exclusiveMaximum" in schema:
        high = min(high, float(schema["exclusiveMaximum"]) - nudge)
    return low, high


def _merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**left, **right}
    merged["properties"] = {**left.get("properties", {}), **right.get("properties", {})}
    required = [*left.get("required", ()), *right.get("required", ())]
    if required:
        merged["required"] = required
    if not merged["properties"]:
        del merged["properties"]
    return merged
