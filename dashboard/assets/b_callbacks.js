// Clientside callbacks: filters to address and back, the refresh clock, what scripts of their own draw.
window.dash_clientside = window.dash_clientside || {};

(function (tt) {
  "use strict";
  const keep = () => window.dash_clientside.no_update;
  const defaults = { range: "1h", order: "newest", root: "true", state: "previous" };
  const TEXTS = { min: 1, max: 1, text: 1, where: 1, factor: 1, a_filter: 1, b_filter: 1 };
  const LISTS = { columns: "outcome,service,request,duration,ttft,tokens,stages" }; // and what stands for none
  const NUMBERS = { x_queue: 1, x_prefill: 1, x_decode: 1, x_tokenize: 1, rate: 1, replicas: 0 }; // and what changes nothing
  const MOMENTS = { since: 1, until: 1, a_since: 1, a_until: 1 }; // "2026-11-30 14:05:00" in the picker, Unix ns or ISO in the address // free text: empty is "", a choice that is not made is null
  const SECONDS = { off: 0, live: 2, "10s": 10, "30s": 30, "1m": 60 };

  const given = {}; // by control: what the address gave it of late
  const ECHO_MS = 1500;
  const recent = (key) => (given[key] || []).filter((one) => performance.now() - one.at < ECHO_MS);

  // Not now: the last answer is still on its way (a newer question would drop it), text is marked, a menu is open, the pointer is
  // on a chart, or nobody looks at the tab.
  const BUSY = "#body[data-dash-is-loading], .hoverlayer .hovertext, .tt-tip:not([hidden]), [aria-expanded=true]:not(.tt-fold)";
  function busy() {
    return document.hidden || String(window.getSelection()) !== "" || document.querySelector(BUSY) !== null;
  }

  // What a control should show for an address; no_update where it shows that already.
  function shown(address, key, value) {
    if (key in LISTS) {
      const list = address.get(key) || LISTS[key];
      return list === (value || []).join(",") ? keep() : list.split(",");
    }
    if (key in MOMENTS) {
      const moment = tt.pickerTime(address.get(key) || "");
      return moment === (value || "") ? keep() : moment || null;
    }
    if (key in NUMBERS) {
      const number = address.has(key) ? Number(address.get(key)) : NUMBERS[key];
      return number === value ? keep() : number;
    }
    const wanted = key === "range" && address.has("since") ? "absolute" : address.get(key) || defaults[key] || "";
    return wanted === (value || "") ? keep() : wanted || (key in TEXTS ? "" : null);
  }

  // The query string after the controls were read into it; null when that changes nothing.
  function written(address, keys, values) {
    const before = address.toString();
    keys.forEach((key, index) => {
      let value = values[index];
      if (key in LISTS) value = (value || []).join(",") === LISTS[key] ? "" : (value || []).join(",");
      if (key in NUMBERS) value = Number(value) === NUMBERS[key] ? "" : String(value);
      if (key in MOMENTS) {
        if (tt.pickerTime(address.get(key) || "") !== (value || "")) address.set(key, value ? tt.addressTime(value) : "");
        if (!address.get(key)) address.delete(key);
        return;
      }
      if (key === "range" && value !== "absolute" && value !== (address.get("range") || defaults.range)) ["since", "until"].forEach((bound) => address.delete(bound));
      if (key === "range" && value === "absolute") return;
      if (value === null || value === undefined || value === "" || value === defaults[key]) address.delete(key);
      else address.set(key, value);
    });
    if (address.toString() === before) return null;
    address.delete("cursor");
    return address.size ? "?" + address.toString() : "";
  }

  window.dash_clientside.tailtrace = {
    tick: function (clock, refreshes, last) {
      // The first-run page waits for data by itself; every other page refreshes only when asked to.
      const seconds = document.querySelector(".tt-first") ? 3 : SECONDS[(refreshes || [])[0]] || 0;
      if (!seconds || !clock || clock % seconds || busy()) return keep();
      return (last || 0) + 1;
    },

    // Both ways in one: controls write the address, an address that changed otherwise (Back, a link) sets the controls.
    // A control that already shows what the address says is left alone, so text being typed stays; and it costs 5 ms each.
    filter: function (values, search, ids) {
      // Controls that are being taken away: an answer for them, even of no change, ends all callbacks of the page.
      if (!ids.every(Boolean)) throw window.dash_clientside.PreventUpdate;
      const address = new URLSearchParams(search || "");
      const triggered = window.dash_clientside.callback_context.triggered.map((one) => one.prop_id);
      if (triggered.includes("url.search")) {
        ids.forEach((id, index) => {
          const value = shown(address, id.key, values[index]);
          if (value === keep()) return;
          given[id.key] = [...recent(id.key), { value: String(value ?? ""), at: performance.now() }];
          setTimeout(() => window.dash_clientside.set_props(id, { value })); // the drawing is asked for first
        });
        throw window.dash_clientside.PreventUpdate;
      }
      // Only what the reader has changed: a control that waits while one types says late what it was given.
      const changed = ids.map((id, index) => [id.key, values[index]]).filter(([key, value]) => {
        const own = triggered.some((one) => one.startsWith("{") && JSON.parse(one.slice(0, one.lastIndexOf("."))).key === key);
        return own && !recent(key).some((one) => one.value === String(value ?? ""));
      });
      const after = written(address, changed.map(([key]) => key), changed.map(([, value]) => value));
      if (after === null) throw window.dash_clientside.PreventUpdate;
      return after;
    },

    waterfall: function (spec) {
      const place = document.getElementById("waterfall");
      if (spec && place) tt.waterfall(place, spec);
      return keep();
    },
  };
})(window.tailtrace);
