"""The kinds of jobs of an app: their handlers, options and input schemas.

Importing a module with handlers loads neither the server nor pydantic; schemas are built on first use.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from bide.core.errors import InvalidInput, JobError, SetupError, UnknownKind
from bide.core.jobs.breaker import BreakerSettings
from bide.core.jobs.input_paths import HIDDEN, masked, search_terms, secret_texts, values_at
from bide.core.jobs.retry import MOST_LOSSES, Policy
from bide.core.jobs.retry_budget import RetryBudget
from bide.core.wire.http import DEDUPE_MODES, Dedupe
from bide.core.wire.query import MAX_PARTS
from bide.server.upload_record import owner_of, upload_of

if typing.TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

DEFAULT_QUEUE = "default"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
RESERVED = "bide."  # the kinds that begin with it are the service's own
BULK = "bide.bulk"
SERVICE_KINDS = frozenset({BULK})
SERVICE_QUEUE = "bide"  # the queue of the service's own kinds
MAX_KEY = 200  # characters of the values in a concurrency key; longer ones are hashed
MOST_UNIQUE = 86400.0  # seconds; keys are kept for as long after the end of their job
_INPUT_PATH = re.compile(rf"input(\.[^.\s\":\\]+){{1,{MAX_PARTS}}}")
_HIDDEN_INPUT = b'"%s"' % HIDDEN.encode()
TYPE_PATTERN = re.compile(r"[\w.+-]{1,100}/(\*|[\w.+-]{1,100})", re.ASCII)
Handler = TypeVar("Handler", bound=Callable[..., Any])
FailurePredicate = Callable[[Exception], bool]


class FileRef(msgspec.Struct, frozen=True):
    """A reference to a file in a job's input: an output of another job, or an upload (without a name)."""

    job: str  # the owner: a job or an upload (see `upload_record`)
    name: str = ""

    @property
    def upload(self) -> str | None:
        return upload_of(self.job)

    def written(self) -> dict[str, str]:
        """The JSON form."""
        return {"job": self.job, "name": self.name} if self.upload is None else {"upload": self.upload}


class File(msgspec.Struct, frozen=True):
    """A file that a handler receives or creates. In JSON: `{"job": ID, "name": NAME}` for an output of that job, or
    `{"upload": ID}`.
    """

    ref: FileRef
    place: Path | Callable[[], Path] = Path()
    content_type: str = "application/octet-stream"
    size: int = 0
    sha256: str = ""

    @property
    def name(self) -> str:
        return self.ref.name

    @property
    def path(self) -> Path:
        """The local path. A file in remote storage is downloaded on first access."""
        return self.place() if callable(self.place) else self.place

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        text = core_schema.str_schema(min_length=1, max_length=255)
        field = core_schema.typed_dict_field(text)
        forms: dict[Any, Any] = {
            form: core_schema.typed_dict_schema(fields, extra_behavior="forbid")
            for form, fields in (
                ("an output", {"job": field, "name": field}),
                ("an upload", {"upload": field}),
            )
        }

        def resolve(value: dict[str, str], info: Any) -> File:
            owner = owner_of(value["upload"]) if "upload" in value else value["job"]
            ref = FileRef(owner, value.get("name", ""))
            return typing.cast(Resolve, info.context)(ref) if info.context else File(ref)

        return core_schema.with_info_after_validator_function(
            resolve,
            core_schema.tagged_union_schema(forms, discriminator=_form),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda file: file.ref.written()
            ),
        )


def _form(value: Any) -> str:
    return "an upload" if isinstance(value, dict) and "upload" in value else "an output"


class Accepts:
    """The content types that a `File` parameter accepts: `Annotated[File, Accepts("video/*", "image/gif")]`.

    The service detects the type from the first bytes of the file. If they are text, the extension of the name or the type
    that the sender declares says which kind of text it is. Otherwise the declared type counts only if the first bytes show
    nothing and its files have no signature.
    """

    def __init__(self, *types: str) -> None:
        for name in types:
            if not TYPE_PATTERN.fullmatch(name):
                raise SetupError(f"Accepts({name!r}): write a content type such as video/mp4 or video/*")
        self.types = types

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def collect(file: File | None, info: Any) -> File | None:
            if file is not None and isinstance(info.context, TypeCollector):
                info.context.accepts(file.ref, self.types)
            return file

        return core_schema.with_info_after_validator_function(collect, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(schema), "description": f"A file of type {' or '.join(self.types)}."}


Resolve = Callable[[FileRef], File]


