"""Which tools a request asks for, and the calls a good model would make.

Keyword matching: enough to call a tool when the text names its purpose, to leave it alone when it
does not, and to make several calls when several things are asked for.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.simulator.schema_filler import SchemaFiller
from autotune.simulator.text_facts import TextFacts, find_facts, find_objects, words_of

# A name word that says what a tool is about counts 2, one of these verbs 1.
_VERBS = words_of(
    "get set create send search find list read write check run make add update delete fetch lookup look "
    "current new tool do call execute show query data info"
)
_STOP = words_of(
    "the and for with from that this into your you are can use used using given when what which returns "
    "return about name value values string number optional user tool function one two all any its has have "
    "not will specified specific provided information details"
)
_SYNONYMS: Mapping[str, str] = {
    "rain": "weather",
    "raining": "weather",
    "forecast": "weather",
    "temperature": "weather",
    "umbrella": "weather",
    "sunny": "weather",
    "mail": "email",
    "remind": "reminder",
    "multiply": "calculate",
    "compute": "calculate",
    "calculator": "calculate",
    "meeting": "calendar",
    "appointment": "calendar",
    "exchange": "convert",
    "shares": "stock",
    "clock": "time",
    "google": "search",
}
_ENOUGH = 3
_SHORTEST_STEM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call, its arguments as the JSON text that is sent."""

    name: str
    arguments: str


def call_named(tool: Mapping[str, Any], text: str) -> ToolCall:
    """Call this one tool, whatever the text says."""
    return _call(tool, find_facts(text), prefer=None)


def choose_calls(
    tools: Sequence[Mapping[str, Any]], text: str, *, required: bool, parallel: bool
) -> list[ToolCall]:
    """Call the tools that fit; without `required` that may be none."""
    facts = find_facts(text)
    scores = [(_score(tool, facts), tool) for tool in tools]
    best = max(score for score, _ in scores)
    if best < _ENOUGH and not required:
        return []
    wanted = [tool for score, tool in scores if score == best][:1]
    if parallel:
        wanted += [
            tool
            for score, tool in scores
            if tool is not wanted[0] and score >= _ENOUGH and _adds(tool, wanted[0], facts)
        ]
    calls = []
    for tool in wanted:
        targets = _targets(tool, facts) if parallel and len(wanted) == 1 else []
        chosen: list[str | None] = [*targets] or [None]
        calls += [_call(tool, facts, prefer=name) for name in chosen]
    return calls


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def _name_words(tool: Mapping[str, Any]) -> set[str]:
    name = str(_function(tool).get("name", ""))
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _asked_words(facts: TextFacts) -> set[str]:
    return {_stem(_SYNONYMS.get(word, word)) for word in facts.words if word not in _STOP}


def _stem(word: str) -> str:
    for ending in ("ing", "es", "ed", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


def _score(tool: Mapping[str, Any], facts: TextFacts) -> int:
    asked = _asked_words(facts)
    name = _name_words(tool)
    score = sum((1 if word in _VERBS else 2) for word in name if _stem(word) in asked)
    described = re.findall(r"[a-z]{3,}", str(_function(tool).get("description", "")).lower())
    score += sum(
        1
        for word in {_stem(_SYNONYMS.get(word, word)) for word in described}
        - {_stem(v) for v in _STOP}
        if word in asked and word not in {_stem(verb) for verb in _VERBS}
    )
    if facts.arithmetic and {"calculate", "calculator", "calc", "math", "evaluate"} & name:
        score += _ENOUGH
    if str(_function(tool).get("name", "\0")) in facts.text:
        score += _ENOUGH
    return score


def _adds(tool: Mapping[str, Any], first: Mapping[str, Any], facts: TextFacts) -> bool:
    """Whether the text speaks of this tool in words that the first does not explain."""
    own = {_stem(word) for word in _name_words(tool) - _VERBS}
    return bool((own - {_stem(word) for word in _name_words(first)}) & _asked_words(facts))


def _targets(tool: Mapping[str, Any], facts: TextFacts) -> list[str]:
    """List the things one call each is wanted for: `Paris and Oslo` for a tool that takes a city."""
    schema = _function(tool).get("parameters") or {}
    required = schema.get("required") or []
    properties = schema.get("properties") or {}
    free = [
        name
        for name in required
        if properties.get(name, {}).get("type") == "string" and not properties[name].get("enum")
    ]
    joined = re.search(r"\band\b|,|\bboth\b", facts.text.lower())
    if len(free) != 1 or len(facts.names) < 2 or joined is None or facts.quoted:  # noqa: PLR2004 - several
        return []
    return list(facts.names)


def _call(tool: Mapping[str, Any], facts: TextFacts, *, prefer: str | None) -> ToolCall:
    function = _function(tool)
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    filled = _dictated(schema, facts)
    if filled is None:
        filler = SchemaFiller(facts, schema)
        if prefer is not None:
            filler.prefer(prefer)
        filled = filler.fill({"type": "object", "required": [], **schema})
    return ToolCall(name=str(function.get("name", "")), arguments=json.dumps(filled))


def _dictated(schema: Mapping[str, Any], facts: TextFacts) -> dict[str, Any] | None:
    """Take the arguments as the text gives them, where it holds a JSON object that fits the tool."""
    properties = set(schema.get("properties") or {})
    required = set(schema.get("required") or ())
    for found in find_objects(facts.text):
        if required <= found.keys() <= properties:
            return found
    return None
