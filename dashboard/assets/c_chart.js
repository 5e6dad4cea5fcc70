// A chart: a figure of Plotly as JSON, drawn by c_time_chart.js or by Plotly in the colours of the theme. What is done to it goes to the address.
(function (tt) {
  "use strict";

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

  function go(changes) {
    const address = new URLSearchParams(window.location.search);
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) address.delete(key);
      else address.set(key, value);
    }
    tt.go(window.location.pathname + "?" + address.toString());
  }

  // A range of time was dragged, in the reader's zone.
  tt.zoomTo = (since, until) => go({ since: tt.addressTime(since), until: tt.addressTime(until), range: null });

  function zoom(layout) {
    if (layout["xaxis.range[0]"]) tt.zoomTo(layout["xaxis.range[0]"], layout["xaxis.range[1]"]);
  }

  // A box was dragged on the heatmap, times in the reader's zone and ms: since, until, low, high in ns.
  tt.markBox = function (times, sizes) {
    const bounds = times.map((time) => BigInt(Date.parse(tt.addressTime(time))) * 1000000n);
    go({ box: [...bounds, ...sizes.map((ms) => Math.max(0, Math.round(ms * 1e6)))].join(",") });
  };

  // A cell of the heatmap, or any other point that holds where it leads.
  tt.openPoint = function (target) {
    if (typeof target !== "string") return;
    if (/^[0-9a-f]{32}$/.test(target)) tt.go("/requests/" + target);
    else if (target.startsWith("/") && !target.startsWith("//")) tt.go(target);
  };

  const point = (clicked) => tt.openPoint(clicked.points && clicked.points[0] && clicked.points[0].customdata);

  let line = Promise.resolve();
  // After the next frame; a tab that is hidden has none.
  const painted = () => new Promise((next) => (document.hidden ? setTimeout(next) : requestAnimationFrame(() => setTimeout(next))));

  function draw(place, figure, config) {
    const { data, layout } = coloured(JSON.parse(figure), resolver());
    const isNew = !place.on;
    // Its promise is not waited for: that of a chart which is taken away meanwhile never ends.
    window.Plotly.react(place, data, layout, config);
    if (!isNew) return tt.tableAgain(place);
    place.on("plotly_relayout", zoom);
    place.on("plotly_click", point);
    return undefined;
  }

  function TimeChart({ figure, height }) {
    const { createElement, useLayoutEffect, useRef } = window.React;
    const place = useRef(null);
    useLayoutEffect(() => void tt.timeChart(place.current, JSON.parse(figure), height), [figure, height]);
    useLayoutEffect(() => {
      const own = place.current;
      return () => tt.timeChartGone(own);
    }, []);
    return createElement("div", { ref: place, className: "tt-graph is-time", "data-waiting": "1", style: { height } });
  }

  function PlotlyChart({ figure, config, height }) {
    const { createElement, useEffect, useLayoutEffect, useRef, useState } = window.React;
    const place = useRef(null);
    const [themes, setThemes] = useState(0);
    useEffect(() => {
      const changed = () => setThemes((n) => n + 1);
      window.addEventListener("tt-theme", changed);
      return () => window.removeEventListener("tt-theme", changed);
    }, []);
    // One after the other, each when the one before has been painted: the first chart does not wait for the last.
    useLayoutEffect(() => {
      let wanted = true;
      const own = place.current;
      own.dataset.waiting = "1";
      line = line.then(tt.charts).then(async () => {
        if (!wanted) return;
        draw(own, figure, config);
        await painted();
        if (wanted) delete own.dataset.waiting;
      }).catch((error) => console.error(error));
      return () => { wanted = false; };
    }, [figure, themes]);
    useEffect(() => {
      const own = place.current;
      return () => window.Plotly && window.Plotly.purge(own);
    }, []);
    return createElement("div", { ref: place, className: "tt-graph", style: { height } });
  }

  tt.Chart = ({ over_time: overTime, ...chart }) => window.React.createElement(overTime ? TimeChart : PlotlyChart, chart);
})(window.tailtrace);
