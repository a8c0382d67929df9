// The worst calls of one pair, by trace id.

import type { WorstOfPair } from "./api";
import { el, refill } from "./dom";
import { duration, moment } from "./format";
import { toHash, type View } from "./state";

/** A button that copies a text and says that it did. */
export function copyButton(text: string): HTMLButtonElement {
  const button = el("button", { type: "button", class: "copy", title: `copy ${text}` }, "copy");
  button.addEventListener("click", () => {
    const say = (word: string) => {
      button.textContent = word;
    };
    // The clipboard needs HTTPS or loopback; elsewhere the text is selected instead.
    if (!navigator.clipboard) {
      const id = button.parentElement?.querySelector(".id");
      if (id) getSelection()?.selectAllChildren(id);
      return say("selected");
    }
    navigator.clipboard.writeText(text).then(
      () => say("copied"),
      () => say("refused"),
    );
  });
  return button;
}

export class WorstView {
  readonly root = el("div", { class: "worst" });
  private shown = "";

  update(calls: WorstOfPair[], view: View): void {
    // Only a changed list is drawn again, so that a copy button keeps its word and its focus.
    const now = JSON.stringify([calls, toHash(view)]);
    if (now === this.shown) return;
    this.shown = now;
    const heading = (text: string, hint = "") => el("th", { scope: "col", class: "number", title: hint }, text);
    const rows = calls.map((call) => {
      const target = { traceId: call.trace_id, clientSpanId: call.client_span_id };
      const chosen = view.call?.traceId === target.traceId && view.call.clientSpanId === target.clientSpanId;
      const link = el("a", { class: "id", href: toHash({ ...view, call: target }), "aria-current": chosen && "true" }, call.trace_id);
      return el(
        "tr",
        { class: chosen ? "chosen" : "" },
        el("th", { scope: "row" }, link, " ", copyButton(call.trace_id)),
        el("td", { class: "number" }, el("b", {}, duration(call.gap_ns))),
        el("td", { class: "number" }, duration(call.client_ns)),
        el("td", { class: "number" }, duration(call.server_ns)),
        el("td", { class: "number" }, moment(BigInt(Math.round(call.start_unix_ns))).slice(0, -3)),
        el("td", {}, call.status),
        el("td", {}, `${call.client_host ?? "?"} → ${call.server_host ?? "?"}`),
        el("td", { class: "quiet" }, call.whole ? "both whole" : "times only"),
      );
    });
    if (rows.length === 0) {
      refill(this.root, el("h3", {}, "Worst calls"), el("p", { class: "quiet" }, "No call of this time range is held."));
      return;
    }
    refill(
      this.root,
      el(
        "table",
        {},
        el("caption", {}, "Worst calls: largest gap first"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "trace id"), heading("gap"), heading("client"), heading("server"), heading("start", "of the CLIENT span, by the client's clock"), el("th", { scope: "col" }, "status"), el("th", { scope: "col" }, "hosts"), el("th", { scope: "col" }, "spans"))),
        el("tbody", {}, ...rows),
      ),
    );
  }
}
