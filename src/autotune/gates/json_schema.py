"""The gate that asks for JSON to a schema.

It sends `response_format`: vLLM dropped `guided_json`, which a server takes and ignores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.gates.asking import Case, ask_in_rounds, ask_one_by_one
from autotune.gates.long_context import long_context
from autotune.gates.options import (
    LONG_CONTEXT_TOKENS,
    SAMPLED,
    Asking,
    check_choices,
    check_count,
    thinking_option,
    ways,
)
from autotune.gates.text_answers import judge_json
from autotune.model.chat import ChatRequest, Endpoint
from autotune.model.outcome import CaseResult, Reference, Verdict
from autotune.protocols import Client

_NAMES = ("Ada", "Bo", "Chidi", "Dana", "Emil", "Fay", "Goro", "Hana")


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


# Every string and array has an end: a small model would go on until its tokens are spent.
_NAME = {"type": "string", "minLength": 1, "maxLength": 30}
_PERSON = _object({"name": _NAME, "age": {"type": "integer", "minimum": 0, "maximum": 130}})
_TICKET = _object(
    {
        "kind": {"type": "string", "enum": ["bug", "question", "wish"]},
        "urgent": {"type": "boolean"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
    }
)
_LIST = _object(
    {"fruits": {"type": "array", "items": _NAME, "minItems": 2, "maxItems": 4}},
)
_ORDER = _object(
    {
        "customer": _PERSON,
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": _object(
                {
                    "article": _NAME,
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                    "unit": {"enum": ["piece", "box"]},
                }
            ),
        },
    }
)
_QUESTIONS = (
    ("bounds", _PERSON, "Describe {name}, who is 34 years old, as JSON."),
    ("enum", _TICKET, "{name} writes: the page is broken, please help at once! Classify as JSON."),
    ("array", _LIST, "Name three fruits that {name} could buy, as JSON."),
    ("nested", _ORDER, "{name}, 41, orders 2 boxes of tea and 5 cups. Give the order as JSON."),
)


ENDPOINTS: tuple[Endpoint, ...] = ("chat", "responses")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaGate(Asking):
    """JSON to a strict schema: nested objects, arrays, enums and bounds, whole and streamed.

    calls: rounds of the 8 questions, each round in other words
    threshold: share of the questions that must pass
    not_worse_than_baseline: judge by the baseline instead: reject what is worse than it by more than
    this share (0.1 is ten points) beyond doubt, by an exact test at 5 %
    strict_cold: reject also where only the first request after the start goes wrong
    finalist_calls: rounds that are asked again of what would enter the front; 0: none
    thinking: turns thinking on or off by `enable_thinking` of the chat template, or asks `both`;
    left out, the template decides. Thoughts count against max_tokens.
    max_tokens: budget of an answer; one that is cut is asked for once more with four times that
    endpoints: interfaces that are asked, of chat and responses; one that the server does not have
    is inconclusive
    long_context: tokens before one question, asked once after the load, at most a third of what the
    server takes; 0: none
    """

    endpoints: tuple[Endpoint, ...] = ("chat",)
    long_context: int = LONG_CONTEXT_TOKENS

    def __post_init__(self) -> None:
        Asking.__post_init__(self)
        check_choices("endpoints", self.endpoints, ENDPOINTS)
        check_count("long_context", self.long_context, least=0)

    @property
    def name(self) -> str:
        return "json_schema"

    async def check(
        self, client: Client, *, moment: str, reference: Reference | None = None
    ) -> Verdict:
        """Ask round after round, until the verdict is clear; cold, the very first request alone."""
        if moment == "cold":
            results = await ask_one_by_one(client, self._cases(0, moment, client)[:1])
        else:
            rounds = [
                partial(self._round, number=number, moment=moment, client=client)
                for number in range(self.rounds(moment))
            ]
            results = await ask_in_rounds(client, rounds, self.rule)
        return self.rule.conclude(self.name, moment, results, reference=reference)

    def _round(
        self, asked: Sequence[CaseResult], *, number: int, moment: str, client: Client
    ) -> list[Case]:
        del asked
        return self._cases(number, moment, client)

    def _cases(self, number: int, moment: str, client: Client) -> list[Case]:
        name = _NAMES[number % len(_NAMES)]
        cases = [
            self._case(
                f"{prefix}{kind}",
                schema,
                (_user(text.format(name=name)),),
                number,
                stream=stream,
                extra=thinking_option(thinking),
                endpoint=endpoint,
            )
            for endpoint in self.endpoints
            for prefix, thinking in self.thinking_modes()
            for place, (kind, schema, text) in enumerate(_QUESTIONS)
            for stream in ways((False, True), place, moment)
        ]
        if number:
            return cases
        _, schema, text = _QUESTIONS[0]
        question = _user(text.format(name=name))
        prefix, thinking = self.thinking_modes()[0]
        extra = thinking_option(thinking)
        if moment == "load":
            # Drafts that hold at temperature 0 may garble what is sampled.
            cases.append(
                self._case(
                    f"{prefix}sampled", schema, (question,), 0, stream=True, extra=extra, warm=True
                )
            )
        if moment == "after" and self.long_context:
            long = (long_context(self.long_context, client.server), question)
            cases.append(
                self._case(f"{prefix}long_context", schema, long, 0, stream=True, extra=extra)
            )
        return cases

    def _case(
        self,
        kind: str,
        schema: Mapping[str, Any],
        messages: tuple[Mapping[str, Any], ...],
        number: int,
        *,
        stream: bool,
        extra: Mapping[str, Any],
        endpoint: Endpoint = "chat",
        warm: bool = False,
    ) -> Case:
        request = ChatRequest(
            messages=messages,
            max_tokens=self.max_tokens,
            temperature=SAMPLED if warm else 0.0,
            stream=stream,
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": kind.rsplit("/", maxsplit=1)[-1],
                    "schema": schema,
                    "strict": True,
                },
            },
            extra=extra,
            endpoint=endpoint,
        )
        place = "" if endpoint == "chat" else f"{endpoint}/"
        return Case(
            id=f"{place}{kind}/{'stream' if stream else 'whole'}/{number + 1}",
            request=request,
            judge=partial(judge_json, schema=schema),
        )


def _user(text: str) -> Mapping[str, Any]:
    return {"role": "user", "content": text}
