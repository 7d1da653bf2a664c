"""An OpenID Connect issuer, and tokens that only look as if they were of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://login.example.org", "bide"


def encode(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _sign(header: dict[str, Any], claims: dict[str, Any], key: RSAKey) -> str:
    """A token with any header: a library would refuse to write many of them."""
    signed = f"{encode(header)}.{encode(claims)}"
    private = cast(rsa.RSAPrivateKey, key.private_key)
    return f"{signed}.{encode(private.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class Forger:
    """Knows the public keys of the issuer, and for one valid token a private key."""

    def __init__(self) -> None:
        self._rsa = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
        self._ec = ECKey.generate_key("P-256", {"kid": "ec"})
        self._own = RSAKey.generate_key(2048, {"kid": "rsa"})
        shared = {"kty": "oct", "k": encode(b"secret"), "kid": "shared"}
        public = [key.as_dict(private=False) for key in (self._rsa, self._ec)]
        self.key_set = json.dumps({"keys": [shared, {"kty": "new"}, "x", *public]})

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ann",
            "tenant": "a",
            "scope": "read submit control admin",
            "exp": now + 600,
            "nbf": now,
        }
        return {name: value for name, value in {**claims, **changes}.items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token with a valid signature."""
        return _sign({"alg": "RS256", "kid": "rsa", **(header or {})}, self.claims(**changes), self._rsa)

    def forged(self) -> Iterator[tuple[str, str]]:
        """What is wrong with a token, and the token."""
        yield from self._without_signature()
        yield from self._with_other_keys()
        yield from self._with_kids()
        yield from self._with_claims()

    def _without_signature(self) -> Iterator[tuple[str, str]]:
        claims = self.claims()
        header, body, signature = self.token().split(".")
        for name in ("none", "None", "NONE", "nOnE", "", " none"):
            yield f"alg {name!r}", f"{encode({'alg': name})}.{encode(claims)}."
            with_kid = encode({"alg": name, "kid": "rsa"})
            yield f"alg {name!r}", f"{with_kid}.{encode(claims)}.{signature}"
        for alg in (None, ["none"], 0, {"alg": "RS256"}):
            yield f"alg {alg!r}", f"{encode({'alg': alg, 'kid': 'rsa'})}.{body}.{signature}"
        yield "no alg", f"{encode({'kid': 'rsa'})}.{body}.{signature}"
        yield "no signature", f"{header}.{body}."
        yield "another body", f"{header}.{encode({**claims, 'tenant': 'b'})}.{signature}"
        yield "half a signature", f"{header}.{body}.{signature[: len(signature) // 2]}"
        yield "empty", ".."
        yield "not base64", f"!{header}.{body}.{signature}"
        yield "nested", f"{encode(b'[' * 5000)}.{body}.{signature}"
        yield "oversized", self.token(more="x" * 9000)

    def _with_other_keys(self) -> Iterator[tuple[str, str]]:
        claims = self.claims()
        public = self._rsa.as_dict(private=False)
        secrets = (
            self._rsa.as_pem(private=False),
            self._rsa.as_pem(private=False).strip(),
            json.dumps(public).encode(),
            str(public["n"]).encode(),
            b"secret",
            b"",
        )
        for algorithm, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            for secret in secrets:
                for kid in ("rsa", "shared"):
                    signed = f"{encode({'alg': algorithm, 'kid': kid})}.{encode(claims)}"
                    code = hmac.new(secret, signed.encode(), digest).digest()
                    yield f"{algorithm} with the public key", f"{signed}.{encode(code)}"
        header = {"alg": "RS256", "kid": "rsa"}
        yield "a key of its own", _sign(header, claims, self._own)
        own = self._own.as_dict(private=False)
        for more in (
            {"jwk": own},
            {"jku": "http://127.0.0.1:1/keys.json"},
            {"jku": "file:///etc/passwd"},
            {"x5u": "http://127.0.0.1:1/key.pem"},
            {"x5c": ["MIIB"]},
            {"jwk": own, "jku": "https://login.example.org/keys", "x5t": "x"},
        ):
            yield f"{list(more)}", _sign({**header, **more}, claims, self._own)
        yield (
            "the key of another algorithm",
            jwt.encode({"alg": "ES256", "kid": "rsa"}, claims, self._ec),
        )
        yield "crit", self.token({"crit": ["exp"]})
        pss = {"alg": "PS256", "kid": "rsa"}
        yield (
            "an algorithm that is not configured",
            jwt.encode(pss, claims, self._rsa, algorithms=["PS256"]),
        )

    def _with_kids(self) -> Iterator[tuple[str, str]]:
        _, body, signature = self.token().split(".")
        kids: list[Any] = [
            *("../../../etc/passwd", "/dev/null", "file:///dev/null", "http://127.0.0.1:1/key"),
            *("rsa' OR '1'='1", "x" * 5000, "rsa\0", " rsa", "RSA", "", "shared", "ec"),
            *(7, ["rsa"], {"kid": "rsa"}, True),
        ]
        for kid in kids:
            yield f"kid {kid!r:.40}", f"{encode({'alg': 'RS256', 'kid': kid})}.{body}.{signature}"
            if isinstance(kid, str):
                header = {"alg": "RS256", "kid": kid}
                yield f"own key, kid {kid!r:.40}", _sign(header, self.claims(), self._own)
        yield "no kid, and several keys", f"{encode({'alg': 'RS256'})}.{body}.{signature}"

    def _with_claims(self) -> Iterator[tuple[str, str]]:
        now = int(time.time())
        wrongs: list[dict[str, Any]] = [
            *({"iss": "https://evil.example"}, {"iss": ISSUER + "/"}, {"iss": None}, {"iss": [ISSUER]}),
            *({"aud": "other"}, {"aud": ["bid", "bide2"]}, {"aud": None}, {"aud": []}, {"aud": "bide "}),
            *({"exp": now - 60}, {"exp": None}, {"exp": "9999999999"}, {"exp": -1}, {"nbf": now + 600}),
            *({"sub": None}, {"sub": ""}, {"sub": "a\nb"}, {"sub": "x" * 300}),
            *({"tenant": None}, {"tenant": "a/b"}, {"tenant": ["a"]}, {"tenant": ""}, {"tenant": "a\n"}),
            {"scope": 7},
        ]
        for wrong in wrongs:
            yield str(wrong)[:60], self.token(**wrong)
