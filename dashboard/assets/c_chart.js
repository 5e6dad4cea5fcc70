// A chart: a figure of Plotly as JSON, in the colours of the theme. What is done to it goes to the address.
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

  function zoom(layout) {
    if (!layout["xaxis.range[0]"]) return;
    go({ since: tt.addressTime(layout["xaxis.range[0]"]), until: tt.addressTime(layout["xaxis.range[1]"]), range: null });
  }

  // A box dragged on the heatmap: since, until, low, high in ns.
  function box(selected) {
    const range = selected && selected.range;
    if (!range || !range.x || !range.y) return;
    const times = range.x.map((time) => BigInt(Date.parse(tt.addressTime(time))) * 1000000n);
    const sizes = range.y.map((ms) => Math.max(0, Math.round(ms * 1e6)));
    const sorted = (pair) => (pair[0] <= pair[1] ? pair : [pair[1], pair[0]]);
    go({ box: [...sorted(times), ...sorted(sizes)].join(",") });
  }

  // A cell of the heatmap, or any other point that holds where it leads.
  function point(clicked) {
    const target = clicked.points && clicked.points[0] && clicked.points[0].customdata;
    if (typeof target !== "string") return;
    if (/^[0-9a-f]{32}$/.test(target)) tt.go("/requests/" + target);
    else if (target.startsWith("/") && !target.startsWith("//")) tt.go(target);
  }

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
    place.on("plotly_selected", box);
    place.on("plotly_click", point);
    return undefined;
  }

  tt.Chart = function ({ figure, config, height }) {
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
  };
})(window.tailtrace);
