from autotune.space_file.names import Taken, corrected, leaves


def test_a_json_flag_spreads_over_its_keys():
    assert leaves("a", {"b": {"c": 1}, "d": [2], "e": {}}) == {"a.b.c": 1, "a.d": [2], "a.e": {}}


def test_a_flag_and_its_keys_stand_in_each_others_way():
    taken = Taken()
    taken.add("a.b")
    taken.add("env.X")

    assert [taken.clash(name) for name in ("a", "a.b", "a.b.c", "a.c", "ab", "env", "env.Y")] == [
        "a.b",
        "a.b",
        "a.b",
        None,
        None,
        None,
        None,
    ]


def test_every_way_to_write_a_flag_is_corrected_to_one():
    written = ("max-num-seqs", "--max-num-seqs", "no_max_num_seqs", "Max_Num_Seqs")

    assert {corrected(name) for name in written} == {"max_num_seqs"}
