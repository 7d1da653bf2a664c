// Webhooks: the endpoints, and the last deliveries of each.

import { ago, button, h, keyed, name, panel, setText, statusWord, toast, toastError } from "./dom.js";
import * as f from "./format.js";

const STATUS = { delivered: "DONE", pending: "RETRYING", failed: "ERROR" };

export function show(page) {
  page.title("Webhooks");
  const list = h("div", { class: "content" });
  const quiet = h("section", { class: "panel", hidden: true, "aria-label": "No webhooks" }, h("p", { class: "quiet" }, "No webhook is registered. Register one: ",
    h("code", null, "bide webhooks create https://example.org/hook")));
  page.view.append(h("header", { class: "head" }, h("h1", null, "Webhooks")), list, quiet);

  async function test(webhook) {
    try {
      const delivery = await page.post(`/webhooks/${encodeURIComponent(webhook.id)}/test`, undefined, { timeout: 60 });
      const last = delivery.attempts?.at(-1);
      toast(delivery.status === "delivered" ? "The endpoint has accepted the test" : "The endpoint has not accepted the test", { status: STATUS[delivery.status], detail: last && (last.error ?? `HTTP ${last.status}`) });
      reader.now();
    } catch (error) {
      toastError(error);
    }
  }

  function create(webhook) {
    const box = panel("", { aside: page.allows("control") && button("Send a test", { kind: "small", onclick: () => test(webhook) }) });
    box.heading.append(name(webhook.url));
    box.facts = h("p", { class: "quiet" });
    box.rows = h("ul", { class: "rows" });
    box.body.append(box.facts, box.rows);
    return box;
  }

  function update(box, { webhook, deliveries }) {
    setText(box.noteElement, webhook.enabled ? "enabled" : "disabled");
    const which = [webhook.events.join(", "), webhook.kinds?.length && `of ${webhook.kinds.join(", ")}`].filter(Boolean).join(" ");
    setText(box.facts, webhook.reason ? `Disabled ${f.local(webhook.disabledAt)}: ${webhook.reason}` : `Events: ${which}. ${deliveries.length ? "Last deliveries:" : "No delivery in the last 7 days."}`);
    box.rows.replaceChildren(...deliveries.map((one) => {
      const last = one.attempts.at(-1);
      const outcome = !last ? "waits for its first attempt" : last.error ?? `HTTP ${last.status} in ${f.duration(last.seconds)}`;
      return h("li", null, statusWord(STATUS[one.status] ?? "PENDING"), name(one.type), h("span", { class: "note" }, name(outcome), " · ", ago(one.createdAt)));
    }));
  }

  const reader = page.refresh(async () => {
    const { webhooks } = await page.get("/webhooks");
    const entries = await Promise.all(webhooks.slice(0, 20).map(async (webhook) => ({ webhook, ...(await page.get(`/webhooks/${encodeURIComponent(webhook.id)}/deliveries?limit=5`)) })));
    keyed(list, entries, ({ webhook }) => webhook.id, ({ webhook }) => create(webhook), update);
    quiet.hidden = webhooks.length > 0;
    list.hidden = !webhooks.length;
  }, 5);
}
