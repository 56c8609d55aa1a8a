"""The simulated server's HTTP surface, as a client of vLLM meets it."""

import json

import pytest

from tests.simulator.process import ended, events, simulated

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ASK = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
TOOLS_ON = ("--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder")
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


@pytest.fixture(scope="module")
def server():
    with simulated(*TOOLS_ON, *MTP, "--max-model-len", "8192", "--max-num-seqs", "4") as running:
        yield running


def complete(server, **body):
    return server.client.post("/v1/completions", json={"model": "m", **body})


def chat(server, **body):
    return server.client.post("/v1/chat/completions", json={"model": "m", **body})


def value(page, name):
    lines = [line for line in page.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_it_says_who_it_is(server):
    (model,) = server.client.get("/v1/models").json()["data"]

    assert (model["id"], model["max_model_len"]) == ("m", 8192)
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/version").json()["version"]
    assert server.client.get("/simulation").json()["startup_s"] > 60


def test_a_stream_carries_several_tokens_a_chunk_and_usage_at_its_end(server):
    response = complete(
        server,
        prompt=list(range(100)),
        max_tokens=40,
        min_tokens=40,
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True},
        return_token_ids=True,
    )

    chunks = events(response)
    tokens = [len(c["choices"][0].get("token_ids") or ()) for c in chunks if c["choices"]]
    assert sum(tokens) == 40
    assert max(tokens) > 1
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 40
    assert chunks[-1]["usage"]["prompt_tokens"] == 100


def test_a_chat_stream_begins_with_a_role(server):
    chunks = events(chat(server, messages=ASK[:1], max_tokens=10, stream=True))

    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize(
    "choice",
    ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}],
    ids=str,
)
def test_tools_are_called_with_arguments_of_their_schema(server, choice):
    answer = chat(server, messages=ASK, tools=[TOOL], tool_choice=choice).json()

    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


def test_an_answer_keeps_to_the_json_schema_that_was_asked_for(server):
    schema = {
        "type": "object",
        "properties": {
            "color": {"enum": ["red", "green"]},
            "count": {"type": "integer", "minimum": 3},
        },
        "required": ["color", "count"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}

    answer = chat(server, messages=ASK, response_format=form).json()

    content = json.loads(answer["choices"][0]["message"]["content"])
    assert content["color"] in ("red", "green")
    assert content["count"] >= 3


def test_what_is_wrong_is_refused_as_vllm_does(server):
    assert chat(server, model="other", messages=ASK).status_code == 404
    assert complete(server, prompt=list(range(9000)), max_tokens=1).status_code == 400
    assert chat(server, messages="no").status_code == 400


def test_the_counters_count(server):
    before = server.client.get("/metrics").text
    complete(server, prompt=list(range(500, 600)), max_tokens=20, ignore_eos=True)
    after = server.client.get("/metrics").text

    for name, grown in [
        ("vllm:generation_tokens_total", 20),
        ("vllm:prompt_tokens_total", 100),
    ]:
        assert value(after, name) - value(before, name) == grown
    assert value(after, "vllm:spec_decode_num_drafts_total") > value(
        before, "vllm:spec_decode_num_drafts_total"
    )


def test_lengths_are_told_by_tokenize(server):
    answer = server.client.post("/tokenize", json={"model": "m", "prompt": "one two three"}).json()

    assert answer["count"] == len(answer["tokens"]) > 0


def test_sixteen_requests_on_four_slots_wait_most_of_their_time_to_the_first_token():
    import asyncio

    from autotune.load import closed_loop
    from autotune.model.host import RunningServer
    from autotune.model.search_space import WorkloadSpec

    spec = WorkloadSpec(
        name="w", input_tokens=200, output_tokens=300, concurrency=(16,), requests=(64,)
    )
    with simulated(*MTP, "--max-num-seqs", "4") as running:
        target = RunningServer(
            base_url=str(running.client.base_url).rstrip("/"),
            served_model="m",
            log="",
            startup_s=1.0,
            time_scale=200,
        )
        run = asyncio.run(closed_loop(spec).run(target, concurrency=16, repeat=0))
        page = running.client.get("/metrics").text

    assert run.problem is None
    # The engine's own times: the client's would hold what this machine is busy with besides.
    queue_s = value(page, "vllm:request_queue_time_seconds_sum")
    assert queue_s > 0.85 * value(page, "vllm:time_to_first_token_seconds_sum")


@pytest.mark.parametrize(
    ("flags", "code", "line"),
    [
        (("--no-such-flag", "1"), 2, "unrecognized arguments: --no-such-flag"),
        (("--moe-backend", "triton"), 1, "moe_backend='triton' is not supported for NvFP4 MoE"),
    ],
)
def test_what_vllm_refuses_is_refused_with_its_words(flags, code, line):
    exit_code, text = ended(*flags)

    assert exit_code == code
    assert line in text


def test_its_log_is_read_like_a_real_one():
    from autotune.diagnosis import diagnose

    with simulated(*MTP, "--moe-backend", "marlin", "--attention-backend", "flashinfer") as running:
        found = diagnose(running.text())

    assert found.outcome == "ready"
    assert found.facts.moe_backend == "MARLIN"
    assert found.facts.attention_backend == "FLASHINFER"
    assert (found.facts.kv_cache_tokens or 0) > 1_000_000
    assert (found.facts.init_engine_s or 0) > 10


def test_broken_tool_calls_are_no_json_and_break_only_where_the_switch_says():
    switches = {"breaks_tools": {"moe_backend": ["cutlass"], "only": "streaming"}}
    body = {"messages": ASK, "tools": [TOOL], "tool_choice": "required"}

    with simulated(*TOOLS_ON, *MTP, "--moe-backend", "cutlass", switches=switches) as running:
        whole = chat(running, **body).json()["choices"][0]["message"]["tool_calls"]
        deltas = [c["choices"][0]["delta"] for c in events(chat(running, **body, stream=True))]

    entries = [entry for delta in deltas for entry in delta.get("tool_calls", ())]
    assert json.loads(whole[0]["function"]["arguments"]) == {"city": "Paris"}
    assert entries[0]["function"]["name"] == "get_weather"
    assert len(entries) > 1
    with pytest.raises(ValueError, match=r"."):
        json.loads("".join(entry["function"]["arguments"] for entry in entries))