@typing.runtime_checkable
class TypeCollector(typing.Protocol):
    """A `Resolve` that also collects the accepted types of each file."""

    def accepts(self, ref: FileRef, types: tuple[str, ...]) -> None: ...


def is_reserved(kind: str) -> bool:
    """Whether the kind is one of the service itself, which an app can neither declare nor submit."""
    return kind.startswith(RESERVED)


class Options(TypedDict, total=False):
    """The options of `@app.job(...)`, with their defaults."""

    name: str  # the kind; default: the function's name
    queue: str  # "default"
    retries: int  # 0; how often a failed handler is retried
    backoff: float  # 2.0; seconds, doubled after each failure, with full jitter
    backoff_cap: float  # 600.0
    # 0.2; the most retries as a part of first attempts, over all workers. Others wait. None: no limit
    retry_budget: float | None
    retry_minimum: float  # 60.0; retries per minute that `retry_budget` always allows
    at_most_once: bool  # False; True: never run again after its worker was lost
    max_losses: int  # 3; after this many lost workers in a row, without a new step or more progress, the job is POISONED
    timeout: float | None  # seconds; a longer attempt ends as TIMEOUT
    stall: float | None  # seconds; an attempt without progress for this long ends as STALLED
    steps: Mapping[str, float]  # step names and their weights in the progress
    retention: float | None  # 7 days; seconds for which a finished job is kept, None for ever
    require_key: bool  # False; True: reject submissions without an Idempotency-Key
    # None; "content": the same files and input are the same job; "content+name": the names of the files count, too
    dedupe: Dedupe | None
    concurrency: int | None  # None; how many of its jobs run at once, over all workers
    concurrency_key: str | None  # None; a path into the input: the limit is for each value and tenant
    # None; "input", or paths into the input: a submission with the values of a job that waits or runs returns that job
    unique: str | Sequence[str] | None
    unique_for: float  # 0.0; seconds after the creation of a job for which its values stay unique, unless it fails
    remove_input: bool  # False; True: remove the uploads of the input when the job is DONE
    search: Sequence[str]  # (); paths into the input, such as "input.video.id", by which lists find jobs
    secret: Sequence[str]  # (); paths into the input whose values the service never shows


