import asyncio
import json
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.model.chat import ChatReply, ChatRequest
from autotune.system import openai_client
from autotune.system.openai_client import (
    connect,
    get_json,
    probe_chat,
    probe_health,
    probe_models,
)
from tests.fakes.replay_server import (
    Recorded,
    ReplayServer,
    Said,
    chunk,
    error,
    events,
)

MESSAGES = ({"role": "user", "content": "Hi"},)
PLAIN = ChatRequest(messages=MESSAGES)
STREAM = ChatRequest(messages=MESSAGES, stream=True)


def ask(recorded: Recorded, request: ChatRequest = PLAIN, *, timeout_s: float = 20.0) -> ChatReply:
    with ReplayServer(recorded) as replay:
        return ask_at(replay, request, timeout_s=timeout_s)


def ask_at(
    replay: ReplayServer, request: ChatRequest, *, timeout_s: float = 20.0, **changes
) -> ChatReply:
    async def once() -> ChatReply:
        async with connect(replay.running(**changes), timeout_s=timeout_s) as client:
            return await client.chat(request)

    return asyncio.run(once())


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("request_", [PLAIN, STREAM], ids=["whole", "stream"])
def test_an_answer_is_the_same_whole_and_streamed(request_):
    said = Said(
        content="Two tools.",
        reasoning="Think first.",
        calls=[("get_weather", '{"city": "Tōkyō"}'), ("get_time", "{}")],
        finish_reason="tool_calls",
        completion_tokens=31,
    )

    reply = ask(said.recorded(stream=request_.stream), request_)

    assert reply.status == 200
    assert reply.problem is None
    assert reply.done
    assert (reply.content, reply.reasoning) == ("Two tools.", "Think first.")
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("call_0", "get_weather", '{"city": "Tōkyō"}'),
        ("call_1", "get_time", "{}"),
    ]
    assert reply.finish_reason == "tool_calls"
    assert (reply.prompt_tokens, reply.completion_tokens) == (20, 31)
    assert reply.latency_s > 0


def test_fragments_of_two_calls_are_joined_by_index():
    def part(index, **function):
        return chunk({"tool_calls": [{"index": index, "function": function}]})

    recorded = events(
        part(1, name="b", arguments='{"y"'),
        part(0, name="a", arguments="{"),
        part(1, arguments=": 2}"),
        part(0, arguments='"x": 1}'),
        chunk({}, finish_reason="tool_calls"),
    )

    reply = ask(recorded, STREAM)

    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", '{"x": 1}'),
        ("b", '{"y": 2}'),
    ]


def test_missing_arguments_stay_empty():
    recorded = events(chunk({"tool_calls": [{"index": 0, "function": {"name": "now"}}]}))

    reply = ask(recorded, STREAM)

    assert reply.tool_calls[0].arguments == ""


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_both_of_its_names(name):
    recorded = events(chunk({"role": "assistant", name: "We"}), chunk({name: "ll"}))

    assert ask(recorded, STREAM).reasoning == "Well"


def test_reasoning_sent_under_both_names_counts_once():
    recorded = events(chunk({"reasoning": "Well", "reasoning_content": "Well"}))

    assert ask(recorded, STREAM).reasoning == "Well"


def test_running_usage_is_not_added_up():
    usage = [{"choices": [], "usage": {"completion_tokens": count}} for count in (4, 7, 10)]

    assert ask(events(*usage), STREAM).completion_tokens == 10


def test_an_error_event_is_a_problem_although_the_status_is_200():
    recorded = events(chunk({"content": "The"}), {"error": {"message": "engine died", "code": 500}})

    reply = ask(recorded, STREAM)

    assert reply.status == 200
    assert reply.content == "The"
    assert reply.problem == "error in the answer: engine died"


def test_a_stream_without_done_says_so():
    reply = ask(events(chunk({"content": "Hi"}), done=False), STREAM)

    assert reply.problem is None
    assert not reply.done


def test_a_stream_is_over_at_done_even_where_the_connection_stays():
    def answer(_asked):
        body = b'data: {"choices": []}\n\ndata: [DONE]\n\n'
        return Recorded(body=body, kind="text/event-stream", cut=True)

    with ReplayServer(answer) as replay:
        reply = ask_at(replay, STREAM)

    assert reply.done
    assert reply.problem is None


