from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.telemetry.redaction import MASK, MIN_SECRET_LENGTH, Redactor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:pw@h/d", f"postgresql://u:{MASK}@h/d"),
        ("postgresql://:pw@h/d", f"postgresql://:{MASK}@h/d"),
        ("tried s3://key:pw@bucket twice", f"tried s3://key:{MASK}@bucket twice"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("https://example.com:443/a@b", "https://example.com:443/a@b"),
        ("host=h password=pw user=u", f"host=h password={MASK} user=u"),
        ("host=h password='p w' user=u", f"host=h password={MASK} user=u"),
        (r"password='it\'s' user=u", f"password={MASK} user=u"),
        ("PGPASSWORD=pw psql", f"PGPASSWORD={MASK} psql"),
        ("postgresql://h/d?password=pw&sslmode=require", f"postgresql://h/d?password={MASK}&sslmode=require"),
        ('{"password": "pw", "user": "u"}', f'{{"password": {MASK}, "user": "u"}}'),
        ("password authentication failed for user u", "password authentication failed for user u"),
        ("write password: {env: NAME} or {file: PATH}", "write password: {env: NAME} or {file: PATH}"),
    ],
)
def test_passwords_of_connection_strings_are_masked_and_prose_is_not(text: str, expected: str):
    assert Redactor().redact(text) == expected


@given(
    st.text(st.characters(blacklist_categories=["Cs"]), min_size=MIN_SECRET_LENGTH, max_size=20),
    st.text(max_size=10),
)
def test_a_known_secret_is_masked_as_it_is_and_as_part_of_a_url(secret: str, around: str):
    redactor = Redactor()
    redactor.register(secret)

    for form in (secret, quote(secret, safe="")):
        assert form not in redactor.redact(f"{around}{form}{around}").replace(MASK, "")


def test_a_secret_inside_a_longer_one_does_not_leave_the_rest():
    redactor = Redactor()
    redactor.register("swordfish")
    redactor.register("swordfish-2")

    assert redactor.redact("swordfish-2 swordfish") == f"{MASK} {MASK}"


def test_a_secret_too_short_to_be_one_does_not_mask_half_of_every_sentence():
    redactor = Redactor()
    redactor.register("a")

    assert redactor.redact("a sentence") == "a sentence"
