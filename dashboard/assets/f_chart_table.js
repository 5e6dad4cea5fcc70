// The figures of a chart as a table: what a screen reader reads, and what can be copied.
(function (tt) {
  "use strict";
  const MOST = 500;

  function text(value) {
    if (value === null || value === undefined) return "";
    return typeof value === "number" ? String(Math.round(value * 1000) / 1000) : String(value);
  }

  function rows(traces) {
    const named = traces.filter((one) => one.type !== "heatmap" && one.x && one.y);
    const flat = named.some((one) => one.orientation === "h");
    const keys = [...new Set(named.flatMap((one) => Array.from(flat ? one.y : one.x)))];
    const by = named.map((one) => {
      const key = Array.from(flat ? one.y : one.x), value = Array.from(flat ? one.x : one.y);
      const words = Array.isArray(one.customdata) ? one.customdata : [];
      return new Map(key.map((at, index) => [at, typeof words[index] === "string" && words[index] ? words[index] : text(value[index])]));
    });
    return { heads: named.map((one) => one.name || ""), lines: keys.slice(0, MOST).map((key) => [text(key), ...by.map((map) => map.get(key) || "")]) };
  }

  function table(plot) {
    const { heads, lines } = rows(plot.data);
    const row = (cells, tag) => tt.make("tr", {}, ...cells.map((cell) => tt.make(tag, {}, cell)));
    return tt.make("div", { class: "tt-chart-table tt-scroll", tabindex: "0" },
      tt.make("table", { class: "tt-table" }, tt.make("thead", {}, row(["", ...heads], "th")), tt.make("tbody", {}, ...lines.map((line) => row(line, "td")))));
  }

  tt.asTable = function (button) {
    const panel = button.closest(".tt-panel");
    const open = panel.querySelector(".tt-chart-table");
    button.setAttribute("aria-expanded", String(!open));
    if (open) return open.remove();
    const plot = panel.querySelector(".tt-graph");
    if (plot && plot.data) panel.append(table(plot));
  };

  // A chart has been drawn anew: so is its table, where one is open.
  tt.tableAgain = function (plot) {
    const panel = plot.closest(".tt-panel");
    const open = panel && panel.querySelector(".tt-chart-table");
    if (open) open.replaceWith(table(plot));
  };
})(window.tailtrace);