def test_separators_of_text_do_not_split_an_event():
    text = "one\u2028two\u0085three"
    body = json.dumps(chunk({"content": text}), ensure_ascii=False)

    reply = ask(
        Recorded(
            body=f"data: {body}\r\n\r\ndata: [DONE]\r\n\r\n".encode(), kind="text/event-stream"
        ),
        STREAM,
    )

    assert reply.content == text


def test_comments_and_other_fields_of_the_stream_are_skipped():
    body = b': ping\n\nevent: message\nid: 1\ndata:{"choices":[]}\n\ndata: [DONE]\n\n'

    reply = ask(Recorded(body=body, kind="text/event-stream"), STREAM)

    assert reply.problem is None
    assert reply.done


@pytest.mark.parametrize("request_", [PLAIN, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "The model `x` does not exist.", "code": 404}}, "does not exist"),
        ({"object": "error", "message": "The model `x` does not exist."}, "does not exist"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"detail": "Not Found"}, "Not Found"),
        (["?"], '["?"]'),
    ],
)
def test_an_http_error_says_what_the_server_said(request_, body, message):
    reply = ask(Recorded(body=json.dumps(body).encode(), status=404), request_)

    assert reply.status == 404
    assert reply.problem is not None
    assert reply.problem.startswith("HTTP 404: ")
    assert message in reply.problem


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>", "no JSON object"),
        (b"", "nothing"),
        (b"[" * 100_000, "no JSON object"),
        (b"{}", "no choices"),
        (b'{"choices": []}', "empty list"),
        (b'{"choices": [7]}', "without message"),
        (b'{"choices": [{"message": {"content": 7}}]}', "content is int"),
        (b'{"choices": [{"message": {"tool_calls": [7]}}]}', "tool call is int"),
        (
            b'{"choices": [{"message": {"tool_calls": [{"function": {"arguments": {}}}]}}]}',
            "arguments of a tool call is dict",
        ),
    ],
)
def test_an_answer_in_another_shape_is_a_problem(body, problem):
    reply = ask(Recorded(body=body))

    assert reply.status == 200
    assert reply.problem is not None
    assert problem in reply.problem


def test_nobody_answers_with_status_0():
    async def once() -> ChatReply:
        with ReplayServer(Recorded()) as replay:
            server = replay.running()
        async with connect(server) as client:
            return await client.chat(PLAIN)

    reply = asyncio.run(once())

    assert reply.status == 0
    assert reply.problem is not None
    assert "ConnectError" in reply.problem


def test_a_connection_that_ends_early_keeps_what_came():
    recorded = events(chunk({"content": "The"}), done=False)

    reply = ask(
        Recorded(body=recorded.body, kind="text/event-stream", cut=True),
        STREAM,
    )

    assert reply.status == 200
    assert reply.content == "The"
    assert reply.problem is not None
    assert not reply.done


def test_what_is_no_http_has_no_status():
    reply = ask(Recorded(raw=b"\x00\x01 no http\r\n\r\n"))

    assert reply.status == 0
    assert reply.problem is not None


def test_a_server_that_hangs_is_given_up():
    reply = ask(Recorded(hang=True), timeout_s=0.1)

    assert reply.status == 0
    assert reply.problem is not None
    assert reply.problem.startswith("no ")


def test_latency_is_in_the_time_of_the_server():
    with ReplayServer(Said(content="Hi").whole()) as replay:
        ours = ask_at(replay, PLAIN)
        theirs = ask_at(replay, PLAIN, time_scale=1000.0)

    assert theirs.latency_s > ours.latency_s


def test_the_key_is_sent_and_never_told():
    def answer(asked):
        return error(401, f"wrong key: {asked.headers['authorization']}")

    with ReplayServer(answer) as replay:
        reply = ask_at(replay, PLAIN, api_key="s3cret")

        assert replay.asked[0].headers["authorization"] == "Bearer s3cret"
    assert reply.status == 401
    assert reply.problem == "HTTP 401: wrong key: Bearer ***"


