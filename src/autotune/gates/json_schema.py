"""The gate that asks for JSON to a schema.

It sends `response_format`: vLLM dropped `guided_json`, which a server takes and ignores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.gates.asking import Case, ask_all, conclude, is_hopeless
from autotune.gates.options import check_asking, thinking_option
from autotune.gates.text_answers import judge_json
from autotune.model.chat import ChatRequest
from autotune.model.outcome import CaseResult, Verdict
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaGate:
    """JSON to a strict schema: nested objects, arrays, enums and bounds, whole and streamed.

    calls: rounds of the 8 questions, each round in other words
    threshold: share of the questions that must pass
    thinking: turns thinking on or off by `enable_thinking` of the chat template; left out, the
    template decides. Thoughts count against max_tokens.
    max_tokens: budget of an answer; one that is cut is asked for once more with four times that
    """

    calls: int = 1
    threshold: float = 1.0
    thinking: bool | None = None
    max_tokens: int = 256

    def __post_init__(self) -> None:
        check_asking(self.calls, self.threshold, self.thinking, self.max_tokens)

    @property
    def name(self) -> str:
        return "json_schema"

    async def check(self, client: Client, *, moment: str) -> Verdict:
        """Ask round after round, until the verdict is clear."""
        results: list[CaseResult] = []
        for number in range(self.calls):
            cases = self._cases(number)
            results += await ask_all(client, cases)
            still_to_come = len(cases) * (self.calls - 1 - number)
            if is_hopeless(results, still_to_come=still_to_come, threshold=self.threshold):
                break
        return conclude(self.name, moment, results, threshold=self.threshold)

    def _cases(self, number: int) -> list[Case]:
        name = _NAMES[number % len(_NAMES)]
        return [
            self._case(kind, schema, text.format(name=name), number, stream=stream)
            for kind, schema, text in _QUESTIONS
            for stream in (False, True)
        ]

    def _case(
        self, kind: str, schema: Mapping[str, Any], text: str, number: int, *, stream: bool
    ) -> Case:
        request = ChatRequest(
            messages=({"role": "user", "content": text},),
            max_tokens=self.max_tokens,
            stream=stream,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": kind, "schema": schema, "strict": True},
            },
            extra=thinking_option(self.thinking),
        )
        return Case(
            id=f"{kind}/{'stream' if stream else 'whole'}/{number + 1}",
            request=request,
            judge=partial(judge_json, schema=schema),
        )
