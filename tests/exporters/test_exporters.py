import csv
import dataclasses
import io
import json
import re
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autotune.exporters import FORMATS, STUDY_FILES
from autotune.exporters.recipe import render_recipe
from autotune.exporters.report import verdict
from autotune.model.diagnosis import ServerFacts
from autotune.model.knob import Knob
from autotune.model.outcome import CaseResult, Failed, Rejected, Trial, Verdict
from autotune.model.serving_config import ServingConfig
from autotune.tuning.study import results_of
from tests.fakes.bench import HOST, make_space
from tests.tuning.test_statistics import trial as measured_trial

HOSTILE = "a|b `c` <script>alert(1)</script>\n| d [x](y) *z*"


def results(**changes):
    space = make_space(**changes)
    base = dict(space.baseline)
    fast = {**base, "max_num_seqs": 32}
    trials = [
        dataclasses.replace(measured_trial(0, [100, 101, 99], [50, 51, 49]), values=base),
        dataclasses.replace(measured_trial(1, [200, 201, 199], [90, 91, 89]), values=fast),
        Trial(
            number=2,
            values={**base, "moe_backend": "triton"},
            outcome=Failed(family="unsupported", message=HOSTILE, remedy="choose another"),
        ),
        Trial(
            number=3,
            values={**base, "moe_backend": "cutlass"},
            outcome=Rejected(
                verdict=Verdict(
                    gate="tool_calls",
                    moment="cold",
                    passed=False,
                    score=0.5,
                    threshold=1.0,
                    cases=(CaseResult(id="named", verdict="fail", why=HOSTILE),),
                ),
                facts=ServerFacts(),
            ),
        ),
    ]
    return results_of("fake", space, {t.number: t for t in trials}, HOST)


def test_front_json_has_the_documented_form():
    front = json.loads(STUDY_FILES[0].render(results()))

    assert set(front) == {"schema_version", "study", "objectives", "baseline", "members"}
    assert front["objectives"][0] == {
        "name": "output_tok_s",
        "unit": "tok/s",
        "direction": "maximize",
    }
    assert front["baseline"]["trial"] == 0
    assert {member["trial"]: member["class"] for member in front["members"]} == {
        0: "front",
        1: "front",
    }
    for member in front["members"]:
        assert set(member) == {"trial", "class", "config", "values"}
        assert set(member["values"]) == {"output_tok_s", "ttft_ms.p50"}
        assert set(member["values"]["output_tok_s"]) == {"mean", "low", "high"}


