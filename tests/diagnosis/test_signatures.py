import re

import pytest

from autotune.diagnosis.signatures import load_signatures
from autotune.model.diagnosis import FAMILIES

SIGNATURES = load_signatures()


def test_every_signature_names_a_known_family_and_level():
    for signature in SIGNATURES:
        assert signature.level in {"root", "general", "clue", "consequence", "warning"}
        if signature.level == "warning":
            assert signature.family is None
        else:
            assert signature.family in FAMILIES, signature.pattern
        assert re.fullmatch(r"[a-z0-9_]+", signature.failure_class)


def test_every_failure_has_a_remedy_of_one_sentence():
    for signature in SIGNATURES:
        if signature.level == "warning":
            continue
        assert signature.remedy, signature.pattern
        assert signature.remedy.endswith(".")
        assert len(signature.remedy) < 200


def test_every_limit_has_a_group_in_its_pattern():
    for signature in SIGNATURES:
        assert (signature.knob is not None) == ("limit" in signature.regex.groupindex)


def test_no_pattern_stands_twice():
    patterns = [signature.pattern for signature in SIGNATURES]

    assert len(patterns) == len(set(patterns))


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.pattern[:40])
def test_a_pattern_is_found_by_plain_text(signature):
    assert all(phrase.isascii() and len(phrase) > 1 for phrase in signature.phrases)
