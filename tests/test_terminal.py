"""What a person sees, and what a program reads meanwhile."""

import io
import json

import pytest
from rich.console import Console

from autotune.terminal import EventLog, Fanout, LiveView, State, print_results
from autotune.tuning.study import results_of
from tests.exporters.test_exporters import results
from tests.fakes.bench import HOST, FakeClock, Recorder, World, make_bench, make_space, varied_speed
from tests.tuning.test_study import make_study


def printed(found, width=120):
    stream = io.StringIO()
    print_results(found, Console(file=stream, width=width))
    return stream.getvalue()


def test_the_front_is_a_table_with_changes_against_the_baseline():
    text = printed(results())

    assert "Pareto front of fake" in text
    assert "+100.0 %" in text
    assert "trial 1: max_num_seqs=32" in text
    assert "trial 0, the baseline: max_num_seqs=4" in text
    assert "not usable: 1 unsupported, 1 gate tool_calls" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [20, 60, 300])
def test_every_width_shows_verdict_and_reasons(width):
    words = "".join(printed(results(), width=width).split())

    assert "1unsupported" in words
    assert "Best" in words


def test_hostile_text_is_not_taken_for_markup():
    assert "[x](y)" not in printed(results())


def test_a_study_without_anything_usable_says_so():
    text = printed(results_of("fake", make_space(), {}, HOST))

    assert text.strip() == "No configuration could be measured and used."


def test_events_are_one_json_object_a_line():
    stream = io.StringIO()
    log = EventLog(stream, FakeClock())

    log.emit("phase", phase="measure", concurrency=8)

    line = json.loads(stream.getvalue())
    assert line["event"] == "phase"
    assert line["schema_version"] == 1
    assert line["concurrency"] == 8
    assert line["at"] > 0


def test_the_live_view_follows_a_whole_study_with_failures(tmp_path):
    world = World(
        speed=varied_speed,
        fails=lambda c: "out_of_memory" if c["moe_backend"] == "triton" else None,
    )
    stream = io.StringIO()
    view = LiveView(Console(file=stream, width=100, force_terminal=True), FakeClock())
    recorder = Recorder()
    bench = make_bench(world, progress=Fanout([view, recorder]))

    with view.shown():
        found = make_study(tmp_path, world, bench=bench, trials=8).run()

    state = State()
    for name, fields in recorder.events:
        state.take(name, fields, 0.0)
    assert state.done == 8
    assert state.best["output_tok_s"][0] == pytest.approx(
        max(member.estimates["output_tok_s"].mean for member in found.members), rel=1e-3
    )
    failed = sum(type(trial.outcome).__name__ == "Failed" for trial in found.trials)
    assert state.troubles["out_of_memory"] == failed