def test_a_key_that_no_header_can_hold_is_a_problem_and_not_told():
    with ReplayServer(Said(content="Hi").whole()) as replay:
        reply = ask_at(replay, PLAIN, api_key="s3cret\nkey")

    assert reply.status == 0
    assert "s3cret" not in str(reply.problem)


def test_the_request_is_sent_as_it_was_made():
    tool = {"type": "function", "function": {"name": "now", "parameters": {}}}
    request = ChatRequest(
        messages=MESSAGES,
        max_tokens=7,
        stream=True,
        tools=(tool,),
        tool_choice="auto",
        response_format={"type": "json_object"},
        extra={"chat_template_kwargs": {"enable_thinking": False}},
    )

    with ReplayServer(events()) as replay:
        ask_at(replay, request)

        asked = replay.asked[0]
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 7,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [tool],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv("NO_PROXY", "")

    assert ask(Said(content="Hi").whole()).content == "Hi"


@settings(max_examples=60, deadline=None)
@given(
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "message",
                        "delta",
                        "content",
                        "reasoning",
                        "tool_calls",
                        "function",
                        "name",
                        "arguments",
                        "index",
                        "usage",
                        "completion_tokens",
                        "error",
                        "finish_reason",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    stream=st.booleans(),
    status=st.sampled_from([200, 200, 200, 204, 302, 400, 503]),
)
def test_no_bytes_make_the_client_raise(shared_replay, body, stream, status):
    kind = "text/event-stream" if stream else "application/json"
    shared_replay.answer = Recorded(
        body=body if stream else body.removeprefix(b"data: "), status=status, kind=kind
    )

    reply = ask_at(shared_replay, STREAM if stream else PLAIN)

    assert isinstance(reply, ChatReply)


@pytest.fixture(scope="module")
def shared_replay():
    with ReplayServer(Recorded()) as replay:
        yield replay


def test_control_questions_are_answered():
    def answer(asked):
        bodies = {
            "/v1/models": {"data": [{"id": "m", "max_model_len": 512}, "?"]},
            "/version": {"version": "0.32.0"},
            "/health": {},
        }
        return Recorded(body=json.dumps(bodies[asked.path]).encode())

    async def all_of(server):
        return (
            await openai_client.health(server),
            await openai_client.models(server),
            await openai_client.version(server),
        )

    with ReplayServer(answer) as replay:
        found = asyncio.run(all_of(replay.running()))

        assert found == (True, ["m"], "0.32.0")
        assert probe_health(replay.base_url) == 200
        assert probe_models(replay.base_url, None) == ({"id": "m", "max_model_len": 512},)
        assert get_json(f"{replay.base_url}/version") == {"version": "0.32.0"}


@pytest.mark.parametrize(
    "recorded",
    [
        Recorded(status=401, body=b'{"error": "Unauthorized"}'),
        Recorded(body=b"no JSON"),
        Recorded(raw=b"no http\r\n\r\n"),
        Recorded(body=b"{}", cut=True),
    ],
    ids=["401", "no json", "no http", "cut"],
)
def test_control_questions_survive_a_broken_server(recorded):
    async def all_of(server):
        return await openai_client.models(server), await openai_client.version(server)

    with ReplayServer(recorded) as replay:
        assert asyncio.run(all_of(replay.running())) == (None, None)
        assert probe_models(replay.base_url, "key") is None
        assert get_json(replay.base_url) is None
        assert probe_chat(replay.base_url, "m", "key").problem is not None


def test_probes_survive_that_nobody_is_there():
    nobody = f"http://127.0.0.1:{unused_port()}"

    assert probe_health(nobody) is None
    assert probe_models(nobody, None) is None
    assert probe_chat(nobody, "m", None).status == 0
    assert get_json(nobody) is None


def test_the_first_question_asks_for_one_token():
    with ReplayServer(Said(content="H", finish_reason="length").whole()) as replay:
        reply = probe_chat(replay.base_url, "m", "key")

        asked = replay.asked[0]
    assert (reply.status, reply.content, reply.problem) == (200, "H", None)
    assert (asked.body["model"], asked.body["max_tokens"]) == ("m", 1)
    assert asked.headers["authorization"] == "Bearer key"
