// The page of a user: signs in at its own backend, and talks to the bide service with a token of the backend.

const SPARE = 0.5; // a token is renewed when less than this part of its time is left
const byId = (id) => document.getElementById(id);

/** Sends JSON to the backend of the page. */
async function ask(path, body) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body ?? {}) });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

/** Returns a token that is valid for some time, and asks the backend for a new one if it is not. */
let current;
async function token() {
  if (current === undefined || performance.now() > current.renewAt) {
    const made = await ask("token");
    current = { ...made, renewAt: performance.now() + made.ttl * 1000 * SPARE };
  }
  return current.token;
}

async function connect() {
  await token();
  const { Client } = await import(`${current.service}/ui/bide.js`);
  // The client calls `token` before each request. When the service ends a stream because its token has expired, the client
  // continues behind the last event with a new token.
  return new Client(current.service, { token });
}

async function follow(job, line) {
  const show = (text) => (line.textContent = text);
  for await (const event of job.events()) {
    const { status, progress } = event.snapshot ?? event.job ?? {};
    if (progress) show(`${progress.done} of ${progress.total} pages`);
    else if (status) show(status);
  }
  const { title } = await job.result();
  const file = await (await job.file("report.txt")).text();
  show(`DONE: ${title}, ${file.split("\n").length - 1} pages`);
}

const say = (error) => (byId("message").textContent = error.message);
let client;

byId("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const { user, tenant } = await ask("login", Object.fromEntries(new FormData(event.target)));
    client = await connect();
    byId("message").textContent = `${user} of ${tenant}`;
    byId("login").hidden = true;
    byId("submit").hidden = false;
  } catch (error) {
    say(error);
  }
});

byId("submit").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    // The service adds the label of the token, so that the job is the user's.
    const job = await client.submit("report", { title: new FormData(event.target).get("title") });
    const line = document.createElement("li");
    line.dataset.job = job.id;
    byId("jobs").append(line);
    follow(job, line).catch(say);
  } catch (error) {
    say(error);
  }
});
