"""A model that does what the gates ask, behind a replay server; tests break it on purpose."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from autotune.gates.tool_cases import ToolQuestion, questions
from tests.fakes.replay_server import Asked, Recorded, Said

ROUNDS = 8


def speak(asked: Asked) -> Said:
    """Say what a good model says to any question of the gates."""
    if "response_format" in asked.body:
        schema = asked.body["response_format"]["json_schema"]["schema"]
        return Said(content=json.dumps(instance(schema)))
    question = find_question(asked)
    if question is None:
        return Said(content="Hello there, all is well.")
    return answer_question(question)


def answer(asked: Asked) -> Recorded:
    return speak(asked).recorded(stream=asked.body["stream"])


def answer_question(question: ToolQuestion) -> Said:
    if question.tool is None:
        return Said(content=f"It is {question.says or 'me'}, hello.")
    calls = [(question.tool, json.dumps(values)) for values in question.holding or ({},)]
    return Said(calls=calls, finish_reason="tool_calls")


def find_question(asked: Asked) -> ToolQuestion | None:
    messages = [message for message in asked.body["messages"] if message["role"] != "system"]
    return _KNOWN.get(_key(messages, asked.body.get("tools", ())))


def _key(messages: Any, tools: Any) -> str:
    return f"{json.dumps(messages)} {len(tools)}"


_KNOWN = {
    _key(question.messages, question.tools): question
    for number in range(ROUNDS)
    for question in questions(number)
}


def instance(schema: Mapping[str, Any]) -> Any:
    """Build the smallest value that keeps to a schema of the gates."""
    if "enum" in schema:
        return schema["enum"][0]
    simple = {"string": "Ada", "boolean": True}
    if schema["type"] in simple:
        return simple[schema["type"]]
    if schema["type"] in ("integer", "number"):
        return schema["minimum"]
    if schema["type"] == "array":
        return [instance(schema["items"]) for _ in range(schema["minItems"])]
    return {name: instance(inner) for name, inner in schema["properties"].items()}


def but(change: Callable[[Asked, Said], Said | Recorded]) -> Callable[[Asked], Recorded]:
    """Let the obedient model answer, then change what it says."""

    def changed(asked: Asked) -> Recorded:
        said = change(asked, speak(asked))
        return said if isinstance(said, Recorded) else said.recorded(stream=asked.body["stream"])

    return changed
