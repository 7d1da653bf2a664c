"""`bide serve`: runs the service and its child processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from bide.cli import options, settings
from bide.cli.logs import LogFormat, announce, log_to_stderr
from bide.core.errors import SetupError
from bide.server.config import is_loopback


def check_exposure(host: str, auth: str, insecure: bool, oidc: str | None = None) -> str:
    """Describe who may use a service with these settings. Raise SetupError if everyone on the network may."""
    if oidc is not None:
        return f"callers need a token of {oidc} or an API key"
    if auth != "none":
        return "callers need an API key"
    if is_loopback(host):
        return "no authentication: every program on this machine may use it"
    if insecure:
        return "no authentication: everyone who reaches it may use it (--insecure)"
    raise SetupError(
        f"--host {host} would let everyone on the network submit, read and delete jobs, because the service has no "
        "authentication. Give --auth keys, and create a key with `bide keys create`; or put a proxy that authenticates "
        "in front of the service and give --insecure."
    )


@click.command()
@click.argument("target", metavar="MODULE:app")
@click.option(
    "--host",
    envvar="BIDE_HOST",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on.",
)
@click.option(
    "--port",
    envvar="BIDE_PORT",
    default=8642,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 for any free one.",
)
@options.data()
@options.address("store", options.STORE_HELP)
@options.connections(8)
@options.address(
    "progress",
    "Where replicas share the progress of running jobs: redis://host:6379/0; by default the broker if it is a "
    "Redis, else the database of the store.",
)
@click.option(
    "--engine",
    envvar="BIDE_ENGINE",
    default="embedded",
    show_default=True,
    type=click.Choice(["embedded", "celery"]),
    help="Where jobs run: in child processes of this service, or in `bide worker` on any machine.",
)
@options.address(
    "broker", "The broker for --engine celery: redis://host:6379/0 or amqp://user@host:5672//."
)
@options.address(
    "blobs",
    "Where files are stored: s3://bucket/prefix?endpoint=…&region=…; by default in the data folder.",
)
@click.option(
    "--workers",
    envvar="BIDE_WORKERS",
    type=click.IntRange(1),
    help="Child processes that run handlers; by default one per core, and at least one per queue.",
)
@options.lease("Seconds without a heartbeat after which a child loses its job.")
@options.drain()
@click.option(
    "--max-upload",
    envvar="BIDE_MAX_UPLOAD",
    default=64 * 1024**3,
    show_default=True,
    type=click.IntRange(0),
    help="Maximum size of one upload in bytes.",
)
@click.option(
    "--upload-quota",
    envvar="BIDE_UPLOAD_QUOTA",
    type=click.IntRange(0),
    help="Maximum size of all uploads together in bytes; by default what fits on the disk.",
)
@click.option(
    "--upload-lifetime",
    envvar="BIDE_UPLOAD_LIFETIME",
    default=86400.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds after its last byte for which an upload is kept. An upload that a job uses is kept as long as the job.",
)
@click.option(
    "--input-lifetime",
    envvar="BIDE_INPUT_LIFETIME",
    type=click.FloatRange(0),
    help="Seconds for which an upload is kept after the end of the last job that uses it; by default as long as that job.",
)
@click.option(
    "--origin",
    "origins",
    envvar="BIDE_ORIGIN",
    multiple=True,
    metavar="ORIGIN",
    help="An origin whose pages may use the service in a browser, such as https://example.org. May be repeated.",
)
@options.names(
    "--trusted-hosts",
    "Host names that requests may use, besides localhost, 127.0.0.1 and [::1] on loopback. Their pages may use the "
    "service in a browser. Without this option, any name is accepted on an address other than loopback.",
    envvar="BIDE_TRUSTED_HOSTS",
)
@click.option(
    "--root-path",
    envvar="BIDE_ROOT_PATH",
    default="",
    metavar="PATH",
    help="A path that a proxy removes from URLs, such as /bide. Links in responses begin with it.",
)
@options.names(
    "--trusted-proxies",
    "Addresses or networks of proxies, such as 127.0.0.1 or 10.0.0.0/8. The service builds links from their headers "
    "X-Forwarded-Prefix, X-Forwarded-Proto and X-Forwarded-Host, and ignores those of other callers.",
    envvar="BIDE_TRUSTED_PROXIES",
)
@click.option(
    "--ui",
    envvar="BIDE_UI",
    default="on",
    show_default=True,
    type=click.Choice(["on", "read-only", "off"]),
    help="The dashboard at /: with all actions, without actions, or none.",
)
@click.option(
    "--allow-unknown-queues",
    envvar="BIDE_ALLOW_UNKNOWN_QUEUES",
    is_flag=True,
    help="Accept jobs for queues that neither the app nor a running worker has.",
)
@click.option(
    "--webhooks-allow-private",
    envvar="BIDE_WEBHOOKS_ALLOW_PRIVATE",
    is_flag=True,
    help="Allow webhooks with loopback, private and link-local addresses.",
)
@click.option(
    "--auth",
    envvar="BIDE_AUTH",
    default="none",
    show_default=True,
    type=click.Choice(["none", "keys"]),
    help="Who may use the service: everyone who reaches it, or callers with an API key (`bide keys create`).",
)
@click.option(
    "--oidc",
    envvar="BIDE_OIDC",
    metavar="ISSUER",
    help="Accept also the tokens (JWT) of this OpenID Connect issuer, such as https://login.example.org.",
)
@click.option(
    "--audience",
    envvar="BIDE_AUDIENCE",
    metavar="NAME",
    help="The name of this service in the tokens of --oidc.",
)
@click.option(
    "--jwks",
    envvar="BIDE_JWKS",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the keys of the issuer; by default the service asks the issuer for them.",
)
@click.option(
    "--oidc-tenant-claim",
    envvar="BIDE_OIDC_TENANT_CLAIM",
    default="tenant",
    show_default=True,
    metavar="CLAIM",
    help="The claim of a token that names the tenant. With `sub`, each user is a tenant.",
)
@options.names(
    "--oidc-algorithms",
    "The algorithms of signatures that the service accepts; by default RS256, ES256 and EdDSA.",
    envvar="BIDE_OIDC_ALGORITHMS",
)
@click.option(
    "--oidc-scope-claim",
    envvar="BIDE_OIDC_SCOPE_CLAIM",
    default="scope",
    show_default=True,
    metavar="CLAIM",
    help="The claim of a token with the scopes `read`, `submit`, `control` and `admin`.",
)
@click.option(
    "--oidc-client-id",
    envvar="BIDE_OIDC_CLIENT_ID",
    metavar="ID",
    help="The name of this service as a client of --oidc. Users then sign in to the dashboard at the issuer.",
)
@click.option(
    "--oidc-client-secret-file",
    envvar="BIDE_OIDC_CLIENT_SECRET_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the secret of this client, if it has one; or set BIDE_OIDC_CLIENT_SECRET.",
)
@options.names(
    "--oidc-scopes",
    "What the service asks the issuer for when a user signs in; by default openid.",
    envvar="BIDE_OIDC_SCOPES",
)
@click.option(
    "--session-lifetime",
    envvar="BIDE_SESSION_LIFETIME",
    type=click.FloatRange(1),
    help="Seconds until a user of the dashboard must sign in again; by default 7 days with a key, 12 hours with --oidc.",
)
@click.option(
    "--audit-retention",
    envvar="BIDE_AUDIT_RETENTION",
    default=90 * 86400.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds for which the audit log of a service with authentication is kept; 0: there is none.",
)
@click.option(
    "--insecure",
    envvar="BIDE_INSECURE",
    is_flag=True,
    help="Allow an address other than loopback without authentication.",
)
@click.option(
    "--target-wait",
    envvar="BIDE_TARGET_WAIT",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds that a job may wait before bide_workers_needed in /metrics asks for more workers.",
)
@options.traces
@options.log_level()
@options.log_format()
def serve(
    target: str,
    host: str,
    port: int,
    data: Path,
    store: str | None,
    connections: int,
    progress: str | None,
    engine: str,
    broker: str | None,
    blobs: str | None,
    workers: int | None,
    lease: float,
    drain: float,
    max_upload: int,
    upload_quota: int | None,
    upload_lifetime: float,
    input_lifetime: float | None,
    origins: tuple[str, ...],
    trusted_hosts: tuple[str, ...],
    root_path: str,
    trusted_proxies: tuple[str, ...],
    ui: str,
    allow_unknown_queues: bool,
    webhooks_allow_private: bool,
    auth: str,
    oidc: str | None,
    audience: str | None,
    jwks: Path | None,
    oidc_tenant_claim: str,
    oidc_algorithms: tuple[str, ...],
    oidc_scope_claim: str,
    oidc_client_id: str | None,
    oidc_client_secret_file: Path | None,
    oidc_scopes: tuple[str, ...],
    session_lifetime: float | None,
    audit_retention: float,
    insecure: bool,
    target_wait: float,
    otlp: str | None,
    trace_sample: float,
    log_level: str,
    log_format: LogFormat,
) -> None:
    """Run the service of MODULE:app.

    One process has the HTTP server and the store. With --engine embedded, its child processes run the handlers.

    \b
    Examples:
      bide serve tasks:app
      bide serve tasks:app --port 9000 --data /var/lib/bide --workers 4
      bide serve tasks:app --store postgresql://bide@db.example.org/jobs
      bide serve tasks:app --store postgresql://… --engine celery --broker redis://queue.example.org/0
      bide serve tasks:app --host 0.0.0.0 --auth keys
      bide serve tasks:app --host 0.0.0.0 --oidc https://login.example.org --audience bide
      bide serve tasks:app --blobs 's3://files/bide?region=eu-central-1'
    """
    access = check_exposure(host, auth, insecure, oidc)
    if oidc is None and (audience or jwks or oidc_client_id):
        raise click.UsageError("--audience, --jwks and --oidc-client-id need --oidc")
    # Not for the child processes, which inherit the environment.
    client_secret = os.environ.pop("BIDE_OIDC_CLIENT_SECRET", None)
    if oidc_client_secret_file is not None:
        client_secret = oidc_client_secret_file.read_text(encoding="utf-8").strip()
    try:
        from bide.server.config import (
            AuthConfig,
            BlobsConfig,
            Config,
            EngineConfig,
            HttpConfig,
            OidcConfig,
            StoreConfig,
            TraceConfig,
            UploadConfig,
            WebhookConfig,
            WorkerConfig,
        )
        from bide.server.worker.app_location import parse
        from bide.service import backends
        from bide.service.data_folder import DataFolder
        from bide.service.serve import serve as run
    except ModuleNotFoundError as error:
        raise SetupError.not_installed(f"{error.name} is not installed", "server") from None
    log_to_stderr(log_format, log_level)
    location = parse(target)
    issuer = None
    if oidc is not None:
        issuer = OidcConfig(
            oidc,
            audience or "",
            jwks,
            oidc_tenant_claim,
            scope_claim=oidc_scope_claim,
            client_id=oidc_client_id,
            client_secret=client_secret or None,
        )
        if oidc_algorithms:
            issuer = replace(issuer, algorithms=oidc_algorithms)
        if oidc_scopes:
            issuer = replace(issuer, request_scopes=oidc_scopes)
    kept = f"data in {data}"
    if store:
        database = backends.make_database(StoreConfig(url=store), DataFolder(data))
        kept += f", store {database.shown}"
    if engine == "celery":
        kept += f", broker {backends.make_broker(EngineConfig(engine, broker)).shown}"
    config = Config(
        data=data,
        store=StoreConfig(url=store, connections=connections),
        progress=progress,
        engine=EngineConfig(engine, broker, allow_unknown_queues),
        blobs=BlobsConfig(url=blobs),
        http=HttpConfig(
            host=host,
            port=port,
            trusted_hosts=trusted_hosts,
            root_path=root_path,
            trusted_proxies=trusted_proxies,
            origins=origins,
            ui=ui,
        ),
        worker=WorkerConfig(workers=workers, lease=lease, drain=drain),
        uploads=UploadConfig(max_upload, upload_quota, upload_lifetime, input_lifetime),
        webhooks=WebhookConfig(allow_private=webhooks_allow_private),
        limits=settings.limits(),
        admission=settings.admission(),
        auth=AuthConfig(auth, audit_retention, issuer, session_lifetime),
        target_wait=target_wait,
        traces=TraceConfig(otlp, trace_sample),
    )
    run(
        location.load(),
        location,
        config,
        listening=lambda url: announce(f"bide serves {target} at {url}, {kept}; {access}", log_format),
    )
