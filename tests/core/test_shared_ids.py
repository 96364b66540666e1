"""TypeIDs: they sort by time, say what they name, and are UUIDv7 inside."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_shared.ids import is_type_id, type_id

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
times = st.integers(0, 2**48 - 1)
chances = st.integers(0, 2**74 - 1)


def uuid_of(text: str) -> uuid.UUID:
    number = 0
    for digit in text.partition("_")[2]:
        number = number * 32 + ALPHABET.index(digit)
    return uuid.UUID(int=number)


@given(times, chances)
def test_an_id_is_a_version_7_uuid_with_all_of_its_time_and_chance(unix_ms: int, chance: int) -> None:
    inside = uuid_of(type_id("rsv", unix_ms, chance))

    assert (inside.version, inside.variant) == (7, uuid.RFC_4122)
    assert inside.int >> 80 == unix_ms
    assert (inside.int >> 64 & 0xFFF) << 62 | inside.int & (1 << 62) - 1 == chance


@given(times, times, chances, chances)
def test_ids_sort_by_the_time_they_were_made(one_ms: int, other_ms: int, one: int, other: int) -> None:
    first, second = type_id("node", one_ms, one), type_id("node", other_ms, other)

    assert (first < second) == ((one_ms, one) < (other_ms, other))


def test_the_known_vector_of_the_specification_comes_out() -> None:
    known = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    chance = (known.int >> 64 & 0xFFF) << 62 | known.int & (1 << 62) - 1

    assert type_id("rsv", known.int >> 80, chance) == "rsv_01h455vb4pex5vsknk084sn02q"


@given(times, chances)
def test_an_id_is_recognized_as_its_own_kind_only(unix_ms: int, chance: int) -> None:
    text = type_id("pool", unix_ms, chance)

    assert is_type_id("pool", text)
    assert not is_type_id("node", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rsv",
        "rsv_",
        "_01h455vb4pex5vsknk084sn02q",
        "rsv_01h455vb4pex5vsknk084sn02",
        "rsv_01h455vb4pex5vsknk084sn02qq",
        "rsv_81h455vb4pex5vsknk084sn02q",
        "rsv_01H455VB4PEX5VSKNK084SN02Q",
        "rsv_01h455vb4pex5vsknk084sn02l",
        "rsv_rsv_01h455vb4pex5vsknk084sn02q",
        "rsv-01h455vb4pex5vsknk084sn02q",
    ],
)
def test_what_is_no_id_is_not_taken_for_one(text: str) -> None:
    assert not is_type_id("rsv", text)


@pytest.mark.parametrize(("unix_ms", "chance"), [(-1, 0), (2**48, 0), (0, -1), (0, 2**74)])
def test_numbers_that_do_not_fit_are_the_callers_bug(unix_ms: int, chance: int) -> None:
    with pytest.raises(ValueError, match="48 bits of time"):
        type_id("evt", unix_ms, chance)
