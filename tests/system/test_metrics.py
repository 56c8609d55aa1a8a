import asyncio
import http.server
import threading

import pytest

from autotune.system.metrics import Counters, delta, parse_counters, read_page, scrape

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 7.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 6.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 50.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 21.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 5.0
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="m"} 4.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 8.0
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 4.0
"""


def test_engines_are_summed_and_the_fullest_cache_is_kept():
    counters = parse_counters(PAGE)
    assert counters.requests_running == 10
    assert counters.requests_waiting == 2
    assert counters.kv_cache_usage == 0.5
    assert counters.requests_finished == 11


def test_names_are_matched_exactly():
    assert parse_counters(PAGE).preemptions == 4


def test_a_counter_that_is_not_there_is_unknown():
    assert parse_counters(PAGE).prefill_s is None
    assert parse_counters("") == Counters()


def test_speculation_is_read_by_position():
    counters = parse_counters(PAGE)
    assert counters.acceptance_rate == 0.7
    assert counters.acceptance_length == 3.1
    assert counters.acceptance_per_position == (0.9, 0.7, 0.5)


def test_shares_and_means_are_derived():
    counters = parse_counters(PAGE)
    assert counters.prefix_hit_rate == 0.25
    assert counters.mean_queue_ms == 2000
    assert counters.mean_prefill_ms is None


def test_nan_is_no_value():
    assert parse_counters("vllm:kv_cache_usage_perc NaN\n").kv_cache_usage is None


def test_a_delta_takes_the_warm_up_out():
    before = Counters(prefix_queries=120_000, kv_cache_usage=0.9, drafts=3)
    after = Counters(prefix_queries=180_000, kv_cache_usage=0.1, drafts=5, preemptions=2)
    change = delta(before, after)
    assert (change.prefix_queries, change.drafts, change.preemptions) == (60_000, 2, 2)
    assert change.kv_cache_usage == 0.1


def test_a_counter_that_went_backwards_is_unknown():
    change = delta(
        Counters(preemptions=5, accepted_per_position=(4, 2)),
        Counters(preemptions=1, accepted_per_position=(5, 1)),
    )
    assert change.preemptions is None
    assert change.accepted_per_position is None


def test_positions_are_subtracted_one_by_one():
    first = Counters(accepted_per_position=(4.0, 2.0))
    assert delta(Counters(), first).accepted_per_position == (4.0, 2.0)
    later = Counters(accepted_per_position=(9.0, 3.0))
    assert delta(first, later).accepted_per_position == (5.0, 1.0)


@pytest.mark.parametrize(
    ("status", "page"), [(404, "{}"), (200, 'vllm:num_preemptions_total{engine="0"} many')]
)
def test_what_is_no_page_of_counters_is_unknown(status, page):
    assert read_page(status, page) is None


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_):
        pass


def test_a_scrape_asks_the_server():
    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            counters = asyncio.run(scrape(f"http://127.0.0.1:{server.server_port}"))
        finally:
            server.shutdown()
            thread.join()
    assert counters is not None
    assert counters.preemptions == 4


def test_a_scrape_of_nobody_is_unknown():
    assert asyncio.run(scrape("http://127.0.0.1:9")) is None
