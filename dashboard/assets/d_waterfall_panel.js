// The side panel: one span's attributes, events and raw times, fetched when it is selected.
(function (tt) {
  "use strict";

  function table(title, pairs, none) {
    const rows = pairs.map(([key, value]) => tt.make("tr", {}, tt.make("th", { scope: "row" }, key), tt.make("td", {}, value)));
    const body = rows.length ? tt.make("table", { class: "tt-attributes" }, ...rows) : tt.make("p", { class: "tt-muted" }, none);
    return tt.make("section", {}, tt.make("h3", {}, title), body);
  }

  // The trace that a link leads to, opened at its span.
  function linked(link) {
    if (!/^[0-9a-f]{32}$/.test(link.trace_id)) return link.trace_id;
    return tt.make("a", { href: "/requests/" + link.trace_id + "?span=" + encodeURIComponent(link.span_id), "data-nav": "1" }, link.trace_id);
  }

  tt.SpanPanel = class {
    constructor(place, spec, close) {
      this.place = place;
      this.spec = spec;
      this.close = close;
      this.asked = 0;
    }

    hide() {
      this.asked += 1;
      this.place.hidden = true;
      this.place.replaceChildren();
    }

    // Only the answer to the newest selection is drawn.
    async show(model, index) {
      const asked = ++this.asked;
      const id = model.ids[index];
      this.place.hidden = false;
      this._head(model, index);
      try {
        const answer = await fetch("/api/v1/requests/" + this.spec.trace + "/spans/" + id, { headers: { Accept: "application/json" } });
        const span = await answer.json();
        if (asked !== this.asked) return;
        if (!answer.ok) throw new Error(span.error.message);
        this._details(span, model);
        this._logs(await (await fetch("/api/v1/requests/" + this.spec.trace + "/logs?span_id=" + id)).json(), model, asked);
      } catch (error) {
        if (asked === this.asked) this.place.append(tt.make("p", { class: "tt-bad" }, String(error.message || error)));
      }
    }

    _head(model, index) {
      const words = this.spec.words;
      const stage = model.stage(index);
      const spent = (model.pathOf.get(index) || []).reduce((sum, segment) => sum + segment[3], 0);
      const facts = [
        [words.duration, tt.duration(model.data.durations[index])],
        [words.self, spent ? tt.duration(spent) : "–"],
        [words.offset, tt.duration(model.start(index))],
      ];
      this.place.replaceChildren(
        tt.make(
          "header", {},
          tt.make("h3", {}, model.name(index)),
          tt.make("button", { class: "tt-plain", "aria-label": words.close, onclick: this.close }, "×"),
        ),
        tt.make("p", { class: "tt-muted" }, model.service(index), stage ? " · " + (this.spec.stages[stage] || stage) : ""),
        tt.make("dl", { class: "tt-facts" }, ...facts.map(([key, value]) => tt.make("div", {}, tt.make("dt", {}, key), tt.make("dd", {}, value)))),
      );
      this._intervals(model, index);
    }

    // What was logged while the span ran, in time order, above the resource.
    _logs(found, model, asked) {
      if (asked !== this.asked || !found.logs || !found.logs.length) return;
      const words = this.spec.words;
      const first = BigInt(model.data.start_unix_ns);
      const line = (one) =>
        tt.make(
          "div", { class: "tt-log" + (one.severity_number >= 17 ? " is-bad" : one.severity_number >= 13 ? " is-warn" : "") },
          tt.make("span", { class: "tt-muted" }, "+" + tt.duration(Number(BigInt(one.time_unix_ns) - first)) + " " + (one.severity || "")),
          tt.make("pre", {}, one.body),
        );
      const shown = tt.words(words.logs_shown, { shown: found.shown, total: found.total });
      this.place.querySelector(".tt-facts").after(tt.make("section", { class: "tt-logs" }, tt.make("h3", {}, words.logs + " · " + shown), ...found.logs.map(line)));
    }

    _intervals(model, index) {
      const derived = model.derivedOf.get(index);
      if (!derived) return;
      const pairs = derived.map((one) => [
        this.spec.stages[model.data.words[one[1]]] || model.data.words[one[1]],
        tt.duration(one[3]) + "  (+" + tt.duration(one[2]) + ")",
      ]);
      this.place.append(table(this.spec.words.derived, pairs, ""));
    }

    _details(span, model) {
      const words = this.spec.words;
      const status = span.status + (span.status_message ? ": " + span.status_message : "");
      const first = BigInt(model.data.start_unix_ns);
      this.place.append(
        table(words.attributes, Object.entries(span.attributes), words.none),
        ...span.events.map((event) =>
          table(
            words.events + ": " + event.name,
            [["+" + tt.duration(Number(BigInt(event.time_unix_ns) - first)), event.time_unix_ns], ...Object.entries(event.attributes)],
            words.none,
          ),
        ),
        ...(span.links.length ? [table(words.links, span.links.map((link) => [linked(link), link.span_id]), words.none)] : []),
        table(words.resource, Object.entries(span.resource), words.none),
        table(words.raw, [
          [words.start, span.start_unix_ns], [words.end, span.end_unix_ns], [words.received, span.received_at], [words.status, status],
          ["kind", span.kind], ["scope", span.scope], [words.span, span.span_id], [words.parent, span.parent_span_id || "–"],
        ], words.none),
      );
    }
  };
})(window.tailtrace);
