"""Reads the body of a generation request and refuses what vLLM refuses, in its words."""

import json
import zlib
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.simulator.answers import Lengths, content_key, message_text
from autotune.simulator.tokenizer import Tokenizer

_MESSAGE_TOKENS = 4
_TEMPLATE_TOKENS = 3
_PREFIX_BLOCK = 16


class BadRequestError(Exception):
    """The server answers with this status and vLLM's error object."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt: its size, what it says, and the keys of its blocks for the prefix cache."""

    tokens: int
    content: int
    block_keys: Sequence[Hashable]
    text: str
    ids: Sequence[int] | None

    def token_ids(self, tokenizer: Tokenizer) -> list[int]:
        return list(self.ids) if self.ids is not None else tokenizer.encode(self.text)


def read_body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as problem:
        raise BadRequestError(f"Invalid JSON: {problem}") from problem
    if not isinstance(body, dict):
        raise BadRequestError("Input should be a valid dictionary")
    return body


def check_model(body: Mapping[str, Any], served: Sequence[str]) -> str:
    model = body.get("model")
    if not model or model in served:
        return str(model or served[0])
    raise BadRequestError(f"The model `{model}` does not exist.", status=404, param="model")


def text_prompt(text: str, *, salt: str, caching: bool, extra_tokens: int = 0) -> Prompt:
    pieces = Tokenizer.split(text)
    return Prompt(
        tokens=len(pieces) + extra_tokens,
        content=content_key(text),
        block_keys=_block_keys(pieces, salt) if caching else (),
        text=text,
        ids=None,
    )


def id_prompt(ids: Sequence[int], *, salt: str, caching: bool) -> Prompt:
    return Prompt(
        tokens=len(ids),
        content=zlib.crc32(array("q", ids).tobytes()),
        block_keys=_block_keys(ids, salt) if caching else (),
        text="",
        ids=ids,
    )


def _block_keys(items: Sequence[Hashable], salt: str) -> list[Hashable]:
    """Name each whole block by itself and all that comes before it."""
    keys: list[Hashable] = []
    key = hash(salt)
    for start in range(0, len(items) - _PREFIX_BLOCK + 1, _PREFIX_BLOCK):
        key = hash((key, tuple(items[start : start + _PREFIX_BLOCK])))
        keys.append(key)
    return keys


def completion_prompts(body: Mapping[str, Any], *, caching: bool) -> list[Prompt]:
    """Read `prompt`: a text, token ids, or a list of either."""
    written = body.get("prompt")
    salt = str(body.get("cache_salt") or "")
    if isinstance(written, str):
        return [text_prompt(written, salt=salt, caching=caching)]
    if not isinstance(written, list) or not written:
        raise BadRequestError(
            "Either prompt or prompt_embeds must be provided and non-empty.", param="prompt"
        )
    if all(isinstance(item, int) for item in written):
        return [id_prompt(written, salt=salt, caching=caching)]
    prompts = []
    for item in written:
        if isinstance(item, str):
            prompts.append(text_prompt(item, salt=salt, caching=caching))
        else:
            prompts.append(id_prompt(item, salt=salt, caching=caching))
    return prompts


def chat_prompt(body: Mapping[str, Any], *, caching: bool) -> Prompt:
    """Render the messages and tools as a chat template would, and count the tokens."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("Field required: messages", param="messages")
    parts = [json.dumps(body["tools"])] if body.get("tools") else []
    for message in messages:
        if not isinstance(message, dict):
            raise BadRequestError("Input should be a valid dictionary", param="messages")
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        parts.append(f"{message.get('role', 'user')}\n{message_text(message)}{calls}\n")
    return text_prompt(
        "".join(parts),
        salt=str(body.get("cache_salt") or ""),
        caching=caching,
        extra_tokens=_MESSAGE_TOKENS * len(messages) + _TEMPLATE_TOKENS,
    )


def check_chat(body: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse combinations of tools that vLLM refuses."""
    tools = body.get("tools")
    if tools is not None and not tools:
        raise BadRequestError("`tools` must not be an empty list.", param="tools")
    choice = body.get("tool_choice")
    if not tools:
        if choice not in {None, "none", "auto"} or isinstance(choice, dict):
            raise BadRequestError(
                "When using `tool_choice`, `tools` must be set.", param="tool_choice"
            )
        return
    if (choice is None or choice == "auto") and not (
        given.get("enable_auto_tool_choice") and given.get("tool_call_parser")
    ):
        raise BadRequestError(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        )
    if isinstance(choice, dict):
        names = [tool.get("function", {}).get("name") for tool in tools]
        wanted = choice.get("function", {}).get("name")
        if wanted not in names:
            raise BadRequestError(
                "The tool specified in `tool_choice` does not match any of the specified `tools`",
                param="tool_choice",
            )


def check_stream_options(body: Mapping[str, Any]) -> None:
    if body.get("stream_options") and not body.get("stream"):
        raise BadRequestError(
            "Stream options can only be defined when `stream=True`.", param="stream_options"
        )


def read_lengths(
    body: Mapping[str, Any], *, prompt_tokens: int, max_model_len: int, default: int | None
) -> Lengths:
    """Decide how long the answer may be.

    Raises:
        BadRequestError: Prompt and answer do not fit the context.
    """
    room = max_model_len - prompt_tokens
    if room < 1:
        raise BadRequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt "
            f"contains {prompt_tokens} input tokens, which exceeds this limit even without any output "
            "tokens. Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if body.get("max_tokens") == 0 or (asked is not None and asked < 1):
        raise BadRequestError(
            f"max_tokens must be at least 1, got {asked or 0}.", param="max_tokens"
        )
    if asked is not None and asked > room:
        raise BadRequestError(
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum "
            f"context length is {max_model_len} tokens and your request has {prompt_tokens} input "
            f"tokens ({asked} > {max_model_len} - {prompt_tokens}).",
            param="max_tokens",
        )
    most = asked if asked is not None else (room if default is None else min(default, room))
    least = int(body.get("min_tokens") or 0)
    if least > most:
        raise BadRequestError(
            f"min_tokens must be less than or equal to max_tokens={most}, got {least}.",
            param="min_tokens",
        )
    return Lengths(
        max_tokens=int(most), min_tokens=least, ignore_eos=bool(body.get("ignore_eos", False))
    )
