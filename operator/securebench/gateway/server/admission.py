"""Authenticate sidecars by their service account token, verified offline.

The token is a projected one, signed by the API server and bound to its Pod and to the audience of
this run's gateway. Source: A-143 and A-178.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jwt

from securebench.gateway.net.causes import Cause, RefusedError
from securebench.gateway.server.launch import Identity
from securebench.names import is_dns_label
from securebench.protocol.gateway import GatewayConfig
from securebench.protocol.messages import decode_object

ALGORITHMS = frozenset({"ES256", "RS256"})
"""Signature algorithms of API servers; each key is valid only for its own."""

KEYS_SECONDS = 2.0
"""Minimum time between two reads of the key file."""
LEEWAY_SECONDS = 10.0
"""Tolerated clock skew between two nodes."""

_UID = re.compile(r"[0-9A-Za-z-]{1,64}")


class Admission:
    """Checks launch tokens.

    Args:
        config: Identifies the run and its service account.
        keys_file: JSON Web Key Set of the API server; read again when a token has an unknown key.
        monotonic: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        config: GatewayConfig,
        keys_file: Path,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._file = keys_file
        self._monotonic = monotonic
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at: float | None = None

    def identity(self, token: str) -> Identity:
        """Return the Pod that a token was issued to.

        Raises:
            RefusedError: It is not a valid token of a harness Pod of this run.
        """
        try:
            key = self._key(jwt.get_unverified_header(token))
            claims: Mapping[str, object] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._config.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            raise _refused() from None
        return self._of_this_run(claims)

    def _of_this_run(self, claims: Mapping[str, object]) -> Identity:
        config = self._config
        bound = _section(claims, "kubernetes.io")
        pod = _section(bound, "pod")
        name, uid = pod.get("name"), pod.get("uid")
        conditions = (
            claims.get("aud") in (config.audience, [config.audience]),
            claims["sub"] == f"system:serviceaccount:{config.namespace}:{config.service_account}",
            bound.get("namespace") == config.namespace,
            _section(bound, "serviceaccount").get("name") == config.service_account,
        )
        if not all(conditions) or not isinstance(name, str) or not isinstance(uid, str):
            raise _refused()
        if not (name.startswith(config.pod_prefix) and is_dns_label(name)):
            raise _refused()
        if not _UID.fullmatch(uid):
            raise _refused()
        return Identity(name, uid)

    def _key(self, header: Mapping[str, object]) -> jwt.PyJWK:
        name = header.get("kid")
        if not isinstance(name, str):
            raise _refused()
        if name not in self._keys and self._may_read():
            self._keys = _read_keys(self._file) or self._keys
        key = self._keys.get(name)
        if key is None:
            raise _refused()
        return key

    def _may_read(self) -> bool:
        now = self._monotonic()
        if self._read_at is not None and now - self._read_at < KEYS_SECONDS:
            return False
        self._read_at = now
        return True


def _read_keys(path: Path) -> dict[str, jwt.PyJWK]:
    """Return the usable keys by key id; none while the file is missing or unreadable."""
    try:
        entries = decode_object(path.read_bytes()).get("keys")
    except (OSError, ValueError):
        return {}
    keys = [_signing_key(entry) for entry in entries] if isinstance(entries, list) else []
    return {key.key_id: key for key in keys if key is not None and key.key_id is not None}


def _signing_key(entry: object) -> jwt.PyJWK | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(entry)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None


def _section(claims: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = claims.get(name)
    return value if isinstance(value, dict) else {}


def _refused() -> RefusedError:
    return RefusedError("The token does not belong to a harness Pod of this run.", Cause.TOKEN)
