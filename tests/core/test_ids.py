"""Tokens: the address of one grant, unguessable, and of one store only."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import Address, Session, idempotency_key, seal, unseal

KEY = b"k" * 32
ADDRESSES = st.builds(
    Address,
    st.text(min_size=1, max_size=60),
    st.text(min_size=1, max_size=60),
    st.integers(1, 2**40),
    st.integers(1, 2**40),
)


@given(ADDRESSES)
def test_a_token_leads_back_to_its_address(address):
    token = seal(address, KEY)
    assert unseal(token, KEY) == address
    assert token.isascii()
    assert set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=")


@given(ADDRESSES, ADDRESSES)
def test_no_two_addresses_share_a_token(one, other):
    assert (seal(one, KEY) == seal(other, KEY)) == (one == other)


@given(ADDRESSES)
def test_the_token_of_another_store_is_none(address):
    assert unseal(seal(address, b"o" * 32), KEY) is None


@given(ADDRESSES, st.data())
def test_a_changed_token_is_none_or_the_very_same(address, data):
    token = seal(address, KEY)
    raw = bytearray(base64.urlsafe_b64decode(token))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert unseal(base64.urlsafe_b64encode(bytes(raw)).decode(), KEY) is None


@given(st.text(max_size=80))
def test_text_that_was_never_sealed_is_none(text):
    assert unseal(text, KEY) is None


@given(st.binary(max_size=80))
def test_bytes_that_were_never_sealed_are_none(raw):
    assert unseal(base64.urlsafe_b64encode(raw).decode(), KEY) is None


def test_a_well_formed_address_without_the_key_is_none():
    forged = seal(Address("w", "a", 1, 1), b"guess" * 4)
    assert unseal(forged, KEY) is None


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_token_that_was_cut_is_none(cut):
    assert unseal(seal(Address("w", "a", 1, 1), KEY)[:-cut], KEY) is None


def test_only_a_supervisors_session_is_local():
    assert Session("node.abc", 1).is_local
    assert not Session("gateway.abc", 1).is_local


def test_the_key_encodes_only_what_it_must():
    assert idempotency_key("a b?&ü", "x:y") == "a b?&ü/x:y"
    assert idempotency_key("a/b%c#d", "/") == "a%2Fb%25c%23d/%2F"
