"""Any text is a query or is refused in one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import KvvizError
from kvviz.query.grammar import BY_NAME, EXAMPLES, FIELDS, KIND, WORDS, header, manual
from kvviz.query.query_reader import Compare, Every, Not, Range, Some, Word, read_query
from kvviz.trace.units import size
from tests.view.query_cases import FOR_ALL, WRONG

OTHERS = ": = > <= - or and ( ) \" ' | .. 3 2kB 1,024 B3.1 * · sort: limit: missed in place é 界"
PIECES = st.sampled_from([*BY_NAME, *OTHERS.split(), " ", " "])


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=14).map("".join)))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    try:
        read_query(text)
    except KvvizError as error:
        assert str(error).partition(" cannot be read: ")[2]


def test_all_examples_are_read_and_all_wrong_ones_refused() -> None:
    for text in (*EXAMPLES, *FOR_ALL):
        assert read_query(text).text == text
    for text in WRONG:
        with pytest.raises(KvvizError, match=r"^the query '.*' cannot be read: "):
            read_query(text)


def test_names_stand_for_one_field_each_and_the_manual_and_the_header_list_it() -> None:
    names = [name for field in FIELDS for name in (field.name, *field.aliases)]
    assert len(names) == len(set(names))
    assert {field.kind for field in FIELDS} == set(KIND)
    assert set(WORDS.values()) <= set(BY_NAME["decision"].choices)
    told = manual()
    assert all(field.name in told and field.about in told for field in FIELDS)
    assert [field["name"] for field in header()["fields"]] == [field.name for field in FIELDS]


def test_or_binds_less_than_standing_side_by_side_and_what_the_page_shows_is_read_as_it_is_meant() -> None:
    part = read_query("a b or -c").part
    assert part == Some((Every((Word("a"), Word("b"))), Not(Word("c"))))
    assert read_query("layer 3 · self_attn").part == Every((Compare("layer", ":", (Range(3, 3),)), Word("self_attn")))
    assert read_query("decode step 5").part == Compare("run", ":", (Range(5, 5),))
    assert read_query("not in place").part == Compare("decision", ":", ("missed",))
    assert read_query("copied 2,048 B").part == Compare("copied", ":", (Range(2048, 2048),))


@given(st.integers(0, 10**12))
def test_bytes_as_the_page_writes_them_find_these_bytes(nbytes: int) -> None:
    part = read_query(f"copied:{size(nbytes).replace(' ', '')}").part
    assert isinstance(part, Compare)
    (value,) = part.values
    assert isinstance(value, Range)
    assert value.low <= nbytes <= value.high
