// Clientside callbacks: filters to address, colours into charts, zoom to address, the refresh clock.
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

  function resolver() {
    const style = getComputedStyle(document.documentElement);
    const known = {};
    return (name) => (known[name] = known[name] || style.getPropertyValue(name).trim());
  }

  // A copy of a figure in which "var(--x)" has become the colour of the current theme.
  function coloured(value, colour) {
    if (typeof value === "string") return value.startsWith("var(--") ? colour(value.slice(4, -1)) : value;
    if (Array.isArray(value)) {
      // Long columns of numbers, times and words are left alone.
      const first = value[0];
      const some = (typeof first === "object" && first) || (typeof first === "string" && first.startsWith("var(--")) || value.length <= 2;
      return some ? value.map((one) => coloured(one, colour)) : value;
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, colour)]));
    }
    return value;
  }

  let line = Promise.resolve();
  // After the next frame; a tab that is hidden has none.
  const painted = () => new Promise((next) => (document.hidden ? setTimeout(next) : requestAnimationFrame(() => setTimeout(next))));

  // Not now: the last answer is still on its way (a newer question would drop it), text is marked, a menu is open, the pointer is
  // on a chart, or nobody looks at the tab.
  const BUSY = "#body[data-dash-is-loading], .hoverlayer .hovertext, [aria-expanded=true]:not(.tt-fold)";
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
    // A control that already shows what the address says is left alone, so text being typed stays.
    filter: function (values, search, ids) {
      const address = new URLSearchParams(search || "");
      const triggered = window.dash_clientside.callback_context.triggered.map((one) => one.prop_id);
      if (triggered.includes("url.search")) return [keep(), ids.map((id, index) => shown(address, id.key, values[index]))];
      const after = written(address, ids.map((id) => id.key), values);
      return [after === null ? keep() : after, ids.map(keep)];
    },

    // One after the other, each when the one before has been painted: the first chart does not wait for the last.
    figure: async function (chart) {
      if (!chart) return keep();
      await tt.charts();
      const graph = () => ({ type: "Graph", namespace: "dash_core_components", props: { ...chart.graph, figure: coloured(chart.figure, resolver()) } });
      const own = line.then(graph);
      line = own.then(() => painted());
      return own;
    },

    zoom: function (layouts, search) {
      const triggered = window.dash_clientside.callback_context.triggered[0];
      const layout = triggered && triggered.value;
      if (!layout || !layout["xaxis.range[0]"]) return keep();
      const address = new URLSearchParams(search || "");
      address.set("since", tt.addressTime(layout["xaxis.range[0]"]));
      address.set("until", tt.addressTime(layout["xaxis.range[1]"]));
      address.delete("range");
      return "?" + address.toString();
    },

    // A box dragged on the heatmap: since, until, low, high in ns.
    box: function (selections, search) {
      const triggered = window.dash_clientside.callback_context.triggered[0];
      const range = triggered && triggered.value && triggered.value.range;
      if (!range || !range.x || !range.y) return keep();
      const address = new URLSearchParams(search || "");
      const times = range.x.map((time) => BigInt(Date.parse(tt.addressTime(time))) * 1000000n);
      const sizes = range.y.map((ms) => Math.max(0, Math.round(ms * 1e6)));
      const sorted = (pair) => (pair[0] <= pair[1] ? pair : [pair[1], pair[0]]);
      address.set("box", [...sorted(times), ...sorted(sizes)].join(","));
      return "?" + address.toString();
    },

    // A cell of the heatmap, or any other point that holds where it leads.
    point: function (clicks) {
      const triggered = window.dash_clientside.callback_context.triggered[0];
      const point = triggered && triggered.value && triggered.value.points && triggered.value.points[0];
      const target = point && point.customdata;
      if (typeof target !== "string") return keep();
      if (/^[0-9a-f]{32}$/.test(target)) tt.go("/requests/" + target);
      else if (target.startsWith("/") && !target.startsWith("//")) tt.go(target);
      return keep();
    },

    saved: function (words) {
      const place = document.getElementById("saved-views");
      if (words && place) tt.savedViews(place, words);
      return keep();
    },

    waterfall: function (spec) {
      const place = document.getElementById("waterfall");
      if (spec && place) tt.waterfall(place, spec);
      return keep();
    },
  };
})(window.tailtrace);
