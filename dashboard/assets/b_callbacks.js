// Clientside callbacks: filters to address, colours into charts, zoom to address, the refresh clock.
window.dash_clientside = window.dash_clientside || {};

(function (tt) {
  "use strict";
  const keep = () => window.dash_clientside.no_update;
  const defaults = { range: "1h", order: "newest", root: "true" };
  const TEXTS = { min: 1, max: 1, text: 1 }; // free text: empty is "", a choice that is not made is null
  const SECONDS = { off: 0, "10s": 10, "30s": 30, "1m": 60 };

  function resolver() {
    const style = getComputedStyle(document.documentElement);
    const known = {};
    return (name) => (known[name] = known[name] || style.getPropertyValue(name).trim());
  }

  // A copy of a figure in which "var(--x)" has become the colour of the current theme.
  function coloured(value, colour) {
    if (typeof value === "string") return value.startsWith("var(--") ? colour(value.slice(4, -1)) : value;
    if (Array.isArray(value)) return typeof value[0] === "object" && value[0] ? value.map((one) => coloured(one, colour)) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, colour)]));
    }
    return value;
  }

  // Not now: the last answer is still on its way (a newer question would drop it), text is marked, a menu is open, the pointer is
  // on a chart, or nobody looks at the tab.
  const BUSY = "#body[data-dash-is-loading], .hoverlayer .hovertext, [aria-expanded=true]:not(.tt-fold)";
  function busy() {
    return document.hidden || String(window.getSelection()) !== "" || document.querySelector(BUSY) !== null;
  }

  // What a control should show for an address; no_update where it shows that already.
  function shown(address, key, value) {
    const wanted = key === "range" && address.has("since") ? "absolute" : address.get(key) || defaults[key] || "";
    return wanted === (value || "") ? keep() : wanted || (key in TEXTS ? "" : null);
  }

  // The query string after the controls were read into it; null when that changes nothing.
  function written(address, keys, values) {
    const before = address.toString();
    keys.forEach((key, index) => {
      const value = values[index];
      if (key === "range" && value !== "absolute") ["since", "until"].forEach((bound) => address.delete(bound));
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

    figure: function (figure) {
      return figure ? coloured(figure, resolver()) : keep();
    },

    zoom: function (layouts, search) {
      const triggered = window.dash_clientside.callback_context.triggered[0];
      const layout = triggered && triggered.value;
      if (!layout || !layout["xaxis.range[0]"]) return keep();
      const address = new URLSearchParams(search || "");
      address.set("since", layout["xaxis.range[0]"].replace(" ", "T").slice(0, 19) + "Z");
      address.set("until", layout["xaxis.range[1]"].replace(" ", "T").slice(0, 19) + "Z");
      address.delete("range");
      return "?" + address.toString();
    },

    waterfall: function (spec) {
      const place = document.getElementById("waterfall");
      if (spec && place) tt.waterfall(place, spec);
      return keep();
    },
  };
})(window.tailtrace);
