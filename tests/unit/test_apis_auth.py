"""Credentials: their source, the hosts that get them, and that no output shows them."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from bide.client.apis import Answer, BadPoll, Call, Denied, Ref, load
from bide.client.apis.api import Api
from bide.client.apis.auth import Credential
from bide.client.apis.loader import read
from bide.core.errors import SetupError

FORM = 'name = "x"\nurl = "https://api.example.com/v1"\n[ask]\npath = "/jobs/{id}"\n[read]\nstatus = "s"\ndone = ["ok"]\n'
SECRET = "s3cr3t-value"


def api(auth: str, folder: Path | None = None) -> Api:
    return read(f"{FORM}[auth]\n{auth}\n", "x.toml", folder=folder)


def headers(
    auth: str, key: str | None = None, folder: Path | None = None, **environ: str
) -> dict[str, str]:
    return api(auth, folder).credential(key, environ=environ).headers


def test_the_kinds() -> None:
    env = 'secret.env = ["A", "B"]'
    assert headers(f'kind = "bearer"\n{env}', B=SECRET) == {"Authorization": f"Bearer {SECRET}"}
    assert headers(f'kind = "header"\nheader = "x-api-key"\n{env}', A=SECRET) == {"x-api-key": SECRET}
    assert headers(f'kind = "header"\nprefix = "Key "\n{env}', A=SECRET) == {
        "Authorization": f"Key {SECRET}"
    }
    pair = base64.b64encode(b"me:pw").decode()
    assert headers(f'kind = "basic"\nuser = "me"\n{env}', A="pw") == {"Authorization": f"Basic {pair}"}
    assert headers(f'kind = "basic"\nuser.env = "U"\n{env}', A="pw", U="me") == {
        "Authorization": f"Basic {pair}"
    }
    assert headers(f'kind = "basic"\n{env}', A="me:pw") == {"Authorization": f"Basic {pair}"}
    assert headers('kind = "none"') == {}
    assert headers('kind = "none"', key="k") == {"Authorization": "Bearer k"}


def test_a_given_key_outranks_the_rest() -> None:
    assert headers('kind = "bearer"\nsecret.env = "A"', key="given", A=SECRET) == {
        "Authorization": "Bearer given"
    }


@pytest.mark.parametrize(
    ("auth", "key", "source"),
    [
        ('kind = "bearer"\nsecret.env = "A"', None, "The credential is from A."),
        ('kind = "bearer"\nsecret.env = "A"', "k", "The credential is the one that you passed."),
        ('kind = "none"', None, ""),
        ('kind = "none"\nheaders.X-Key.env = "A"', None, "The credential is from A."),
        (
            'kind = "none"\nheaders.X-Key.env = "A"\nheaders.X-Team.env = "B"',
            None,
            "The credential is from A and B.",
        ),
        (
            'kind = "bearer"\nsecret.env = "A"\nheaders.X-Team.env = "B"',
            "k",
            "The credential is the one that you passed, and from B.",
        ),
        ('kind = "basic"\nuser.env = "B"\nsecret.env = "A"', None, "The credential is from B and A."),
        ('kind = "basic"\nuser.env = "NOT"\nsecret.env = "A"', None, "The credential is from A."),
        ('kind = "basic"\nuser = "me"\nsecret.env = "A"', None, "The credential is from A."),
        (
            'kind = "bearer"\nsecret.env = "NOT"\nheaders.X-Team.env = "B"\noptional = true',
            None,
            "No credential was sent: set NOT, or give a key (--key, or `key` in Python).",
        ),
        (
            'kind = "oauth2"\ntoken_url = "https://x/t"\nclient_id.env = "B"\nsecret.env = "A"',
            None,
            "The credential is from B and A.",
        ),
    ],
)
def test_the_sources_are_named(auth: str, key: str | None, source: str) -> None:
    assert api(auth).credential(key, environ={"A": SECRET, "B": "team"}).source() == source


def test_requests_are_signed_while_a_credential_is_renewed() -> None:
    class Environment(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            seen.append(dict(credential.headers) if credential is not None else {})
            return super().get(name, default)

    seen: list[dict[str, str]] = []
    credential: Credential | None = None
    environ = Environment(A=SECRET, B="team")
    auth = 'kind = "bearer"\nsecret.env = "A"\nheaders.X-Team.env = "B"'
    credential = api(auth).credential(environ=environ)
    seen.clear()
    environ["A"] = "another"
    assert credential.renew() and not credential.fixed
    assert seen and all(one == {"Authorization": f"Bearer {SECRET}", "X-Team": "team"} for one in seen)
    assert credential.headers == {"Authorization": "Bearer another", "X-Team": "team"}
    assert api(auth.partition("\nheaders")[0]).credential(SECRET, environ=environ).fixed


def test_from_a_file_and_from_a_command(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    auth = 'kind = "bearer"\nsecret.file = "key"'
    assert headers(auth, folder=tmp_path) == {"Authorization": f"Bearer {SECRET}"}
    command = [sys.executable, "-c", f"print('{SECRET}')"]
    assert headers(f'kind = "bearer"\nsecret.command = {command}') == {
        "Authorization": f"Bearer {SECRET}"
    }
    credential = api(auth, tmp_path).credential(environ={})
    assert credential.renew() is False
    (tmp_path / "key").write_text("another")
    assert credential.renew() is True
    assert credential.headers == {"Authorization": "Bearer another"}


def test_a_missing_credential_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no credential: set A or B, or give a key"):
        headers('kind = "bearer"\nsecret.env = ["A", "B"]')
    with pytest.raises(SetupError, match=r"cannot be read from .*none: No such file"):
        headers('kind = "bearer"\nsecret.file = "none"', folder=tmp_path)
    failing = [sys.executable, "-c", f"import sys; sys.exit('{SECRET}')"]
    with pytest.raises(SetupError, match="exit code 1") as caught:
        headers(f'kind = "bearer"\nsecret.command = {failing}')
    assert SECRET not in str(caught.value)
    with pytest.raises(SetupError, match="`/no/such` for the credential failed"):
        headers('kind = "bearer"\nsecret.command = ["/no/such"]')
    with pytest.raises(SetupError, match="printable ASCII") as caught:
        headers('kind = "bearer"\nsecret.env = "A"', A=f"{SECRET}\nX-Evil: 1")
    assert SECRET not in str(caught.value)


def test_a_credential_is_not_shown_and_not_stored() -> None:
    credential = api('kind = "bearer"\nsecret.env = "A"').credential(environ={"A": SECRET})
    print_ = credential.fingerprint(b"salt")
    assert SECRET not in f"{credential!r} {credential} {print_}"
    assert print_ == credential.fingerprint(b"salt")
    assert print_ != credential.fingerprint(b"other")
    other = api('kind = "bearer"\nsecret.env = "A"').credential(environ={"A": SECRET + "1"})
    assert print_ != other.fingerprint(b"salt")
    one = load("sync.so")
    call = one.submissions.submit("", {"a": 1}, "k")
    assert (
        msgspec.json.encode(one.submissions.accepted(call, Answer(201, {}, b'{"id": "g1"}'))).replace(
            b'{"id":"g1"}', b""
        )
        == b""
    )
    with pytest.raises(SetupError) as caught:
        one.references.ref("https://user:pw@api.sync.so/v2/generate/g1")
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("https://api.example.com/x", True),
        ("https://API.example.com:443/x", True),
        ("https://api.example.com.evil.org/x", False),
        ("https://api.example.com@evil.org/x", False),
        ("https://evil.org/https://api.example.com/", False),
        ("http://api.example.com/x", False),
        ("https://api.example.com:8443/x", False),
        ("https://files.cdn.example.com/x", True),
        ("http://files.cdn.example.com/x", False),
        ("https://cdn.example.com.evil.org/x", False),
        ("https://other.example.com/x", False),
    ],
)
def test_the_credential_goes_only_to_whom_it_is_meant_for(url: str, meant: bool) -> None:
    one = api('kind = "bearer"\nsecret.env = "A"\nhosts = ["*.cdn.example.com"]')
    credential = one.credential(environ={"A": SECRET})
    for call in (one.calls.fetch(url), one.calls.ask(Ref("a", url))):
        assert call.authorized is meant
        assert (SECRET in str(one.signed(call, credential, 0.0).headers)) is meant


def test_an_id_cannot_lead_elsewhere() -> None:
    one = api('kind = "none"')
    for id in ("..", ".", "../admin", "a/../b", "a\\..\\b", "", "a\nb", "x" * 3000):
        with pytest.raises(SetupError):
            one.references.ref(id)
    assert (
        one.calls.ask(one.references.ref("a?b=c&d")).url
        == "https://api.example.com/v1/jobs/a%3Fb%3Dc%26d"
    )


# --- OAuth2


CLIENT = 'kind = "oauth2"\ntoken_url = "https://login.example.com/token"\nclient_id = "me"\nsecret.env = "A"\n'


def oauth(extra: str = "", **environ: str) -> Credential:
    return api(CLIENT + extra).credential(environ={"A": SECRET, **environ})


def test_a_token_by_client_credentials() -> None:
    credential = oauth('scope = "jobs"\nextra = { audience = "api" }')
    assert credential.stale(0.0)
    call = credential.token_call()
    assert call is not None
    assert (call.method, call.url) == ("POST", "https://login.example.com/token")
    assert call.body == (
        f"grant_type=client_credentials&audience=api&scope=jobs&client_id=me&client_secret={SECRET}".encode()
    )
    assert SECRET not in repr(call)
    before = credential.fingerprint(b"s")
    credential.take(Answer(200, {}, b'{"access_token": "t1", "expires_in": 3600}'), now=100.0)
    assert credential.headers == {"Authorization": "Bearer t1"}
    assert not credential.stale(3000.0)
    assert credential.stale(100.0 + 3600 - 60)
    assert credential.fingerprint(b"s") == before  # the token changes, whose it is does not
    assert "t1" not in repr(credential)


def test_a_token_that_lives_shortly_and_one_that_is_denied_half_way() -> None:
    credential = oauth()
    credential.take(Answer(200, {}, b'{"access_token": "t1", "expires_in": 20}'), now=0.0)
    assert not credential.stale(9.0)
    assert credential.stale(10.0)
    assert credential.renew() is True  # the API answered 401: fetch another
    assert credential.stale(1.0)
    assert credential.headers == {}


def test_the_client_in_a_header() -> None:
    call = oauth('client_in = "header"').token_call()
    assert call is not None
    assert call.headers["Authorization"] == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert SECRET.encode() not in call.body


def test_a_refresh_token_that_rotates() -> None:
    credential = oauth('grant = "refresh_token"\nrefresh_token.env = "R"', R="r1")
    call = credential.token_call()
    assert call is not None
    assert b"grant_type=refresh_token&refresh_token=r1" in call.body
    credential.take(Answer(200, {}, b'{"access_token": "t", "refresh_token": "r2"}'), now=0.0)
    credential.renew()
    call = credential.token_call()
    assert call is not None
    assert b"refresh_token=r2" in call.body
    with pytest.raises(SetupError, match="no refresh token: set R"):
        oauth('grant = "refresh_token"\nrefresh_token.env = "R"')


def test_a_token_that_is_refused() -> None:
    credential = oauth()
    with pytest.raises(Denied, match="invalid_client"):
        credential.take(Answer(401, {}, b'{"error": "invalid_client"}'), now=0.0)
    for status, body in ((503, b"<html>"), (200, b"{}"), (200, b"")):
        with pytest.raises(BadPoll) as caught:
            credential.take(Answer(status, {}, body), now=0.0)
        assert not isinstance(caught.value, Denied)
    with pytest.raises(SetupError, match="no client id or secret"):
        api(CLIENT).credential(environ={})


# --- SigV4


def test_aws_without_botocore_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    one = load("aws-transcribe")
    with pytest.raises(SetupError, match=r"needs botocore\. Run: pip install botocore"):
        one.signed(one.calls.ask(Ref("a")), None, 0.0)


def test_aws_requests_are_signed_by_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[tuple[Any, ...]] = []

    class Signer:
        def __init__(self, *about: Any) -> None:
            self.about = about

        def add_auth(self, request: Any) -> None:
            signed.append((*self.about, request.data))
            request.headers["Authorization"] = "AWS4-HMAC-SHA256 …"

    credentials = SimpleNamespace(get_frozen_credentials=lambda: "frozen")
    session = SimpleNamespace(get_credentials=lambda: credentials, get_config_variable=lambda name: None)
    fakes: dict[str, dict[str, Any]] = {
        "botocore.session": {"get_session": lambda: session},
        "botocore.awsrequest": {"AWSRequest": SimpleNamespace},
        "botocore.auth": {"SigV4Auth": Signer},
    }
    for name, contents in fakes.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    one = load("aws-transcribe", "https://transcribe.eu-central-1.amazonaws.com")
    call = one.signed(one.calls.ask(Ref("a")), None, 0.0)
    assert call.headers["Authorization"].startswith("AWS4")
    assert signed == [("frozen", "transcribe", "eu-central-1", b'{"TranscriptionJobName":"a"}')]
    assert one.signed(Call("GET", "https://elsewhere", authorized=False), None, 0.0).headers == {}