class Kind:
    """One kind of job."""

    def __init__(self, fn: Callable[..., Any], options: Options) -> None:
        self.fn = fn
        self.name = options.get("name", fn.__name__)
        self.queue = options.get("queue", DEFAULT_QUEUE)
        self.timeout = options.get("timeout")
        self.stall = options.get("stall")
        self.steps = dict(options.get("steps", {}))
        self.require_key = options.get("require_key", False)
        self.dedupe = options.get("dedupe")
        self.concurrency = options.get("concurrency")
        self.concurrency_path = options.get("concurrency_key")
        unique = options.get("unique") or ()
        self.unique = (unique,) if isinstance(unique, str) else tuple(unique)
        self.unique_for = options.get("unique_for", 0.0)
        self.search = tuple(options.get("search", ()))
        self.secret = tuple(options.get("secret", ()))
        self.policy = Policy(
            retries=options.get("retries", 0),
            backoff=options.get("backoff", 2.0),
            backoff_cap=options.get("backoff_cap", 600.0),
            at_most_once=options.get("at_most_once", False),
            max_losses=options.get("max_losses", 3),
            remove_input=options.get("remove_input", False),
            budget=_budget(options),
        )
        self.retention = options.get("retention", 7 * 86400.0)
        self.is_async = inspect.iscoroutinefunction(fn)
        self.doc = inspect.getdoc(fn) or ""
        self._check(options)

    def _check(self, options: Options) -> None:
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise SetupError(
                f"@app.job on {self.fn.__qualname__}: unknown option {', '.join(sorted(unknown))}; "
                f"the options are {', '.join(Options.__annotations__)}"
            )
        for what, name in (("kind", self.name), ("queue", self.queue)):
            if not NAME.fullmatch(name):
                raise SetupError(
                    f"{what} {name!r} is not allowed: use at most 100 letters, digits, '_', '.' and '-', and begin with "
                    "a letter or digit"
                )
        if is_reserved(self.name):
            raise SetupError(
                f"kind {self.name!r} is not allowed: names that begin with {RESERVED!r} are reserved for the service"
            )
        if self.policy.retries < 0:
            raise SetupError(f"kind {self.name}: retries={self.policy.retries} is less than 0")
        budget = self.policy.budget
        if budget is not None and not (0 <= budget.ratio < math.inf and 1 <= budget.minimum < math.inf):
            raise SetupError(
                f"kind {self.name}: retry_budget={budget.ratio:g} must not be less than 0, and "
                f"retry_minimum={budget.minimum:g} not less than 1"
            )
        if not 1 <= self.policy.max_losses <= MOST_LOSSES:
            raise SetupError(
                f"kind {self.name}: max_losses={self.policy.max_losses} is not between 1 and {MOST_LOSSES}"
            )
        if self.dedupe not in (None, *DEDUPE_MODES):
            modes = " or ".join(map(repr, DEDUPE_MODES))
            raise SetupError(f"kind {self.name}: dedupe={self.dedupe!r} is unknown: use {modes}")
        self._check_paths()
        self._check_sharing()
        if any(weight < 0 for weight in self.steps.values()):
            raise SetupError(f"kind {self.name}: a step's weight is less than 0")
        if inspect.isasyncgenfunction(self.fn) or inspect.isgeneratorfunction(self.fn):
            raise SetupError(f"kind {self.name}: a handler must return its result, not yield it")
        for p in self._signature.parameters.values():
            if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                raise SetupError(
                    f"kind {self.name}: parameter {p} cannot be part of a schema; use named parameters"
                )

    def _check_sharing(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise SetupError(f"kind {self.name}: concurrency={self.concurrency} is less than 1")
        if self.concurrency is None and self.concurrency_path is not None:
            raise SetupError(f"kind {self.name}: concurrency_key needs concurrency=N")
        if not 0 <= self.unique_for <= MOST_UNIQUE or (self.unique_for and not self.unique):
            raise SetupError(
                f"kind {self.name}: unique_for={self.unique_for!r} needs unique=…, and is at most {MOST_UNIQUE:.0f} seconds"
            )

    def _check_paths(self) -> None:
        names = list(self._signature.parameters)[self.takes_context :]
        unique = [path for path in self.unique if path != "input"]
        keys = [self.concurrency_path] if self.concurrency_path is not None else []
        for option, paths in (
            ("search", self.search),
            ("secret", self.secret),
            ("unique", unique),
            ("concurrency_key", keys),
        ):
            for path in paths:
                if not _INPUT_PATH.fullmatch(path):
                    raise SetupError(
                        f"kind {self.name}: {option}={path!r} is not a path into the input: write input.NAME, or "
                        f"input.NAME.NAME with up to {MAX_PARTS} parts"
                    )
                if path.split(".")[1] not in names:
                    raise SetupError(
                        f"kind {self.name}: {option}={path!r} begins with no parameter of the handler; "
                        f"it has {', '.join(names) or 'none'}"
                    )
        for path in self.search:
            if any(f"{path}.".startswith(f"{hidden}.") for hidden in self.secret):
                raise SetupError(
                    f"kind {self.name}: {path!r} cannot be both search and secret: a search shows its value"
                )

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.fn)

    @cached_property
    def takes_context(self) -> bool:
        first = next(iter(self._signature.parameters.values()), None)
        return first is not None and (first.name == "ctx" or _name(first.annotation) == "Context")

    @cached_property
    def model(self) -> type[BaseModel]:
        """The input as a pydantic model. Fields have aliases, because a parameter may be called `json` or `copy`."""
        from pydantic import ConfigDict, Field, create_model

        try:
            hints = typing.get_type_hints(self.fn, include_extras=True)
        except NameError as error:
            raise SetupError(f"kind {self.name}: an annotation has an unknown name: {error}") from None
        parameters = list(self._signature.parameters.values())[self.takes_context :]
        fields: dict[str, Any] = {
            f"p_{p.name}": (
                hints.get(p.name, Any),
                Field(... if p.default is p.empty else p.default, alias=p.name),
            )
            for p in parameters
        }
        config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=False)
        try:
            return create_model(self.name, __config__=config, **fields)
        except Exception as error:
            raise SetupError(
                f"kind {self.name}: cannot build a schema of its parameters: {error}"
            ) from error

    @cached_property
    def file_parameters(self) -> dict[str, bool]:
        """The names of parameters that are files, and whether they take several."""
        found = {
            field.alias or name: _takes_file(field.annotation)
            for name, field in self.model.model_fields.items()
        }
        return {name: several for name, several in found.items() if several is not None}

    @cached_property
    def restricts_types(self) -> bool:
        """Whether a file parameter accepts only some types."""
        return any(
            _restricts_types(part)
            for field in self.model.model_fields.values()
            for part in (field.annotation, *field.metadata)
        )

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The input's JSON Schema (2020-12), self-contained."""
        schema = self.model.model_json_schema(by_alias=True)
        schema["title"] = self.name
        return schema

    def concurrency_key(self, raw: bytes, tenant: str) -> str | None:
        """The key under which a job with this input counts; None if the kind has no limit."""
        if self.concurrency is None:
            return None
        if self.concurrency_path is None:
            return self.name
        values = list(values_at(json.loads(raw), self.concurrency_path))
        text = json.dumps(values, sort_keys=True)
        if len(text) > MAX_KEY:
            text = hashlib.sha256(text.encode()).hexdigest()
        return f"{self.name} {tenant} {text}"

    def search_terms(self, raw: bytes) -> tuple[tuple[str, str], ...]:
        """(path, value) of the input, by which lists find the job."""
        if not self.search:
            return ()
        try:
            document = msgspec.json.decode(raw)
        except msgspec.DecodeError:  # a number that only pydantic reads
            return ()
        return search_terms(document, self.search)

    def secret_texts(self, raw: bytes) -> tuple[str, ...]:
        """The values at secret paths, which logs and errors do not show either."""
        return secret_texts(msgspec.json.decode(raw), self.secret)

    def shown_input(self, raw: bytes) -> bytes:
        """The input as the service shows it: HIDDEN instead of the values of secret paths."""
        if not self.secret:
            return raw
        try:
            return msgspec.json.encode(masked(msgspec.json.decode(raw), self.secret))
        except msgspec.DecodeError:
            return _HIDDEN_INPUT

    def read_input(self, raw: bytes, resolve: Resolve | None = None) -> dict[str, Any]:
        """The handler's keyword arguments. InvalidInput lists every invalid value."""
        values = self.check_input(raw, resolve)
        return {name.removeprefix("p_"): getattr(values, name) for name in type(values).model_fields}

    def check_input(self, raw: bytes, resolve: Resolve | None = None) -> BaseModel:
        """Validate an input. InvalidInput lists every invalid value."""
        try:
            return self.model.model_validate_json(raw, context=resolve)
        except ValueError as error:
            from pydantic import ValidationError

            if not isinstance(error, ValidationError):
                raise
            document = _document(raw)
            raise InvalidInput(
                f"the input does not fit kind {self.name}",
                errors=[
                    {"pointer": pointer("input", *_place(document, e)), "detail": e["msg"]}
                    for e in error.errors(include_url=False, include_input=False)
                ],
            ) from None


