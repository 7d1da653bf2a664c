// The session: who has signed in, what the key or the issuer allows, and the dialog to sign in. Without authentication everyone may do
// everything.

import { button, h, linkButton, setText } from "./dom.js";

const SAFE = ["GET", "HEAD"];

export class Session {
  constructor(base) {
    this.base = base;
    this.isNeeded = document.documentElement.dataset.auth !== "none";
    this.provider = document.documentElement.dataset.provider; // the host of the issuer at which users sign in, or empty
    this.scopes = this.isNeeded ? [] : ["read", "submit", "control", "admin"];
    this.csrf = null;
  }

  allows(scope) {
    return this.scopes.includes(scope);
  }

  // Resolves when the user has signed in.
  async start() {
    if (!this.isNeeded) return;
    const response = await fetch(`${this.base}/session`).catch(() => null);
    if (response?.ok) this._take(await response.json());
    if (!this.allows("read")) await this.signIn();
  }

  // As the global fetch, with what the service needs of a session. Asks to sign in again when the session has ended.
  async fetch(url, init) {
    const own = String(url).startsWith(`${this.base}/`);
    if (own && this.csrf && !SAFE.includes(init.method)) init.headers.set("X-CSRF-Token", this.csrf);
    const response = await fetch(url, init);
    if (own && this.isNeeded && response.status === 401) this._again();
    return response;
  }

  _take({ subject, tenant, scopes, csrf }) {
    Object.assign(this, { subject, tenant, scopes, csrf });
  }

  async _again() {
    if (this._asking) return;
    const before = this.subject;
    await this.signIn("The session has ended.");
    if (this.subject !== before) location.reload(); // pages show what another key allows
    else this.onReturn?.();
  }

  signIn(reason = "") {
    this._asking ??= new Promise((resolve) => {
      const input = h("input", { type: "password", id: "sign-in-key", name: "key", required: true, autocomplete: "current-password", spellcheck: "false", "aria-describedby": "sign-in-wrong" });
      const wrong = h("p", { id: "sign-in-wrong", class: "wrong", role: "alert" }, reason);
      const send = button("Sign in", { kind: this.provider ? "" : "primary", type: "submit" });
      const form = h("form", { onsubmit: async (event) => {
        event.preventDefault();
        send.disabled = true;
        const problem = await this._try(input.value.trim());
        send.disabled = false;
        setText(wrong, problem ?? "");
        if (problem) return input.select();
        this._asking = null;
        dialog.close();
        return resolve();
      } }, h("h2", { id: "sign-in-title" }, "Sign in"),
      this.provider ? h("p", null, linkButton(`Sign in with ${this.provider}`, this._providerPage(), { kind: "primary" })) : null,
      h("p", null, this.provider ? "Or with an API key. An operator creates one with " : "This service needs an API key. An operator creates one with ", h("code", null, "bide keys create"), "."),
      h("div", { class: "field" }, h("label", { for: "sign-in-key" }, "API key"), input), wrong, h("div", { class: "buttons" }, send));
      const dialog = h("dialog", { class: "dialog sign-in", "aria-labelledby": "sign-in-title" }, form);
      dialog.addEventListener("cancel", (event) => event.preventDefault());
      dialog.addEventListener("close", () => (this._asking ? dialog.showModal() : dialog.remove()));
      document.body.append(dialog);
      dialog.showModal();
      input.focus();
    });
    return this._asking;
  }

  _providerPage() {
    return `${this.base}/session/oidc?next=${encodeURIComponent(`/${location.hash}`)}`;
  }

  // Returns what is wrong; undefined if the session has begun.
  async _try(key) {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(`${this.base}/session`, { method: "POST", headers, body: JSON.stringify({ key }) }).catch(() => null);
    if (!response) return "The service did not answer. Try again.";
    const body = await response.json();
    if (!response.ok) return response.status === 401 ? "The key is not valid: it is unknown, has expired or was revoked." : body.detail;
    this._take(body);
    if (this.allows("read")) return undefined;
    await this._end();
    return "The key lacks the scope read, which the dashboard needs.";
  }

  _end(query = "") {
    return fetch(`${this.base}/session${query}`, { method: "DELETE", headers: { "X-CSRF-Token": this.csrf } }).catch(() => null);
  }

  askSignOut() {
    const end = async (query) => {
      await this._end(query);
      location.reload();
    };
    const stay = button("Stay", { onclick: () => dialog.close() });
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "sign-out-title" }, h("h2", { id: "sign-out-title" }, "Sign out?"),
      h("p", null, `You have signed in with ${this.subject}, tenant ${this.tenant}. Everywhere: all browsers that have signed in with this ${this.subject.startsWith("oidc:") ? "account" : "key"}.`),
      h("div", { class: "buttons" }, stay, button("Sign out everywhere", { onclick: () => end("?everywhere=true") }), button("Sign out", { kind: "primary", onclick: () => end() })));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    stay.focus();
  }
}
