"""bide.js in Node with a real service, and with a vendor that throttles."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.lab.scenario import Rules
from bide.lab.vendor import Vendor
from tests.acceptance.cutter import Cutter
from tests.acceptance.test_upload_clients import need
from tests.node import MODULE, run_node
from tests.servers.service import ServiceProcess
from tests.waiting import until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    process = ServiceProcess(folder, "tests.apps.javascript:app", workers=2)
    process.start()
    yield process
    process.stop()


def test_the_npm_package_has_the_module_and_its_types() -> None:
    command = [need("npm"), "pack", "--dry-run", "--json", str(MODULE.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    (package,) = json.loads(done.stdout)
    assert {file["path"] for file in package["files"]} == {"bide.js", "bide.d.ts", "package.json"}


# --- submitting and waiting


def test_submit_wait_and_result(service: ServiceProcess) -> None:
    script = """
    const client = new Client(base);
    const job = await client.submit("add", { a: 2 }, { labels: { team: "js" }, idempotencyKey: 'a "key"' });
    const again = await client.submit("add", { a: 2 }, { labels: { team: "js" }, idempotencyKey: 'a "key"' });
    say([await job.result(), job.latest.status, again.id === job.id, again.latest.replayed]);
    const quick = await client.submit("add", { a: 40, b: 2 }, { wait: 20 });
    say([quick.latest.status, quick.latest.result]);
    const big = await client.submit("large", { size: 70000 });
    say((await big.result({ timeout: 30 })).length);
    const { jobs } = await client.list({ kind: "add", label: { team: "js" } });
    say(jobs.map((found) => found.jobId === job.id));
    say((await client.job(job.id).status({ include: "input" })).input);
    """
    assert run_node(script, service.url) == [
        [3, "DONE", True, True],
        ["DONE", 42],
        70000,
        [True],
        {"a": 2},
    ]


def test_every_change_is_reported_in_order(service: ServiceProcess) -> None:
    script = """
    const job = await new Client(base).submit("count", { total: 4, seconds: 0.3 });
    const seen = [];
    const onChange = ({ status, progress }) => seen.push([status, progress?.done ?? 0]);
    const last = await job.wait({ timeout: 30, onChange });
    say([seen, last.status, last.result]);
    """
    ((seen, status, result),) = run_node(script, service.url)
    assert (status, result) == ("DONE", {"counted": 4})
    done = [number for _, number in seen]
    assert done == sorted(done) and len(set(done)) >= 3, seen
    assert seen[-1][0] == "DONE"


def test_a_failed_job_carries_its_error_and_can_be_retried(
    service: ServiceProcess, tmp_path: Path
) -> None:
    script = """
    import { writeFileSync } from "node:fs";
    const client = new Client(base);
    const job = await client.submit("fails", { path: args[0] });
    await job.result().catch((error) =>
      say([error instanceof JobFailed, error.name, error.error.code, error.job.jobId === job.id]));
    await job.cancel().catch((error) =>
      say([error instanceof ProblemError, error.status, error.code, error.problem.traceId.length]));
    writeFileSync(args[0], "");
    await job.retry();
    say(await job.result());
    """
    assert run_node(script, service.url, str(tmp_path / "repair")) == [
        [True, "JobFailed", "BAD_PAGE", True],
        [True, 409, "conflict", 32],
        "repaired",
    ]


def test_cancel_timeout_and_abort(service: ServiceProcess, tmp_path: Path) -> None:
    script = """
    const client = new Client(base);
    const job = await client.submit("until_there", { path: args[0] });
    await job.wait({ timeout: 0.2 }).catch((error) => say(error.name));
    await job.wait({ deadline: new Date(Date.now() + 200) }).catch((error) => say(error.name));
    await job.wait({ signal: AbortSignal.timeout(100) }).catch((error) => say(error.name));
    const controller = new AbortController();
    const waiting = job.wait({ signal: controller.signal });
    controller.abort(new Error("enough"));
    await waiting.catch((error) => say(error.message));
    await job.cancel();
    say((await job.wait({ timeout: 30 })).status);
    await job.result().catch((error) => say([error.name, error.error]));
    """
    *_, status, failed = said = run_node(script, service.url, str(tmp_path / "never"))
    assert said[:4] == ["WaitTimeout", "WaitTimeout", "TimeoutError", "enough"]
    assert (status, failed[0]) == ("CANCELLED", "JobFailed")


def test_a_rejected_submission_names_the_fields(service: ServiceProcess) -> None:
    script = """
    const client = new Client(base);
    await client.submit("add", { a: "x" }).catch((error) => say([error.status, error.retryable, error.problem.errors]));
    await client.job("01JGGVSAXDATN8JR1X75S1AMX1").wait().catch((error) => say([error.status, error.code]));
    await client.request("GET", "http://127.0.0.1:1/jobs").catch((error) => say(error.message));
    """
    rejected, unknown, elsewhere = run_node(script, service.url)
    assert (rejected[0], rejected[1], rejected[2][0]["pointer"]) == (422, False, "/input/a")
    assert unknown == [404, "not-found"]
    assert "does not belong to the service" in elsewhere


def test_many_jobs_need_few_requests(service: ServiceProcess) -> None:
    script = """
    let requests = 0;
    const counting = (...all) => { requests += 1; return fetch(...all); };
    const client = new Client(base, { fetch: counting });
    const ids = (await client.json("POST", "jobs/batch", { json: { jobs:
      Array.from({ length: 150 }, (_, a) => ({ kind: "add", input: { a } })) } })).jobs.map((job) => job.jobId);
    requests = 0;
    const ended = await client.waitAll(ids, { timeout: 60 });
    say([ended.map((job) => job.result).join() === Array.from({ length: 150 }, (_, a) => a + 1).join(), requests]);
    """
    ((right, requests),) = run_node(script, service.url)
    assert right
    assert requests <= 30, requests


def test_few_connections_are_held_at_a_time(service: ServiceProcess, tmp_path: Path) -> None:
    script = """
    import { writeFileSync } from "node:fs";
    let held = 0, most = 0;
    const counting = async (url, init) => {
      const holds = init.headers.has("Prefer");
      held += holds; most = Math.max(most, held);
      try { return await fetch(url, init); } finally { held -= holds; }
    };
    const client = new Client(base, { fetch: counting });
    const jobs = await Promise.all(Array.from({ length: 8 }, () => client.submit("until_there", { path: args[0] })));
    const waiting = Promise.all(jobs.map((job) => job.wait({ timeout: 60 })));
    setTimeout(() => writeFileSync(args[0], "there"), 300);
    say([(await waiting).map((job) => job.result), most]);
    """
    ((results, most),) = run_node(script, service.url, str(tmp_path / "go"))
    assert results == ["there"] * 8
    assert most == 3


# --- events


def test_events_of_a_job_until_its_end(service: ServiceProcess) -> None:
    script = """
    const client = new Client(base);
    const job = await client.submit("count", { total: 3, seconds: 1.5 });
    const seen = [];
    for await (const event of job.events()) seen.push(event);
    say(seen.map(({ type, job, snapshot }) => [type, (job ?? snapshot).status, (job ?? snapshot).progress?.done ?? null]));
    const [{ id: first }, { id: last }] = [seen[0], seen.at(-1)];
    const count = async (after) => { let n = 0; for await (const _ of job.events({ after })) n += 1; return n; };
    say([await count(first), await count(last)]);
    """
    seen, counts = run_node(script, service.url)
    assert seen[0][0] == "snapshot" and seen[-1][:2] == ["status", "DONE"]
    assert [done for type, _, done in seen if type == "progress"][:2] == [1, 2]
    assert counts[0] >= 1 and counts[1] == 0


def test_events_of_many_jobs_on_one_connection(service: ServiceProcess) -> None:
    script = """
    const client = new Client(base);
    const labels = { batch: args[0] };
    const controller = new AbortController();
    const ended = new Set();
    const jobs = [];
    const watch = async () => {
      for await (const { type, jobId, job } of client.events({ label: labels, type: "status" }, controller)) {
        if (type === "snapshot") for (let a = 0; a < 5; a += 1) jobs.push(await client.submit("add", { a }, { labels }));
        else if (job.status === "DONE") ended.add(jobId);
        if (ended.size === 5) return;
      }
    };
    await watch();
    say(jobs.every((job) => ended.has(job.id)));
    """
    assert run_node(script, service.url, "js-events") == [True]


def test_the_output_of_a_job_is_read_from_its_first_chunk(service: ServiceProcess) -> None:
    """Also after the job has ended; a later attempt is another generation."""
    script = """
    const client = new Client(base);
    const job = await client.submit("emits", { count: 5, failures: 1 });
    const read = async (options) => {
      const found = [];
      for await (const { generation, index, data, id } of job.stream(options)) found.push([generation, index, data, id]);
      return found;
    };
    const live = await read();
    const late = await read();
    say([live.map(([generation, index, data]) => [generation, index, data]), JSON.stringify(late) === JSON.stringify(live)]);
    say((await read({ after: late.at(-3)[3] })).length);
    """
    (live, same), rest = run_node(script, service.url)
    first, second = sorted({generation for generation, _, _ in live})
    assert live == [[g, i, {"n": i}] for g in (first, second) for i in range(5)]
    assert same and rest == 2


# --- files


def test_files_in_a_form(service: ServiceProcess) -> None:
    script = """
    const client = new Client(base);
    const file = new File(["to be"], "hamlet.txt", { type: "text/plain" });
    const job = await client.submit("look", { note: "form" }, { files: { file } });
    say(await job.result());
    const files = [new File(["one"], "a.txt"), new File(["two"], "b.txt")];
    const copies = await client.submit("copies", {}, { files: { files } });
    say(await copies.result());
    say(await (await copies.file("b.txt")).text());
    const plain = await client.submit("look", {}, { files: { file: Buffer.from("bytes") } });
    say((await plain.result()).size);
    """
    looked, names, second, size = run_node(script, service.url)
    assert (looked["name"], looked["type"], looked["note"]) == ("hamlet.txt", "text/plain", "form")
    assert looked["sha256"] == hashlib.sha256(b"to be").hexdigest()
    assert (names, second, size) == (["a.txt", "b.txt"], "two", 5)


UPLOAD = """
import { openAsBlob, readFileSync } from "node:fs";
process.removeAllListeners("warning"); // openAsBlob is experimental in Node 20
const client = new Client(base);
const file = await openAsBlob(args[0]);
const seen = [];
const show = (sent, size) => seen.push(sent / size);
"""
SIZE = 5_000_000


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    path.write_bytes(os.urandom(SIZE))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_upload_becomes_a_job(service: ServiceProcess, film: Path) -> None:
    script = """
    const options = { kind: "look", input: { note: "tüs" }, name: "film.mp4", type: "video/mp4", onProgress: show };
    const { job, url } = await client.upload(file, options).done;
    say([await job.result(), seen, url.startsWith(base + "/files/")]);
    const empty = await client.upload(new Blob([]), { kind: "look", name: "empty" }).done;
    say((await empty.job.result()).size);
    const alone = await client.upload(Buffer.from("later"), { name: "later.txt" }).done;
    const upload = alone.url.split("/").at(-1);
    say([alone.job, await (await client.submit("look", { file: { upload } })).result()]);
    """
    (result, seen, located), empty, (no_job, later) = run_node(UPLOAD + script, service.url, str(film))
    assert (result["sha256"], result["note"], result["name"]) == (digest(film), "tüs", "film.mp4")
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 1 and len(seen) >= 3
    assert located and empty == 0 and no_job is None and later["name"] == "later.txt"


def test_an_upload_goes_on_after_cut_connections(service: ServiceProcess, film: Path) -> None:
    script = """
    const { job } = await client.upload(file, { kind: "look", name: "film.mp4", onProgress: show }).done;
    say([(await job.result()).sha256, seen]);
    """
    with Cutter(service.port) as network:
        network.cut_every = 1_500_000
        ((sha256, seen),) = run_node(UPLOAD + script, network.url, str(film))
        assert network.sent < 2 * SIZE and network.connections > 3
    assert sha256 == digest(film)
    assert seen == sorted(seen)


def test_an_upload_can_be_paused_resumed_and_taken_over(service: ServiceProcess, film: Path) -> None:
    script = """
    const options = { kind: "look", name: "film.mp4", pieceSize: 500_000 };
    const eventually = async (look) => { while (!look()) await new Promise((resolve) => setTimeout(resolve, 10)); };
    let upload, begun;
    upload = client.upload(file, { ...options, onStart: (url) => (begun = url), onProgress: (sent) => {
      if (sent === 1_000_000) upload.pause();
    } });
    await eventually(() => upload.paused);
    say(await Promise.race([upload.done, new Promise((resolve) => setTimeout(resolve, 100, upload.sent))]));
    upload.resume();
    upload.pause();
    upload.resume(); // before the pause had an effect
    await upload.done;
    say([upload.sent === file.size, begun === upload.url]);
    const controller = new AbortController();
    const first = client.upload(file, { ...options, signal: controller.signal, onProgress: (sent) => {
      if (sent >= 2_000_000) controller.abort(new Error("the page was closed"));
    } });
    await first.done.catch((error) => say(error.message));
    const offsets = [];
    const second = client.upload(file, { ...options, url: first.url, onProgress: (sent) => offsets.push(sent) });
    await second.done;
    say([offsets[0], (await second.job.result()).sha256]);
    const third = client.upload(file, { ...options, onProgress: (sent) => { if (sent > 0) third.pause(); } });
    await eventually(() => third.paused);
    await third.cancel();
    await third.done.catch((error) => say(error.message));
    await client.request("HEAD", third.url, { headers: { "Tus-Resumable": "1.0.0" } }).catch((error) => say(error.status));
    """
    paused, done, aborted, (offset, sha256), cancelled, gone = run_node(
        UPLOAD + script, service.url, str(film)
    )
    assert paused == 1_000_000 and done == [True, True]
    assert aborted == "the page was closed"
    assert (offset, sha256) == (2_000_000, digest(film))
    assert (cancelled, gone) == ("The upload was cancelled", 410)


def test_an_upload_that_the_service_lost_starts_again(service: ServiceProcess, film: Path) -> None:
    script = """
    let lost = false;
    const upload = client.upload(file, { kind: "look", pieceSize: 1_000_000, onProgress: (sent) => {
      seen.push(sent);
      if (sent === 2_000_000 && !lost) {
        lost = true;
        upload.pause();
        client.request("DELETE", upload.url, { headers: { "Tus-Resumable": "1.0.0" } }).then(() => upload.resume());
      }
    } });
    await upload.done;
    say([(await upload.job.result()).sha256, seen]);
    """
    ((sha256, seen),) = run_node(UPLOAD + script, service.url, str(film))
    assert sha256 == digest(film)
    assert seen.count(0) >= 2 and seen[-1] == SIZE


def test_a_kind_that_rejects_the_upload_is_not_retried(service: ServiceProcess) -> None:
    script = """
    const upload = new Client(base).upload(new Blob(["x"]), { kind: "nothing" });
    await upload.done.catch((error) => say([error.name, error.status, error.code]));
    const hooked = new Client(base).upload(new Blob(["x"]), { kind: "look", webhook: { url: "ftp://a" } });
    await hooked.done.catch((error) => say(error.problem.errors[0].pointer));
    """
    refused, pointer = run_node(script, service.url)
    assert (refused, pointer) == (["ProblemError", 422, "unknown-kind"], "/webhook/url")


# --- jobs of third parties


def test_jobs_of_a_vendor_without_a_foreseeable_refusal() -> None:
    """Its limit is in the headers: no request is refused, although twelve jobs wait at the same time."""
    script = """
    const budget = new Budget();
    const options = { budget, firstInterval: 0.1, longestInterval: 0.5, timeout: 60 };
    const wait = (id) => poll(`${base}/v2/generate/${id}`, options);
    const ended = await Promise.all(args.map(wait));
    say([ended.map((job) => job.status), budget.requests, budget.refused]);
    """
    rules = Rules(requests=40, per=1, burst=5)
    with Vendor(rules, takes=lambda rng: rng.uniform(3, 4)) as vendor:
        ((statuses, requests, refused),) = run_node(script, vendor.url, *start(vendor, 12))
        assert statuses == ["COMPLETED"] * 12
        assert (refused, vendor.refused) == (0, 0)
        assert 12 < requests <= 200


def test_a_fixed_window_is_not_exceeded() -> None:
    script = """
    const budget = new Budget();
    const options = { budget, firstInterval: 0.05, backoff: 1, timeout: 60 };
    await Promise.all(args.map((id) => poll(`${base}/v2/generate/${id}`, options)));
    say(budget.refused);
    """
    rules = Rules(kind="window", requests=8, per=1)
    with Vendor(rules, takes=lambda rng: 4.0) as vendor:
        assert run_node(script, vendor.url, *start(vendor, 3)) == [0]
        assert vendor.refused == 0
        assert vendor.requests >= 8


def start(vendor: Vendor, count: int) -> list[str]:
    """Submits jobs, slowly enough for the limit of the vendor."""
    ids = []
    for _ in range(count):
        time.sleep(0.03)
        with urllib.request.urlopen(f"{vendor.url}/v2/generate", b"{}", timeout=30) as answer:
            ids.append(json.load(answer)["id"])
    return ids


def test_a_limit_that_the_caller_knows_is_kept() -> None:
    """No response states it."""
    script = """
    const budget = new Budget({ limit: "20/1s" });
    const ids = await Promise.all(Array.from({ length: 8 }, async () =>
      (await (await budget.fetch(base + "/v2/generate", { method: "POST" })).json()).id));
    await Promise.all(ids.map((id) => poll(`${base}/v2/generate/${id}`, { budget, firstInterval: 0.2, backoff: 1 })));
    say(budget.refused);
    """
    rules = Rules(requests=20, per=1, burst=5, advertised=False)
    with Vendor(rules, takes=lambda rng: rng.uniform(0.5, 1)) as vendor:
        assert run_node(script, vendor.url) == [0]


def test_a_hidden_limit_is_found() -> None:
    """Only refusals show it: all requests of the budget wait after one."""
    script = """
    const budget = new Budget();
    const ids = await Promise.all(Array.from({ length: 3 }, async () =>
      (await (await budget.fetch(base + "/v2/generate", { method: "POST" })).json()).id));
    const ended = await Promise.all(ids.map((id) => poll(`${base}/v2/generate/${id}`, { budget, firstInterval: 0.3 })));
    say([ended.map((job) => job.status), budget.refused, budget.requests]);
    """
    rules = Rules(requests=8, per=1, burst=2, advertised=False)
    with Vendor(rules, takes=lambda rng: 0.1) as vendor:
        ((statuses, refused, requests),) = run_node(script, vendor.url)
        assert statuses == ["COMPLETED"] * 3
        assert 0 < refused <= 3, (refused, requests)
        assert vendor.refused == refused


# --- the last test: the service restarts


def test_a_service_that_restarts_is_waited_for(service: ServiceProcess, tmp_path: Path) -> None:
    script = """
    import { writeFileSync } from "node:fs";
    const client = new Client(base);
    const job = await client.submit("until_there", { path: args[0] });
    const result = job.result({ timeout: 60 });
    const seen = [];
    for await (const event of job.events()) {
      const { status } = event.snapshot ?? event.job;
      seen.push([event.type, event.id, status]);
      if (status === "PROCESSING") writeFileSync(args[1], job.id);
    }
    say([await result, seen]);
    """
    go, started = tmp_path / "go", tmp_path / "started"

    def restart() -> None:
        until(started.exists)
        service.kill(alone=False)
        service.start()
        go.write_text("after the restart")

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        ((result, seen),) = run_node(script, service.url, str(go), str(started))
        assert result == "after the restart"
        assert [type for type, _, _ in seen].count("snapshot") == 1 and seen[-1][2] == "DONE"
        ids = [int(id.split("-")[1]) for type, id, _ in seen if type == "status"]
        assert ids == sorted(set(ids)), seen  # none is repeated
        assert len({id.split("-")[0] for _, id, _ in seen if id}) == 1
    finally:
        thread.join()
