"""Tool calls and structured output: valid for their schema, and about the question."""

import json
import re

import jsonschema
import pytest

from autotune.simulator.answers import garbled
from autotune.simulator.patterns import example_of
from autotune.simulator.prose import prose, short_answer
from autotune.simulator.schema_filler import SchemaFiller
from autotune.simulator.text_facts import find_facts
from autotune.simulator.tokenizer import Tokenizer
from autotune.simulator.tool_calls import choose_calls


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TEXT = {"type": "string"}
TOOLS = [
    tool("get_weather", "Get the current weather for a city", city=TEXT),
    tool("send_email", "Send an email", to=TEXT, subject=TEXT, body=TEXT),
    tool("calculate", "Evaluate a math expression", expression=TEXT),
    tool(
        "book_flight",
        "Book a flight",
        origin=TEXT,
        destination=TEXT,
        date=TEXT,
        passengers={"type": "integer", "minimum": 1},
    ),
]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Hello there, how are you?", []),
        ("What is the capital of France?", []),
        ("Is it raining in Rome?", [("get_weather", {"city": "Rome"})]),
        (
            "What is the weather in New York and in Oslo?",
            [("get_weather", {"city": "New York"}), ("get_weather", {"city": "Oslo"})],
        ),
        ("What is 17 * 23?", [("calculate", {"expression": "17 * 23"})]),
        (
            'Send an email to bob@example.com with the subject "Lunch" saying see you at noon',
            [
                (
                    "send_email",
                    {"to": "bob@example.com", "subject": "Lunch", "body": "see you at noon"},
                )
            ],
        ),
        (
            "Book a flight from Berlin to New York on 2026-05-01 for 2 passengers",
            [
                (
                    "book_flight",
                    {
                        "origin": "Berlin",
                        "destination": "New York",
                        "date": "2026-05-01",
                        "passengers": 2,
                    },
                )
            ],
        ),
    ],
)
def test_tools_are_called_for_what_the_text_asks_for(text, calls):
    chosen = choose_calls(TOOLS, text, required=False, parallel=True)

    assert [(call.name, json.loads(call.arguments)) for call in chosen] == calls


def test_without_parallel_calls_there_is_one():
    text = "What is the weather in Paris and in Oslo?"

    assert len(choose_calls(TOOLS, text, required=False, parallel=False)) == 1


def test_a_required_call_is_made_whatever_the_text_says():
    assert len(choose_calls(TOOLS, "Hello", required=True, parallel=True)) == 1


SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 4}}},
    {"type": "object", "properties": {"a": {"enum": ["x", 2]}, "b": {"const": 7}}},
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": r"^[A-Z]{2}-\d{3}$"},
            "text": {"type": "string", "minLength": 12, "maxLength": 14},
            "when": {"type": "string", "format": "date"},
        },
        "required": ["code", "text", "when"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "minItems": 2,
                "maxItems": 3,
                "items": {"$ref": "#/$defs/row"},
            }
        },
        "required": ["rows"],
        "$defs": {
            "row": {
                "type": "object",
                "properties": {"share": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}},
                "required": ["share"],
            }
        },
    },
    {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "uniqueItems": True},
    {"anyOf": [{"type": "null"}, {"type": "integer", "multipleOf": 5, "minimum": 7}]},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"properties": {"b": {"type": ["string", "null"]}}, "required": ["b"]},
        ]
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
@pytest.mark.parametrize("text", ["Describe Ada, who is 34.", "17 boxes and 999 cups at once", ""])
def test_structured_output_is_valid_for_its_schema(schema, text):
    filled = SchemaFiller(find_facts(text), schema).fill(schema)

    jsonschema.validate(filled, schema, format_checker=jsonschema.FormatChecker())


def test_values_come_from_the_text_where_they_fit():
    schema = {
        "type": "object",
        "properties": {"name": TEXT, "age": {"type": "integer"}, "mood": {"enum": ["sad", "glad"]}},
    }
    filled = SchemaFiller(find_facts("Ada Berg is 34 and glad."), schema).fill(schema)

    assert filled == {"name": "Ada Berg", "age": 34, "mood": "glad"}


@pytest.mark.parametrize("pattern", [r"^\d{4}-\d\d$", r"(a|b)+[^x]?", r"^[A-F0-9]{8}$", r"yes|no"])
def test_patterns_are_matched_by_their_example(pattern):
    assert re.search(pattern, example_of(pattern))


@pytest.mark.parametrize("text", ["{}", '{"city": "Paris"}', '{"a": [1, 2], "b": {"c": null}}'])
def test_garbled_json_is_no_json(text):
    with pytest.raises(ValueError, match=r"."):
        json.loads(garbled(text))


def test_prose_has_exactly_so_many_tokens_and_begins_the_same_whatever_its_length():
    short, long = prose(5, 40), prose(5, 4000)

    assert (len(short), len(long)) == (40, 4000)
    assert long[:40] == short
    assert prose(6, 40) != short
    assert Tokenizer.split("".join(long)) == long


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("What is 17 + 25?", "The result is 42."),
        ("Reply with the word pong.", "pong"),
        ('Say "hello".', "hello"),
        ("Answer with exactly one word: pong", "pong"),
        ("Tell me a story", None),
    ],
)
def test_what_has_one_right_answer_gets_it(text, answer):
    assert short_answer(text) == answer


def test_text_survives_the_tokenizer_and_ids_are_the_same_in_every_process():
    text = "Größe 東京: it costs 42 EUR,  or so_called \n\n<b>less</b>."
    tokenizer, other = Tokenizer(), Tokenizer()
    other.encode("something else first")

    ids = tokenizer.encode(text)

    assert tokenizer.decode(ids) == text
    assert other.encode(text) == ids
    assert tokenizer.decode([5, 6, 7]) != ""
