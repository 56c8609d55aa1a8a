from autotune.model.knob import Condition, Knob, compare, same
from autotune.model.objective import Constraint, Quantity, Rule
from tests.fakes.bench import make_space

DRAFT = "speculative_config.num_speculative_tokens"


def conditional_space():
    return make_space(
        knobs=(
            Knob(name=DRAFT, values=(0, 1, 2), kind="linear"),
            Knob(
                name="speculative_config.moe_backend",
                values=("triton", "marlin"),
                kind="categorical",
            ),
            Knob(name="async_scheduling", values=(False, True), kind="categorical"),
            Knob(
                name="stream_interval",
                values=(1, 2),
                kind="linear",
                when=(Condition(name="async_scheduling", operator="==", operands=(True,)),),
            ),
            Knob(
                name="block_size",
                values=(16, 32),
                kind="linear",
                when=(Condition(name="stream_interval", operator=">=", operands=(1,)),),
            ),
        ),
        baseline={
            DRAFT: 1,
            "speculative_config.moe_backend": "marlin",
            "async_scheduling": True,
            "stream_interval": 2,
            "block_size": 32,
        },
        rules=(),
    )


def test_options_of_a_draft_that_is_not_there_have_no_effect():
    space = conditional_space()
    off = {**space.baseline, DRAFT: 0}

    assert "speculative_config.moe_backend" not in space.active(off)
    assert space.shown(off)["speculative_config.moe_backend"] == "-"
    assert space.canonical(off)["speculative_config.moe_backend"] == "triton"
    assert not space.config(off).speculates()


def test_a_knob_whose_parent_is_inactive_is_inactive_too():
    space = conditional_space()
    off = {**space.baseline, "async_scheduling": False}

    assert {"stream_interval", "block_size"}.isdisjoint(space.active(off))
    assert "--block-size" not in space.config(off).argv()


def test_configurations_that_differ_only_in_inactive_knobs_are_one():
    space = conditional_space()
    left = {**space.baseline, "async_scheduling": False, "block_size": 16}
    right = {**space.baseline, "async_scheduling": False, "block_size": 32}

    assert space.key(left) == space.key(right)
    assert space.key(space.baseline) != space.key(left)


def test_a_rule_holds_where_one_of_its_sides_is_absent():
    rule = Rule(left="max_num_batched_tokens", operator=">=", right="max_num_seqs")

    assert rule.broken_by({"max_num_batched_tokens": 8, "max_num_seqs": 16})
    assert not rule.broken_by({"max_num_batched_tokens": 16, "max_num_seqs": 16})
    assert not rule.broken_by({"max_num_seqs": 16})
    assert Rule(left="max_num_seqs", operator="<=", right=8).broken_by({"max_num_seqs": 9})


def test_true_and_one_are_different_settings():
    assert not same(True, 1)
    assert not compare(True, "==", 1)
    assert True not in Knob(name="k", values=(0, 1), kind="linear")


def test_the_fingerprint_changes_with_what_a_number_means_and_with_nothing_else():
    space = make_space()

    assert space.fingerprint() == make_space(name="other").fingerprint()
    assert space.fingerprint() != make_space(repeats=9).fingerprint()
    assert space.fingerprint() != make_space(model="other/model").fingerprint()
    assert space.fingerprint() != make_space(rules=()).fingerprint()


def test_a_constraint_says_by_what_share_it_is_missed():
    quantity = Quantity(metric="ttft_ms.p95", workload="agent", concurrency=8)
    limit = Constraint(quantity=quantity, operator="<=", bound=500.0)

    assert limit.excess(750) == 0.5
    assert limit.excess(500) <= 0
    assert limit.excess(250) == -0.5
    assert limit.label == "ttft_ms.p95@agent:8 <= 500"
    strict = Constraint(quantity=quantity, operator="<", bound=500.0)
    assert strict.excess(500) > 0
