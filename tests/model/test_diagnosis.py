import json

from autotune.model.diagnosis import FAMILIES, Diagnosis, Limit, ServerFacts


def test_what_stops_a_study_says_with_which_code():
    stopping = {name: family.exit_code for name, family in FAMILIES.items() if family.stops_study}

    assert stopping == {"memory_occupied": 3, "model_files": 3, "host_setup": 3}


def test_only_what_may_be_chance_is_tried_again():
    retried = {name for name, family in FAMILIES.items() if family.retry}

    assert retried == {"memory_occupied", "compile_failed", "port_in_use", "engine_died", "hang"}


def test_what_is_not_the_configurations_fault_teaches_the_search_nothing():
    for family in FAMILIES.values():
        assert family.infeasible == (family.blame == "configuration")


def test_a_diagnosis_is_json_with_every_key():
    found = Diagnosis(
        outcome="failed",
        family="kv_cache_too_small",
        limit=Limit(knob="max_model_len", op="<=", number=4096),
        facts=ServerFacts(vllm_version="0.33.0", caps=("a cap",)),
    )

    assert json.loads(json.dumps(found.as_dict())) == {
        "outcome": "failed",
        "family": "kv_cache_too_small",
        "failure_class": None,
        "line": None,
        "line_number": None,
        "remedy": None,
        "limit": {"knob": "max_model_len", "op": "<=", "number": 4096},
        "facts": {"vllm_version": "0.33.0", "caps": ["a cap"]},
        "warnings": [],
    }


def test_a_limit_reads_as_a_rule():
    assert str(Limit(knob="max_num_seqs", op="<=", number=614.0)) == "max_num_seqs <= 614"
