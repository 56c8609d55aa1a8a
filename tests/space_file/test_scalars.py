import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.space_file.scalars import Trap, plain_value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("8", 8),
        ("-3", -3),
        ("1_000", 1000),
        ("0x10", 16),
        ("0", 0),
        ("0.85", 0.85),
        (".5", 0.5),
        ("8.0", 8.0),
        ("1e3", 1000),
        ("16e3", 16000),
        ("1e-1", 0.1),
        ("1.5E+2", 150),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("fp8", "fp8"),
        ("64k", "64k"),
        ("2024-05-01", "2024-05-01"),
        ("10.0.0.1", "10.0.0.1"),
        ("e3", "e3"),
        ("=", "="),
    ],
)
def test_a_word_that_people_and_yaml_read_alike_is_read(word, value):
    read = plain_value(word)

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("on", 'write true, or "on" in quotes'),
        ("No", 'write false, or "No" in quotes'),
        ("010", "octal to some YAML readers: write 10,"),
        ("-007", "write -7,"),
        ("00", "write 0,"),
        ("08", "write 8,"),
        ("00.5", "write 0.5,"),
        ("1:30", "base-60"),
        ("80:30", "base-60"),
        ("0b101", "write it in decimal"),
        ("0o17", "write it in decimal"),
        (".nan", "not a finite number"),
        ("-.inf", "not a finite number"),
        ("NaN", "not a finite number"),
        ("1e999", "beyond every setting"),
        ("9" * 40, "more than 30 digits"),
        ("", "has no value"),
    ],
)
def test_a_trap_says_how_to_write_what_is_meant(word, words):
    with pytest.raises(Trap) as caught:
        plain_value(word)

    assert words in str(caught.value)


@given(st.text(alphabet="0123456789.eE+-_:xobnaif~ ", max_size=40))
def test_any_word_is_read_or_is_a_trap(word):
    try:
        value = plain_value(word)
    except Trap:
        return
    assert value is None or isinstance(value, bool | int | float | str)
