import random

from autotune.model.knob import Knob
from autotune.tuning.search import Failure, run_search
from tests.fakes.bench import make_space

KNOBS = (
    Knob(name="moe_backend", values=("a", "b", "c"), kind="categorical"),
    Knob(name="max_num_seqs", values=(1, 2, 3, 4, 6, 8, 16), kind="log"),
    Knob(name="max_num_batched_tokens", values=tuple(range(512, 8193, 256)), kind="log"),
)
BASELINE = {"moe_backend": "a", "max_num_seqs": 4, "max_num_batched_tokens": 2048}


class Host:
    """Imaginary servers; the load has eight requests in flight."""

    def __init__(self, fails=lambda values, number: None):
        self.started = []
        self.measured = []
        self.fails = fails

    def __call__(self, values):
        number = len(self.started)
        self.started.append(dict(values))
        family = self.fails(values, number)
        if family is not None:
            return Failure(family)
        factor = {"a": 1.0, "b": 1.4, "c": 0.7}[values["moe_backend"]]

        def measure(in_flight):
            self.measured.append((number, in_flight))
            return 30 * factor * in_flight**0.6, 200 / factor * in_flight**0.3

        return measure


def search(host, *, starts=14, **space):
    return run_search(make_space(**{"knobs": KNOBS, "baseline": BASELINE, **space}), host, starts)


def test_every_start_has_room_for_the_whole_load_and_the_sweep_measures_a_ladder():
    host = Host()

    points = search(host)

    assert all(values["max_num_seqs"] == 8 for values in host.started)
    assert [p.in_flight for p in points if p.start == 0] == [8, 3, 1]
    assert [p.order for p in points if p.start == 0] == [0, 1, 2]
    assert [p.values["max_num_seqs"] for p in points if p.start == 0] == [8, 3, 1]
    assert [values["moe_backend"] for values in host.started[:3]] == ["a", "b", "c"]


def test_after_the_sweep_a_start_measures_one_to_four_loads():
    host = Host()

    points = search(host)

    later = {p.start: sum(q.start == p.start for q in points) for p in points if p.start >= 3}
    assert later
    assert all(1 <= count <= 4 for count in later.values())
    assert [(p.start, p.in_flight) for p in points] == host.measured


def test_no_server_is_started_twice_where_starts_do_not_fail():
    host = Host()

    search(host, starts=30)

    assert len({tuple(values.items()) for values in host.started}) == len(host.started)


def test_a_baseline_that_does_not_start_with_room_for_the_load_is_started_as_declared():
    host = Host(lambda values, number: "startup" if values["max_num_seqs"] > 4 else None)

    points = search(host)

    assert [values["max_num_seqs"] for values in host.started[:3]] == [8, 8, 4]
    assert all(values["max_num_seqs"] == 4 for values in host.started[2:])
    assert max(p.in_flight for p in points) == 4


def test_a_wrong_answer_is_no_matter_of_chance_and_is_not_tried_again():
    host = Host(lambda values, number: "quality" if values["moe_backend"] == "b" else None)

    search(host, starts=20)

    assert sum(values["moe_backend"] == "b" for values in host.started) <= 6
    assert len({tuple(values.items()) for values in host.started}) == len(host.started)


def test_failures_by_chance_do_not_hide_the_best_backend():
    chance = random.Random(3)
    host = Host(lambda values, number: "startup" if chance.random() < 0.3 else None)

    points = search(host, starts=25)

    assert max(points, key=lambda p: p.output_tok_s).values["moe_backend"] == "b"


def test_a_space_without_max_num_seqs_yields_one_point_a_start():
    knobs, baseline = (KNOBS[0], KNOBS[2]), {k: v for k, v in BASELINE.items() if "seqs" not in k}
    host = Host()

    points = search(host, knobs=knobs, baseline=baseline, rules=())

    assert {p.in_flight for p in points} == {8}
    assert [p.order for p in points] == [0] * len(points)


def test_a_grid_that_is_used_up_ends_the_search():
    host = Host()

    search(
        host,
        starts=500,
        knobs=(
            *KNOBS[:2],
            KNOBS[2].__class__(name="max_num_batched_tokens", values=(2048, 4096), kind="log"),
        ),
    )

    assert len(host.started) == 3 * 2
