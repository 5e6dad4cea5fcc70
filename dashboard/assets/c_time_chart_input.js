// What a pointer does on a chart over time: it reads the values of a moment, drags a range or a box, opens a cell of a heatmap.
(function (tt) {
  "use strict";
  const MOVED = 4; // pixels; less is a click

  const iso = (at) => new Date(at).toISOString().slice(0, 23);

  function tipOf(place) {
    const tip = tt.make("div", { class: "tt-tip", hidden: true });
    const line = tt.make("div", { class: "tt-tip-line", hidden: true });
    place.append(line, tip);
    return { tip, line };
  }

  // Where in a column of times a moment is: the last that is not after it, or the nearest.
  function indexAt(times, at, nearest) {
    const half = nearest && times.length > 1 ? (times[1] - times[0]) / 2 : 0;
    let found = -1;
    while (found + 1 < times.length && times[found + 1] <= at + half) found += 1;
    return found;
  }

  // What is said of a moment: its time, then each trace that has a value there.
  function momentRows({ figure, scale }, at) {
    const traces = figure.data.filter((one) => one.customdata && one.hoverinfo !== "skip");
    if (!traces.length) return null;
    const times = traces[0].x.map(tt.chartTime);
    const index = indexAt(times, at, traces[0].type !== "bar");
    if (index < 0) return null;
    const rows = traces.filter((one) => one.y[index] !== null && (one.type !== "bar" || one.y[index])).map((one) => {
      const swatch = tt.make("i", {});
      swatch.style.background = one.type === "bar" ? one.marker.color : one.line.color;
      return tt.make("div", {}, swatch, one.name, " ", tt.make("b", {}, one.customdata[index]));
    });
    if (!rows.length) return null;
    return { x: scale.x(times[index]), nodes: [tt.make("div", { class: "tt-tip-time" }, traces[0].x[index].slice(0, 19).replace("T", " ")), ...rows] };
  }

  // [row, column] of the heatmap's cell below a point; null outside and where nothing was counted.
  function cellAt(heatmap, scale, x, y) {
    const value = scale.value(y), column = indexAt(heatmap.x.map(tt.chartTime), scale.time(x), false);
    const row = heatmap.y.findIndex((edge, index) => edge <= value && heatmap.y[index + 1] > value);
    return row >= 0 && column >= 0 && column < heatmap.z[row].length && heatmap.z[row][column] !== null ? [row, column] : null;
  }

  tt.timeChartInput = function (place, chart) {
    let shown = null, drag = null;
    const heatmap = () => chart.figure.data.find((one) => one.type === "heatmap");
    const within = ({ x, y }) => chart.scale && x >= chart.scale.left && x <= chart.scale.left + chart.scale.wide && y >= 0 && y <= chart.scale.top + chart.scale.high;

    function at(event) {
      const box = place.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    }

    function hide() {
      if (shown) shown.tip.hidden = shown.line.hidden = true;
    }

    function tell(point) {
      const map = heatmap();
      const cell = map && within(point) && cellAt(map, chart.scale, point.x, point.y);
      const found = map ? cell && { nodes: [map.text[cell[0]][cell[1]]] } : within(point) && momentRows(chart, chart.scale.time(point.x));
      place.style.cursor = cell ? "pointer" : "crosshair";
      if (!found) return hide();
      shown = shown || tipOf(place);
      const { tip, line } = shown;
      tip.replaceChildren(...found.nodes);
      tip.hidden = false;
      line.hidden = found.x === undefined;
      if (!line.hidden) Object.assign(line.style, { left: found.x + "px", top: chart.scale.top + "px", height: chart.scale.high + "px" });
      const left = point.x + 14 + tip.offsetWidth > chart.width ? point.x - 14 - tip.offsetWidth : point.x + 14;
      Object.assign(tip.style, { left: Math.max(0, left) + "px", top: Math.max(0, Math.min(point.y + 10, chart.height - tip.offsetHeight)) + "px" });
      return undefined;
    }

    function mark(point) {
      const { left, top, wide, high } = chart.scale, free = chart.figure.layout.dragmode === "select";
      const held = (value, low, size) => Math.min(low + size, Math.max(low, value));
      const xs = [drag.from.x, held(point.x, left, wide)].sort((a, b) => a - b);
      const ys = free ? [drag.from.y, held(point.y, top, high)].sort((a, b) => a - b) : [top, top + high];
      Object.assign(drag.node.style, { left: xs[0] + "px", width: xs[1] - xs[0] + "px", top: ys[0] + "px", height: ys[1] - ys[0] + "px" });
      drag.marked = { xs, ys, free };
    }

    function stop() {
      window.removeEventListener("keydown", escape);
      if (drag) drag.node.remove();
      drag = null;
    }

    function escape(event) {
      if (event.key === "Escape") stop();
    }

    place.addEventListener("pointerdown", (event) => {
      const from = at(event);
      if (event.button !== 0 || !within(from)) return;
      event.preventDefault(); // no text is marked
      place.setPointerCapture(event.pointerId);
      drag = { from, node: tt.make("div", { class: "tt-drag" }), marked: null };
      place.append(drag.node);
      window.addEventListener("keydown", escape);
    });
    place.addEventListener("pointermove", (event) => {
      const point = at(event);
      if (!drag) return tell(point);
      if (drag.marked || Math.hypot(point.x - drag.from.x, point.y - drag.from.y) > MOVED) {
        hide();
        mark(point);
      }
      return undefined;
    });
    place.addEventListener("pointerup", () => {
      const done = drag;
      stop();
      if (!done) return;
      const { scale } = chart;
      if (!done.marked) {
        const map = heatmap(), cell = map && cellAt(map, scale, done.from.x, done.from.y);
        if (cell) tt.openPoint(map.customdata[cell[0]][cell[1]]);
        return;
      }
      const { xs, ys, free } = done.marked, times = xs.map((x) => iso(scale.time(x)));
      if (free) tt.markBox(times, [scale.value(ys[1]), scale.value(ys[0])]);
      else tt.zoomTo(...times);
    });
    place.addEventListener("pointercancel", stop);
    place.addEventListener("pointerleave", hide);
  };
})(window.tailtrace);
