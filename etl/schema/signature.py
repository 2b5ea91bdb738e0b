"""The signature the event trigger puts on its messages: whoever can connect can emit one with our prefix.

The trigger signs the payload, a JSON object, and then writes the signature as the object's last member, in one exact
form. So the signed bytes are what stands before the last ``, "etl_signature": `` and a closing brace, and nothing in a
payload has to be rendered again to check it (docs/reference/ddl-message.md).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: The newest signature this code checks: HMAC-SHA256 (RFC 2104) over the payload.
SIGNATURE_VERSION: Final = 1

_MARKER: Final = b', "etl_signature": '
_FORM: Final = re.compile(rb'\{"version": (\d{1,9}), "key_id": (\d{1,10}), "hmac": "([0-9a-f]{64})"\}\}')


@dataclass(frozen=True, slots=True)
class Signature:
    """Which key signed, and the 32 bytes of the HMAC."""

    version: int
    key_id: int
    hmac: bytes


def split_signed(content: bytes) -> tuple[bytes, Signature | None]:
    """The signed payload and its signature; the content as it is and None when it ends with none of ours."""
    payload, marker, rest = content.rpartition(_MARKER)
    match = _FORM.fullmatch(rest) if marker else None
    if match is None:
        return content, None
    return payload + b"}", Signature(int(match[1]), int(match[2]), bytes.fromhex(match[3].decode("ascii")))


def verify(payload: bytes, signature: Signature, keys: Mapping[int, bytes]) -> bool:
    """Whether one of `keys` (key id to secret) signed exactly `payload`."""
    secret = keys.get(signature.key_id)
    if secret is None or signature.version != SIGNATURE_VERSION:
        return False
    return hmac.compare_digest(hmac.digest(secret, payload, hashlib.sha256), signature.hmac)