def _budget(options: Options) -> RetryBudget | None:
    ratio = options.get("retry_budget", 0.2)
    return None if ratio is None else RetryBudget(ratio, options.get("retry_minimum", 60.0))


def _restricts_types(annotation: Any) -> bool:
    return isinstance(annotation, Accepts) or any(map(_restricts_types, typing.get_args(annotation)))


def _takes_file(annotation: Any) -> bool | None:
    """Whether the parameter takes a list of files; None if it takes no file."""
    if annotation is File:
        return False
    inner = [_takes_file(part) for part in typing.get_args(annotation)]
    if not any(found is not None for found in inner):
        return None
    return typing.get_origin(annotation) in (list, tuple, set) or any(inner)


def _name(annotation: Any) -> str:
    """The name of an annotation, which is a string in a module with postponed annotations."""
    return str(getattr(annotation, "__name__", annotation)).rpartition(".")[2]


def _document(raw: bytes) -> Any:
    from pydantic_core import from_json

    try:
        return from_json(raw)
    except ValueError:
        return None


def _place(document: Any, error: ErrorDetails) -> list[str | int]:
    """The parts of an error's location that exist in the document. Pydantic also names branches of unions."""
    place: list[str | int] = []
    for number, part in enumerate(error["loc"], 1):
        try:
            document = document[part]
        except (TypeError, LookupError):
            if error["type"] != "missing" or number < len(error["loc"]):
                continue
        place.append(part)
    return place


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901) into the request's body."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in parts)


