"""Writes a question as the bodies of the three interfaces want it.

vLLM speaks OpenAI's chat and responses and Anthropic's messages. The last has no JSON schema for an
answer, so nothing asks it for one.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.model.chat import ChatRequest


def request_body(request: ChatRequest, model: str) -> bytes:
    write = {"chat": _chat, "responses": _responses, "messages": _messages}[request.endpoint]
    body = {
        "model": model,
        "temperature": request.temperature,
        "stream": request.stream,
        **write(request),
        **request.extra,
    }
    return json.dumps(body, default=_thawed).encode()


def _chat(request: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": request.messages, "max_tokens": request.max_tokens}
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = request.tools
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if request.response_format is not None:
        body["response_format"] = request.response_format
    return body


def _responses(request: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "input": [item for message in request.messages for item in _input_items(message)],
        "max_output_tokens": request.max_tokens,
        "store": False,
    }
    if request.tools:
        body["tools"] = [{"type": "function", **tool["function"]} for tool in request.tools]
        body["tool_choice"] = _flat_choice(request, "function")
    wanted = (request.response_format or {}).get("json_schema")
    if wanted is not None:
        body["text"] = {"format": {"type": "json_schema", **wanted}}
    return body


def _input_items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message["tool_call_id"],
            "output": message["content"],
        }
        return
    if message.get("content"):
        yield {"role": message["role"], "content": message["content"]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _messages(request: ChatRequest) -> dict[str, Any]:
    system = [m["content"] for m in request.messages if m["role"] == "system"]
    body: dict[str, Any] = {
        "messages": [_message(m) for m in request.messages if m["role"] != "system"],
        "max_tokens": request.max_tokens,
    }
    if system:
        body["system"] = "\n".join(system)
    if request.tools:
        body["tools"] = [_anthropic_tool(tool["function"]) for tool in request.tools]
        body["tool_choice"] = _anthropic_choice(request)
    return body


def _anthropic_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters", {"type": "object"}),
    }


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": message["content"],
        }
        return {"role": "user", "content": [result]}
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "content": calls or message["content"]}


def _anthropic_choice(request: ChatRequest) -> dict[str, Any]:
    choice = _flat_choice(request, "tool")
    if isinstance(choice, Mapping):
        return dict(choice)
    return {"type": {"required": "any"}.get(choice, choice)}


def _flat_choice(request: ChatRequest, kind: str) -> Any:
    """Name a tool on the choice itself, where a chat nests it."""
    choice = request.tool_choice or "auto"
    if isinstance(choice, Mapping):
        return {"type": kind, "name": choice["function"]["name"]}
    return choice


def _thawed(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")