def test_trials_csv_has_one_row_a_trial_with_its_reason():
    rows = list(csv.DictReader(io.StringIO(STUDY_FILES[1].render(results()))))

    assert [row["trial"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[1]["output_tok_s.ratio"].startswith("2.0")
    assert rows[2]["family"] == "unsupported"
    assert rows[2]["output_tok_s"] == ""
    assert rows[3]["outcome"] == "rejected"


def test_text_of_unknown_origin_is_harmless_in_the_report():
    text = STUDY_FILES[2].render(results())

    assert "<script>" not in text.replace("\\<script\\>", "")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    for line in tables:
        cells = re.split(r"(?<!\\)\|", line)
        assert len(cells) >= 4
    thrown = [line for line in tables if "alert" in line]
    assert len({len(re.split(r"(?<!\\)\|", line)) for line in thrown}) == 1


def test_the_verdict_says_what_was_found_and_how_far_it_can_be_trusted():
    assert "200.0" in verdict(results())
    assert "Not confirmed yet" in verdict(results())
    empty = results_of("fake", make_space(), {}, HOST)
    assert verdict(empty) == "No configuration could be measured and used."


def test_without_anything_usable_there_is_no_recipe_and_every_other_file():
    empty = results_of("fake", make_space(), {}, HOST)

    texts = {exporter.filename: exporter.render(empty) for exporter in STUDY_FILES}

    assert texts["recipe.yaml"] == ""
    assert texts["report.md"]
    assert json.loads(texts["front.json"])["members"] == []


@pytest.mark.parametrize(
    ("pick", "number"), [("throughput", 1), ("ttft", 0), ("balanced", 1), ("0", 0), ("1", 1)]
)
def test_a_pick_names_one_configuration(pick, number):
    chosen = results().pick(pick)

    assert chosen is not None
    assert chosen.trial.number == number
    assert FORMATS["command"](pick=pick).render(results()).startswith("vllm serve some/model")


def rendered_argv(recipe):
    """Render a recipe's command as its readers do."""
    content = yaml.safe_load(recipe)
    assert content["recipe_version"] == "2"
    assert content["runtime"] == "vllm"
    text = content["command"].replace("\\\n", " ")
    values = {"model": content["model"], **content["defaults"]}
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    words = shlex.split(text)
    assert words[:2] == ["vllm", "serve"]
    return words[2:]


CHOSEN_BY_THE_LAUNCHER = ("--served-model-name", "--host", "--port")


def without_launcher_flags(words):
    kept, position = [], 0
    while position < len(words):
        if words[position] in CHOSEN_BY_THE_LAUNCHER:
            position += 2
            continue
        kept.append(words[position])
        position += 1
    return kept


def comparable(words):
    """JSON words by their content, others as they are."""
    return [json.loads(word) if word.startswith("{") else word for word in words]


scalars = st.one_of(
    st.integers(0, 10**6),
    st.floats(0.01, 0.99).map(lambda x: round(x, 3)),
    st.sampled_from(["auto", "FLASH_ATTN", "a b", "it's", 'say "hi"', "$HOME", "x{y}", "100%"]),
)
configurations = st.dictionaries(
    st.sampled_from(
        [
            "max_num_seqs",
            "tensor_parallel_size",
            "attention_backend",
            "speculative_config.num_speculative_tokens",
            "speculative_config.method",
            "compilation_config",
            "cudagraph_capture_sizes",
            "async_scheduling",
            "override_generation_config",
            "env.VLLM_X",
        ]
    ),
    st.none(),
).flatmap(
    lambda names: st.fixed_dictionaries(
        {
            name: {
                "speculative_config.num_speculative_tokens": st.integers(0, 4),
                "compilation_config": st.just({"level": 3, "sizes": [1, 2], "n": {"a": None}}),
                "override_generation_config": st.just({"text": "it's {x}"}),
                "cudagraph_capture_sizes": st.just([1, 2, 4]),
                "async_scheduling": st.booleans(),
            }.get(name, scalars)
            for name in names
        }
    )
)


@given(configurations)
def test_the_rendered_recipe_is_the_measured_command(settings):
    config = ServingConfig(model="org/model", settings=settings)

    words = rendered_argv(render_recipe(config, {"study": "x"}, "vllm-node"))

    assert comparable(without_launcher_flags(words)) == comparable(list(config.argv()))


def test_a_recipe_leaves_out_secrets_and_what_sparkrun_manages():
    config = ServingConfig(
        model="m",
        settings={
            "env.HF_TOKEN": "hush",
            "env.CUTE_DSL_ARCH": "sm_121a",
            "env.VLLM_USE_DEEP_GEMM": "0",
        },
    )

    content = yaml.safe_load(render_recipe(config, {}, "vllm-node"))

    assert content["env"] == {"VLLM_USE_DEEP_GEMM": "0"}


def test_inactive_knobs_are_shown_as_a_dash_everywhere():
    knobs = (
        *make_space().knobs,
        Knob(name="speculative_config.num_speculative_tokens", values=(0, 1), kind="linear"),
        Knob(name="speculative_config.moe_backend", values=("triton",), kind="categorical"),
    )
    space = make_space(
        knobs=knobs,
        baseline={
            **make_space().baseline,
            "speculative_config.num_speculative_tokens": 0,
            "speculative_config.moe_backend": "triton",
        },
    )
    trial = dataclasses.replace(measured_trial(0, [1, 1], [1, 1]), values=space.baseline)
    found = results_of("fake", space, {0: trial}, HOST)

    config = json.loads(STUDY_FILES[0].render(found))["members"][0]["config"]

    assert config["speculative_config.moe_backend"] == "-"