class Registry:
    """The kinds and queues of one app."""

    def __init__(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        max_jobs_per_child: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.kinds: dict[str, Kind] = {}
        self.concurrency = dict(queues or {})
        self.max_jobs_per_child = max_jobs_per_child
        self.memory_limit = memory_limit
        self.worker_start_hooks: list[Callable[[], Any]] = []
        self.breakers: dict[str, BreakerSettings] = {}
        self._counts: dict[str, FailurePredicate] = {}
        for name, limit in self.concurrency.items():
            if not NAME.fullmatch(name) or limit < 1:
                raise SetupError(
                    f"App(queues={{{name!r}: {limit}}}): write a valid queue name and a number of at least 1"
                )

    def job(self, **options: Unpack[Options]) -> Callable[[Handler], Handler]:
        """Register a handler: `@app.job(queue="video", retries=3)`."""

        def register(fn: Handler) -> Handler:
            kind = Kind(fn, options)
            if kind.name in self.kinds:
                raise SetupError(f"kind {kind.name!r} is registered twice: set name= for one of them")
            self.kinds[kind.name] = kind
            return fn

        return register

    def breaker(
        self,
        name: str,
        *,
        failures: int = 5,
        rate: float = 0.5,
        calls: int = 20,
        window: float = 60.0,
        open_for: float = 30.0,
        open_cap: float = 300.0,
        counts: type[Exception] | tuple[type[Exception], ...] | FailurePredicate | None = None,
    ) -> None:
        """Set when the breaker of `ctx.breaker(name)` opens: after `failures` failed calls in a row, or if `rate` of at
        least `calls` calls in `window` seconds have failed. It is probed after `open_for` seconds, then after twice as
        long, up to `open_cap`. `counts` says which exceptions are failures: classes, or a function. By default, all are,
        except a JobError that is not retryable.
        """
        settings = BreakerSettings(
            failures=failures,
            rate=rate,
            calls=calls,
            window=window,
            open_for=open_for,
            open_cap=open_cap,
        )
        if not NAME.fullmatch(name):
            raise SetupError(
                f"breaker {name!r} is not allowed: use at most 100 letters, digits, '_', '.' and '-', and begin with a "
                "letter or digit"
            )
        if name in self.breakers:
            raise SetupError(f"breaker {name!r} is declared twice")
        if failures < 1 or calls < 1 or not 0 < rate <= 1 or window <= 0:
            raise SetupError(
                f"breaker {name}: failures={failures} and calls={calls} must be at least 1, rate={rate:g} between 0 and 1, "
                f"and window={window:g} more than 0"
            )
        if not 0 < open_for <= open_cap:
            raise SetupError(
                f"breaker {name}: open_for={open_for:g} must be more than 0, and at most open_cap={open_cap:g}"
            )
        self.breakers[name] = settings
        if counts is not None:
            classes = isinstance(counts, type | tuple)
            self._counts[name] = (
                (lambda error: isinstance(error, counts)) if classes else counts  # type: ignore[arg-type, assignment]
            )

    def counts(self, breaker: str, error: Exception) -> bool:
        """Whether an exception is a failure of the dependency. A JobError that is not retryable is about the job."""
        known = self._counts.get(breaker)
        if known is not None:
            return bool(known(error))
        return not (isinstance(error, JobError) and not error.retryable)

    def on_worker_start(self, fn: Handler) -> Handler:
        """Register a function that runs once in each handler child before its first job, for example to load a model."""
        self.worker_start_hooks.append(fn)
        return fn

    def shown_input(self, name: str, raw: bytes) -> bytes:
        """The input of a job of this kind as the service shows it. Nothing of it if the service does not know the kind,
        because then it does not know which paths are secret.
        """
        if name in SERVICE_KINDS:
            return raw
        kind = self.kinds.get(name)
        return _HIDDEN_INPUT if kind is None else kind.shown_input(raw)

    def kind(self, name: str) -> Kind:
        kind = self.kinds.get(name)
        if kind is not None:
            return kind
        if is_reserved(name):
            raise UnknownKind(
                f"kind {name[:100]!r} is reserved for the service, and cannot be submitted. POST /bulk starts a bulk action",
                errors=[{"pointer": "/kind", "detail": "reserved kind"}],
            )
        known = ", ".join(sorted(self.kinds)) or "none"
        raise UnknownKind(
            f"kind {name[:100]!r} does not exist; this service has: {known}",
            errors=[{"pointer": "/kind", "detail": "unknown kind"}],
        )

    @property
    def queues(self) -> dict[str, list[Kind]]:
        """The kinds by queue."""
        found: dict[str, list[Kind]] = {}
        for kind in self.kinds.values():
            found.setdefault(kind.queue, []).append(kind)
        return found

    def check(self) -> None:
        """Build every schema, so that errors are reported at the start."""
        for kind in self.kinds.values():
            _ = kind.schema


def policy_of(registry: Registry, name: str) -> Policy | None:
    """How a kind of the app or of the service treats failures; None if it is neither. The service's own kinds resume where
    they were, so only many losses end them.
    """
    if name in SERVICE_KINDS:
        return Policy(max_losses=MOST_LOSSES)
    kind = registry.kinds.get(name)
    return kind.policy if kind is not None else None
