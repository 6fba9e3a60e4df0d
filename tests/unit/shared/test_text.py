"""What text from outside becomes before it is kept or shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.labels import label_map
from shared.text import class_name, collapsed, printable, printable_lines

ANY_TEXT = st.text(st.characters(codec=None)) | st.text(
    st.sampled_from("ab \t\n\r\v\f\x00\x1b\x1c\x7f\x85\x9b\xa0\u2028\u2029\u3000\ud800\udcff\u200d\u202e\ufeff\u0301")
)


def test_control_characters_separators_and_surrogates_are_escaped_and_nothing_else() -> None:
    for code in range(0x110000):
        letter = chr(code)
        is_escaped = unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
        assert printable(letter) == (letter.encode("unicode_escape").decode() if is_escaped else letter)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("a\u2028b", "a\\u2028b"),
        ("caf\udce9", "caf\\udce9"),
        ("[/x] größe 写真 👨\u200d👩 no\u00a0break \\n", "[/x] größe 写真 👨\u200d👩 no\u00a0break \\n"),
    ],
)
def test_a_control_character_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY_TEXT)
def test_printable_text_is_one_line_of_utf_8_without_control_characters(text: str) -> None:
    shown = printable(text)
    assert shown.splitlines() == ([shown] if shown else [])
    assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert shown.encode().decode() == shown
    assert printable(shown) == shown


@given(ANY_TEXT)
def test_texts_of_several_lines_keep_their_line_feeds_and_nothing_else(text: str) -> None:
    shown = printable_lines(text)
    assert [printable(line) for line in text.split("\n")] == shown.split("\n")
    assert printable_lines(shown) == shown


@pytest.mark.parametrize("text", ["a b", "  a b\n", "a\nb", "a\r\n\t b", "a\u2028b", "a\u00a0b", "a\x85b", "a\u3000b"])
def test_white_space_is_collapsed(text: str) -> None:
    assert collapsed(text) == class_name(text) == "a b"


@pytest.mark.parametrize("text", ["v\u00e9lo", "ve\u0301lo", " ve\u0301lo\n"])
def test_class_names_that_look_the_same_are_one(text: str) -> None:
    assert class_name(text) == "v\u00e9lo"


def test_letters_that_do_not_look_the_same_stay_apart() -> None:
    assert class_name("ﬁ ① é e") == "ﬁ ① é e"


@given(st.lists(ANY_TEXT))
def test_class_names_written_one_a_line_are_read_back(texts: list[str]) -> None:
    names = label_map(class_name(text) for text in texts if class_name(text)).names
    written = label_map(names).to_labels_txt().encode().decode()
    assert tuple(written.split("\n")[:-1]) == names
    assert tuple(written.splitlines()) == names


@given(ANY_TEXT)
def test_a_class_name_is_the_same_however_often_it_is_read(text: str) -> None:
    assert class_name(class_name(text)) == class_name(text)
