"""JSON both ways: strict towards people, patient with newer programs, and every mistake is named."""

import json
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from muster_shared.codec import Count, Label, Message, Request, Text, decode, dumps, encode, loads
from muster_shared.errors import Code, FieldError, Problem, invalid
from muster_shared.wire import Report


class Inner(Request):
    weight_kg: Count


class Order(Request):
    device_count: Annotated[Count, Field(le=64)]
    name: Text | None = None
    tag: Label | None = None
    inner: tuple[Inner, ...] = ()


class Beat(Message):
    boot_id: Text
    seq: Count = 0


def problem_of(body: bytes | str) -> Problem:
    with pytest.raises(Problem) as caught:
        decode(Order, body)
    assert caught.value.code is Code.INVALID_INPUT
    return caught.value


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('{"deviceCount": "1"}', "deviceCount"),
        ('{"deviceCount": true}', "deviceCount"),
        ('{"deviceCount": 1.5}', "deviceCount"),
        ('{"deviceCount": -1}', "deviceCount"),
        ('{"deviceCount": 65}', "deviceCount"),
        ('{"deviceCount": NaN}', "deviceCount"),
        ("{}", "deviceCount"),
        ('{"deviceCount": 1, "gpus": 1}', "gpus"),
        ('{"deviceCount": 1, "inner": [{"weightKg": 1}, {}]}', "inner.1.weightKg"),
        ('{"deviceCount": 1, "name": "a\\nb"}', "name"),
        ('{"deviceCount": 1, "tag": "../etc"}', "tag"),
        ("[" * 100_000, ""),
        ("", ""),
        (b"\xff", ""),
    ],
)
def test_a_mistake_is_named_by_its_path(body: bytes | str, path: str) -> None:
    assert problem_of(body).errors[0].path == path


def test_a_hostile_message_cannot_ask_for_a_novel() -> None:
    body = json.dumps({f"field{number}": 1 for number in range(1000)})

    assert len(problem_of(body).errors) == 20


def test_a_refusal_never_repeats_what_was_sent() -> None:
    problem = problem_of('{"deviceCount": "swordfish"}')

    assert "swordfish" not in problem.detail + str(problem.errors)


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", "\x9b", "\n", "\u2028", "\u202e", "\u2066"])
def test_no_text_forges_a_line_or_turns_its_direction(character: str) -> None:
    assert problem_of(json.dumps({"deviceCount": 1, "name": f"a{character}b"})).errors[0].path == "name"


@pytest.mark.parametrize("number", ["8", "8.0", "0.8e1"])
def test_a_whole_number_is_an_integer_however_it_is_written(number: str) -> None:
    assert decode(Order, f'{{"deviceCount": {number}}}').device_count == 8


def test_a_program_may_be_newer_than_we_are_and_a_person_may_not() -> None:
    assert decode(Beat, '{"bootId": "b", "mood": "good"}') == Beat(boot_id="b")
    assert problem_of('{"deviceCount": 1, "mood": "good"}').errors[0].path == "mood"


@given(
    st.builds(
        Order,
        deviceCount=st.integers(0, 64),  # a signature shows the names of the wire
        name=st.none() | st.from_regex(r"[\w .-]{0,256}", fullmatch=True).filter(str.isprintable),
        tag=st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}", fullmatch=True),
        inner=st.lists(st.builds(Inner, weightKg=st.integers(0, 2**53)), max_size=3).map(tuple),
    )
)
def test_a_message_survives_the_wire(order: Order) -> None:
    assert decode(Order, encode(order)) == order


def test_absent_fields_are_left_out_and_names_are_camel_case() -> None:
    assert loads(encode(Order(device_count=1))) == {"deviceCount": 1, "inner": []}


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**53), 2**53)))
def test_equal_documents_are_equal_bytes(document: dict[str, int]) -> None:
    other = dict(reversed(list(document.items())))

    assert dumps(document) == dumps(other)
    assert loads(dumps(document)) == document


def test_a_message_cannot_be_changed_after_it_was_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(Beat(boot_id="b"), "seq", 1)  # noqa: B010 - what a type checker would refuse


@given(st.binary(max_size=200))
def test_no_bytes_bring_the_reader_of_reports_down(body: bytes) -> None:
    with pytest.raises(Problem):
        decode(Report, body)


def test_every_code_has_a_status_of_its_own_but_for_the_quota_which_forbids() -> None:
    statuses = [code.http_status for code in Code if code is not Code.QUOTA_EXCEEDED]

    assert Code.QUOTA_EXCEEDED.http_status == Code.FORBIDDEN.http_status
    assert sorted(statuses) == sorted(set(statuses))
    assert all(400 <= status < 600 for status in statuses)


def test_the_refusal_of_one_field_names_it_in_the_sentence_too() -> None:
    problem = invalid("start", "lies in the past")

    assert (problem.detail, problem.errors) == ("start: lies in the past", (FieldError("start", "lies in the past"),))
    assert invalid("", "not JSON").detail == "not JSON"
