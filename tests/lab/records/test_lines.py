import json
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.records.lines import decode, encode

SPELT = {"NaN", "Infinity", "-Infinity"}
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS.filter(lambda s: s not in SPELT),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=4,
)


@given(st.dictionaries(TEXTS, VALUES))
def test_whatever_is_written_is_one_line_of_strict_json_and_read_back(entry):
    line = encode(entry)
    assert line.index(b"\n") == len(line) - 1
    json.loads(line, parse_constant=pytest.fail)
    assert repr(decode(line)) == repr(entry)


@given(st.text(st.characters(codec=None)))
def test_no_text_is_read_with_characters_that_move_a_cursor_or_turn_lines_around(text):
    for line in (
        encode({text: [text]}),
        json.dumps({text: [text]}, ensure_ascii=False).encode(errors="surrogatepass"),
    ):
        try:
            ((key, (value,)),) = decode(line).items()
        except ValueError:
            continue  # raw control characters and surrogates are no strict JSON
        assert len(key) == len(text)
        assert all(unicodedata.category(each)[0] not in "CZ" or each == " " for each in key)
        assert value == key or text in SPELT


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", np.zeros(2), torch.zeros(2)])
def test_what_json_cannot_hold_is_refused_by_name(value):
    with pytest.raises(sb.RecordError, match=type(value).__name__):
        encode({"a": [value]})


@pytest.mark.parametrize("line", [b"", b"[1]", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_line_is_refused(line):
    with pytest.raises(ValueError, match=r"."):
        decode(line)
