"""Splitting a signed message and checking its signature."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.schema.signature import SIGNATURE_VERSION, Signature, split_signed, verify

SECRET = b"s" * 32
KEYS = {1: SECRET}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
PAYLOADS = st.dictionaries(st.text(), JSON_VALUES, min_size=1).map(lambda value: json.dumps(value).encode())


def signed(payload: bytes, *, key_id: int = 1, secret: bytes = SECRET, version: int = 1) -> bytes:
    digest = hmac.new(secret, payload, hashlib.sha256).hexdigest()
    tail = f', "etl_signature": {{"version": {version}, "key_id": {key_id}, "hmac": "{digest}"}}}}'
    return payload[:-1] + tail.encode()


@given(payload=PAYLOADS)
def test_the_payload_comes_back_byte_for_byte_and_verifies(payload: bytes):
    recovered, signature = split_signed(signed(payload))
    assert recovered == payload
    assert signature is not None
    assert verify(recovered, signature, KEYS)


@given(payload=PAYLOADS)
def test_a_signed_message_is_still_one_json_object(payload: bytes):
    whole = json.loads(signed(payload))
    assert whole.pop("etl_signature")["key_id"] == 1
    assert whole == json.loads(payload)


@given(content=st.binary())
def test_whatever_is_no_signed_message_is_given_back_as_it_is(content: bytes):
    assert split_signed(content) == (content, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"a": 1}',
        b'{"etl_signature": {}}',
        b'{"a": 1, "etl_signature": {"version": 1, "key_id": 1}}',
        signed(b'{"a": 1}') + b" ",
        signed(b'{"a": 1}')[:-1],
        signed(b'{"a": 1}').replace(b'"version": 1', b'"version": -1'),
        signed(b'{"a": 1}').replace(b'"key_id": 1', b'"key_id": 1e0'),
        signed(b'{"a": 1}').replace(b", ", b","),
    ],
)
def test_only_the_one_exact_form_is_a_signature(content: bytes):
    assert split_signed(content) == (content, None)


def test_a_signature_inside_the_payload_is_not_the_last_one():
    inner = signed(b'{"a": 1}')
    payload, signature = split_signed(signed(inner))
    assert payload == inner
    assert signature is not None
    assert verify(payload, signature, KEYS)


def test_text_that_looks_like_a_signature_stays_in_the_payload():
    payload = json.dumps({"q": ', "etl_signature": {"version": 1}}'}).encode()
    assert split_signed(signed(payload))[0] == payload


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (signed(b'{"a": 1}', secret=b"x" * 32), KEYS),
        (signed(b'{"a": 1}', key_id=2), KEYS),
        (signed(b'{"a": 1}'), {}),
        (signed(b'{"a": 1}', version=2), KEYS),
        (signed(b'{"a": 1}').replace(b'"a": 1', b'"a": 2'), KEYS),
    ],
)
def test_another_secret_key_version_or_payload_does_not_verify(content: bytes, keys: dict[int, bytes]):
    payload, signature = split_signed(content)
    assert signature is not None
    assert not verify(payload, signature, keys)


def test_a_cut_hmac_does_not_verify():
    payload = b'{"a": 1}'
    digest = hmac.new(SECRET, payload, hashlib.sha256).digest()
    assert verify(payload, Signature(SIGNATURE_VERSION, 1, digest), KEYS)
    assert not verify(payload, Signature(SIGNATURE_VERSION, 1, digest[:16]), KEYS)
