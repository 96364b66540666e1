"""Atoms as bits: what one node's mask becomes in rows of a database, and back."""

from hypothesis import given
from hypothesis import strategies as st

from muster_shared.devices import WORD_BITS, atom_numbers, joined_mask, mask_words

atoms = st.sets(st.integers(0, 400))


def mask_of(numbers: set[int]) -> int:
    return sum(1 << number for number in numbers)


@given(atoms)
def test_a_mask_survives_its_words(numbers: set[int]) -> None:
    words = mask_words(mask_of(numbers))

    assert joined_mask(words.items()) == mask_of(numbers)
    assert joined_mask(reversed(list(words.items()))) == mask_of(numbers)


@given(atoms)
def test_atom_n_is_bit_n_mod_63_of_word_n_div_63_and_no_empty_word_is_kept(numbers: set[int]) -> None:
    words = mask_words(mask_of(numbers))

    assert set(words) == {number // WORD_BITS for number in numbers}
    for word, bits in words.items():
        assert 0 < bits < 2**63  # what a signed column of 64 bits holds
        assert {word * WORD_BITS + bit for bit in range(WORD_BITS) if bits >> bit & 1} == {
            number for number in numbers if number // WORD_BITS == word
        }


@given(atoms, atoms)
def test_two_masks_share_an_atom_exactly_where_two_of_their_words_share_a_bit(one: set[int], other: set[int]) -> None:
    first, second = mask_words(mask_of(one)), mask_words(mask_of(other))

    assert any(bits & second.get(word, 0) for word, bits in first.items()) == bool(one & other)


@given(atoms)
def test_the_atoms_of_a_mask_are_listed_rising(numbers: set[int]) -> None:
    assert atom_numbers(mask_of(numbers)) == sorted(numbers)


def test_an_empty_mask_has_no_word_and_no_atom() -> None:
    assert (mask_words(0), atom_numbers(0), joined_mask([])) == ({}, [], 0)
