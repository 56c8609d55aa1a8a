"""The tools that the tool-call gate offers, and what it asks.

Everything is asked in words that leave one right call, so that a capable model at temperature 0
has nothing to choose: what goes wrong is the server's doing. Rounds ask the same of other cities.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

Message: TypeAlias = Mapping[str, Any]
Tool: TypeAlias = Mapping[str, Any]

CITIES = ("Paris", "Oslo", "Lima", "Tokyo", "Cairo", "Quito", "Dublin", "Madrid")
UNICODE = "Größe 東京 ☕ naïve"
"""Two-, three- and four-byte characters: several tokens for one of them."""
TEMPERATURES = (17, 23, 31, 12, 26, 19, 28, 14)


def _tool(name: str, description: str, properties: Mapping[str, Any]) -> Tool:
    """Offer a tool whose arguments are all required: a draft that loses one shows."""
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        parameters["required"] = list(properties)
        parameters["additionalProperties"] = False
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description}


WEATHER = _tool(
    "get_weather", "Get the current weather of a city.", {"city": _text("Name of the city")}
)
CLOCK = _tool("get_current_time", "Get the current time. Takes no arguments.", {})
NOTE = _tool("save_note", "Save a note, letter for letter.", {"text": _text("Text of the note")})
ORDER = _tool(
    "create_order",
    "Create an order of articles for a customer.",
    {
        "customer": {
            "type": "object",
            "properties": {"name": _text("Name"), "city": _text("City")},
            "required": ["name", "city"],
        },
        "items": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "article": _text("Number of the article"),
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 100},
                },
                "required": ["article", "quantity"],
            },
        },
        "shipping": {"type": "string", "enum": ["standard", "express", "pickup"]},
        "gift": {"type": "boolean"},
    },
)
_SHELF = (
    ("send_email", "Send an email.", "recipient"),
    ("read_file", "Read a file.", "path"),
    ("delete_file", "Delete a file.", "path"),
    ("list_folder", "List the files of a folder.", "path"),
    ("search_web", "Search the web.", "query"),
    ("open_page", "Open a page of the web.", "address"),
    ("translate_text", "Translate a text into English.", "text"),
    ("summarize_text", "Summarize a text.", "text"),
    ("play_song", "Play a song.", "title"),
    ("book_table", "Book a table in a restaurant.", "restaurant"),
    ("book_flight", "Book a flight.", "destination"),
    ("find_hotel", "Find a hotel in a city.", "city"),
    ("get_stock_price", "Get the price of a stock.", "symbol"),
    ("convert_currency", "Convert an amount of money.", "amount"),
    ("set_alarm", "Set an alarm.", "time"),
    ("create_event", "Add an event to the calendar.", "title"),
    ("look_up_word", "Look a word up in the dictionary.", "word"),
    ("find_contact", "Find the phone number of a person.", "person"),
    ("turn_on_light", "Turn on the light of a room.", "room"),
    ("lock_door", "Lock a door.", "door"),
    ("run_query", "Run a query on the database.", "query"),
    ("track_parcel", "Track a parcel.", "number"),
)
SHELF = tuple(
    _tool(name, description, {argument: _text(f"The {argument}")})
    for name, description, argument in _SHELF
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestion:
    """A question with tools, and the answer that is due.

    tool: the tool to call; None where none may be called
    holding: values of each call that is due; says: what an answer in words must say
    streams: how it is asked: False whole, True streamed (bugs of tool parsers differ)
    """

    kind: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    tool: str | None = None
    tool_choice: str | Mapping[str, Any] = "auto"
    holding: tuple[Mapping[str, Any], ...] = ()
    says: str | None = None
    streams: tuple[bool, ...] = (False, True)


class _Words(NamedTuple):
    """The words of one round."""

    number: int
    city: str
    other: str
    degrees: int


def questions(number: int) -> tuple[ToolQuestion, ...]:
    """Ask everything once, in the words of round `number`."""
    place = number % len(CITIES)
    other = CITIES[(place + 3) % len(CITIES)]
    words = _Words(number, CITIES[place], other, TEMPERATURES[place])
    return (*_chosen_for_it(words), *_left_to_it(words), *_hard_arguments(words))


def _user(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)


def _chosen_for_it(words: _Words) -> tuple[ToolQuestion, ...]:
    """Force a call, by `required` and by name: vLLM constrains the output by a grammar."""
    ask = _user(f"What is the weather in {words.city} right now?")
    named = {"type": "function", "function": {"name": "get_weather"}}
    expected = ({"city": words.city},)
    return (
        ToolQuestion(
            kind="required",
            messages=ask,
            tools=(WEATHER,),
            tool="get_weather",
            tool_choice="required",
            holding=expected,
        ),
        ToolQuestion(
            kind="named",
            messages=ask,
            tools=(WEATHER, NOTE),
            tool="get_weather",
            tool_choice=named,
            holding=expected,
        ),
    )


def _left_to_it(words: _Words) -> tuple[ToolQuestion, ...]:
    """Leave it to the model (`auto`): free text that the tool parser has to read."""
    return (
        ToolQuestion(
            kind="auto",
            messages=_user(f"Use the tool to get the weather in {words.city} right now."),
            tools=(WEATHER, CLOCK),
            tool="get_weather",
            holding=({"city": words.city},),
        ),
        ToolQuestion(
            kind="no_tool_needed",
            messages=_user(
                f"Do not use any tool. Say hello to {words.city} in one short sentence."
            ),
            tools=(WEATHER, NOTE),
            streams=(bool(words.number % 2),),
        ),
        ToolQuestion(
            kind="parallel",
            messages=_user(
                f"Call the tool twice at once: get the weather in {words.city} "
                f"and the weather in {words.other}."
            ),
            tools=(WEATHER,),
            tool="get_weather",
            holding=({"city": words.city}, {"city": words.other}),
            streams=(True,),
        ),
        ToolQuestion(
            kind="tool_result",
            messages=_after_a_call(words),
            tools=(WEATHER,),
            says=str(words.degrees),
        ),
        ToolQuestion(
            kind="no_arguments",
            messages=_user("Use the tool to find out what time it is now."),
            tools=(CLOCK, WEATHER),
            tool="get_current_time",
            streams=(not words.number % 2,),
        ),
        ToolQuestion(
            kind="many_tools",
            messages=_user(f"Use the right tool to get the weather in {words.city} right now."),
            tools=(*SHELF[:11], WEATHER, NOTE, *SHELF[11:]),
            tool="get_weather",
            holding=({"city": words.city},),
            streams=(True,),
        ),
    )


def _hard_arguments(words: _Words) -> tuple[ToolQuestion, ...]:
    order = {
        "customer": {"name": "Ada Berg", "city": words.city},
        "items": ({"article": "A-17", "quantity": 3}, {"article": "B-40", "quantity": 12}),
        "shipping": "express",
        "gift": True,
    }
    return (
        ToolQuestion(
            kind="nested",
            # Dictated, not described: the gate asks whether a server keeps a structure intact,
            # not how clever its model is.
            messages=_user(f"Create an order with the tool from exactly this: {json.dumps(order)}"),
            tools=(ORDER, WEATHER),
            tool="create_order",
            holding=(order,),
        ),
        ToolQuestion(
            kind="unicode",
            messages=_user(
                "Save a note with the tool, with exactly these arguments: "
                + json.dumps({"text": f'{words.city} "A1": {UNICODE}'}, ensure_ascii=False)
            ),
            tools=(NOTE, WEATHER),
            tool="save_note",
            holding=({"text": UNICODE},),
        ),
    )


def _after_a_call(words: _Words) -> tuple[Message, ...]:
    """Tell a conversation in which the tool was called and has answered."""
    call = {
        "id": "call_weather_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": f'{{"city": "{words.city}"}}'},
    }
    return (
        *_user(f"What is the temperature in {words.city}? Answer in one short sentence."),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "call_weather_1",
            "content": f'{{"temperature_celsius": {words.degrees}, "sky": "clear"}}',
        },
    )
