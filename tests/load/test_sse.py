import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load.sse import error_text, events, parse_reply

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


def line(payload, end="\n\n"):
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return f"data: {text}{end}".encode()


def choice(**fields):
    return {"choices": [{"index": 0, "finish_reason": None, **fields}]}


ROLE = choice(delta={"role": "assistant", "content": ""})
FIRST = choice(text=" a", token_ids=[11])
SECOND = choice(text=" bc", token_ids=[12, 13], finish_reason="length")
LAST = {"choices": [], "usage": USAGE}
STREAM = [line(ROLE), line(FIRST), line(SECOND), line(LAST), line("[DONE]")]


def parse(*reads):
    return parse_reply([float(number) for number in range(len(reads))], list(reads))


def test_tokens_come_from_token_ids_with_the_stamp_of_their_chunk():
    reply = parse(*STREAM)
    assert (reply.stamps, reply.tokens) == ((1.0, 2.0), (1, 2))
    assert (reply.source, reply.prompt_tokens, reply.error) == ("token_ids", 9, None)


def test_a_role_chunk_is_not_the_first_token():
    assert parse(*STREAM).stamps[0] == 1.0


def test_an_empty_text_with_a_token_id_is_a_token():
    reply = parse(line(choice(text="", token_ids=[5], finish_reason="length")), line("[DONE]"))
    assert reply.tokens == (1,)


def test_events_of_one_read_share_its_stamp():
    reply = parse(b"".join(STREAM))
    assert reply.stamps == (0.0, 0.0)


def test_the_usage_chunk_changes_neither_first_nor_last_token():
    assert parse(*STREAM).stamps[-1] == 2.0


@pytest.mark.parametrize("name", ["content", "reasoning", "reasoning_content"])
def test_reasoning_counts_like_content(name):
    reply = parse(
        line(ROLE),
        line(choice(delta={name: "x"})),
        line(choice(delta={name: "y"}, finish_reason="stop")),
        line({"choices": [], "usage": USAGE | {"completion_tokens": 2}}),
    )
    assert (reply.stamps, reply.tokens, reply.source) == ((1.0, 2.0), (1, 1), "usage")


def test_running_usage_tells_how_many_tokens_a_chunk_holds():
    def running(count, **fields):
        return choice(text="x", **fields) | {"usage": USAGE | {"completion_tokens": count}}

    reply = parse(line(running(2)), line(running(3, finish_reason="length")), line("[DONE]"))
    assert (reply.tokens, reply.source) == ((2, 1), "continuous_usage")


def test_usage_alone_is_spread_over_the_chunks_and_never_counted_from_them():
    texts = [line(choice(text="x")), line(choice(text="y", finish_reason="stop"))]
    reply = parse(*texts, line({"choices": [], "usage": USAGE | {"completion_tokens": 7}}))
    assert (reply.tokens, reply.output_tokens, reply.source) == ((3, 4), 7, "usage")


def test_token_ids_that_contradict_the_usage_are_not_believed():
    reply = parse(*STREAM[:3], line(LAST | {"usage": USAGE | {"completion_tokens": 8}}))
    assert (reply.output_tokens, reply.source) == (8, "usage")


def test_neither_usage_nor_ids_is_an_error():
    reply = parse(line(choice(text="x", finish_reason="stop")), line("[DONE]"))
    assert reply.error is not None
    assert "cannot be counted" in reply.error


def test_an_error_event_in_a_stream_of_status_200_is_an_error():
    broken = {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
    reply = parse(line(FIRST), line(broken), line("[DONE]"))
    assert reply.error == "error event: EngineCore encountered an issue."


def test_a_stream_that_just_ends_is_an_error():
    reply = parse(line(FIRST))
    assert reply.error is not None
    assert "ended in the middle" in reply.error


def test_a_finish_reason_makes_up_for_a_missing_done():
    assert parse(*STREAM[:4]).error is None


def test_half_an_event_at_the_end_is_an_error():
    assert parse(line(FIRST), b'data: {"choi').error is not None


def test_a_last_event_without_its_blank_line_counts():
    assert parse(line(FIRST), line(SECOND), line(LAST, end="")).prompt_tokens == 9


def test_comments_and_carriage_returns_are_understood():
    assert parse(b": ping\r\n\r\n", *(read.replace(b"\n", b"\r\n") for read in STREAM)).tokens == (
        1,
        2,
    )


def test_queue_and_prefill_come_from_the_engines_own_timing():
    timing = {"metrics": {"queue_time_ms": 3.5, "time_to_first_token_ms": 12, "mean_itl_ms": None}}
    reply = parse(line(FIRST), line(SECOND), line(LAST | timing))
    assert (reply.queue_ms, reply.prefill_ms) == (3.5, 12.0)


@pytest.mark.parametrize("payload", ["[1]", "7", '{"choices": 3}', '{"choices": [], "usage": {}}x'])
def test_what_is_no_stream_is_an_error_and_no_crash(payload):
    assert parse(line(payload), line("[DONE]")).error is not None


@given(st.data(), st.booleans())
def test_where_the_bytes_are_split_does_not_matter(data, crlf):
    stream = b": hello\n\n" + b"".join(STREAM)
    stream = stream.replace(b"\n", b"\r\n") if crlf else stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    edges = [0, *cuts, len(stream)]
    reads = [stream[a:b] for a, b in pairwise(edges)]
    reply = parse(*reads)
    assert (reply.tokens, reply.prompt_tokens, reply.error) == ((1, 2), 9, None)
    assert list(reply.stamps) == sorted(reply.stamps)


def test_an_event_carries_the_stamp_of_the_read_that_completed_it():
    whole = line(FIRST)
    found = list(events([1.0, 2.0, 3.0], [whole[:10], whole[10:-1], whole[-1:]]))
    assert [at for at, _ in found] == [2.0]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "too long", "code": 400}}', "too long"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"message": "old style", "object": "error"}', "old style"),
        (b"Internal Server Error", "Internal Server Error"),
        (b"", "no reason given"),
    ],
)
def test_the_reason_is_found_in_every_kind_of_error_body(body, text):
    assert error_text(body) == text
