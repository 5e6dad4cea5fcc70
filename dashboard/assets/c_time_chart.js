// A chart over time as SVG: bars, percentile lines with their intervals, a heatmap, deploys and changes. It reads the part of Plotly's
// figures that dashboard/components use for such charts. Plotly took longer to be read and to draw than all else on the overview.
// Colours stay CSS variables, so another theme needs no drawing.
(function (tt) {
  "use strict";
  const NS = "http://www.w3.org/2000/svg";
  const SHADES = 24; // of a heatmap: each is one path
  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const STEPS = [
    SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY,
  ];
  const DASHES = { dot: "2 3", dash: "7 4" };

  function svg(tag, attributes, style, ...children) {
    const node = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    for (const [key, value] of Object.entries(style || {})) node.style.setProperty(key, value);
    node.append(...children);
    return node;
  }

  // The clock of the reader's zone, read as if it were UTC: axes neither know nor need the zone.
  const ms = (time) => Date.parse(time + "Z");
  const round = (pixels) => Math.round(pixels * 10) / 10;

  function tickWords(format, at) {
    const time = new Date(at), two = (n) => String(n).padStart(2, "0");
    const parts = { m: two(time.getUTCMonth() + 1), d: two(time.getUTCDate()), H: two(time.getUTCHours()), M: two(time.getUTCMinutes()), S: two(time.getUTCSeconds()) };
    return format.replace(/%(\w)/g, (whole, key) => parts[key] || whole);
  }

  // [[value, words], ...], no more than have room
  function timeTicks({ nticks, tickformat }, { since, until, wide }) {
    const most = Math.min(nticks, wide / (12 + 7 * tickWords(tickformat, since).length));
    const step = STEPS.find((one) => (until - since) / one <= most) || STEPS[STEPS.length - 1];
    const found = [];
    for (let at = Math.ceil(since / step) * step; at <= until; at += step) found.push([at, tickWords(tickformat, at)]);
    return found;
  }

  function linearTicks([low, high], suffix) {
    const rough = (high - low) / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((one) => one * power >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const found = [];
    for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push([n * step, (n * step).toLocaleString("en", { maximumFractionDigits: digits }) + suffix]);
    return found;
  }

  // Of a log axis in ms: the decades; what lies between them too where fewer than two ticks would be in sight.
  function decades({ tickvals, ticktext }, [low, high]) {
    const seen = ([value]) => Math.log10(value) >= low && Math.log10(value) <= high;
    const words = (value) => tt.duration(value * 1e6).replace(/\.0+ /, " ");
    const between = (parts) => tickvals.flatMap((value) => parts.map((part) => [value * part, words(value * part)]));
    const choices = [tickvals.map((value, index) => [value, ticktext[index]]), between([1, 2, 5]), between([1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9])].map((all) => all.filter(seen));
    return choices.find((ticks) => ticks.length > 1) || choices[2];
  }

  // Where each bar begins: on those before it at the same time.
  function stacked(data) {
    const tops = new Map();
    return data.map((one) => one.type === "bar" && one.x.map((time, index) => {
      const begin = tops.get(time) || 0;
      tops.set(time, begin + (one.y[index] || 0));
      return begin;
    }));
  }

  // Lowest and highest of the y axis; of a log axis their logarithms.
  function reach({ data, layout }, bases) {
    const { range, rangemode, type } = layout.yaxis;
    if (range) return range;
    const log = type === "log";
    let low = Infinity, high = -Infinity;
    const see = (value) => {
      if (value === null || (log && !(value > 0))) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    data.forEach((one, at) => {
      if (one.type === "heatmap") return one.y.forEach(see);
      const error = one.error_y;
      return one.y.forEach((value, index) => {
        see(bases[at] && value !== null ? bases[at][index] + value : value);
        if (!error || value === null) return;
        see(value - error.arrayminus[index]);
        see(value + error.array[index]);
      });
    });
    if (high < low) [low, high] = log ? [1, 10] : [0, 1];
    if (!log) return [rangemode === "tozero" ? 0 : low, high * 1.05 || 1];
    const room = 0.05 * Math.log10(high / low) || 0.3;
    return [Math.log10(low) - room, Math.log10(high) + room];
  }

  // Pixels of times (ms) and values, and back.
  function scaleOf(figure, width, height) {
    const { margin, xaxis, yaxis } = figure.layout;
    const left = margin.l, top = margin.t, wide = Math.max(1, width - left - margin.r), high = Math.max(1, height - top - margin.b);
    const [since, until] = xaxis.range.map(ms);
    const bases = stacked(figure.data);
    const [from, to] = reach(figure, bases);
    const log = yaxis.type === "log";
    const within = (share) => Math.min(1, Math.max(0, share));
    return {
      left, top, wide, high, since, until, log, bases, from, to,
      x: (at) => round(left + (wide * (at - since)) / (until - since)),
      y: (value) => round(top + high * (1 - ((log ? Math.log10(value) : value) - from) / (to - from))),
      time: (pixel) => since + (until - since) * within((pixel - left) / wide),
      value: (pixel) => {
        const value = from + (to - from) * within(1 - (pixel - top) / high);
        return log ? 10 ** value : value;
      },
    };
  }

  // Stripes over a colour, so that colour is never alone. One for all charts, as ids are the document's.
  function hatch() {
    if (!document.getElementById("tt-hatch")) {
      const pattern = svg("pattern", { id: "tt-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, null,
        svg("path", { d: "M0 0V5", "stroke-width": 3 }, { stroke: "var(--muted)" }));
      document.body.append(svg("svg", { width: 0, height: 0, "aria-hidden": "true" }, { position: "absolute" }, pattern));
    }
    return "url(#tt-hatch)";
  }

  // How wide the bars of a column of times are: to the next time, the last as wide as the one before.
  const widthOf = (times, scale) => (times.length > 1 ? times[1] - times[0] : scale.until - scale.since);

  function bars(trace, base, scale) {
    const times = trace.x.map(ms), width = widthOf(times, scale);
    let path = "";
    times.forEach((time, index) => {
      const value = trace.y[index];
      if (!value) return;
      const x = scale.x(time), bottom = scale.y(base[index]), top = scale.y(base[index] + value);
      path += `M${x} ${bottom}V${top}H${scale.x(time + width)}V${bottom}z`;
    });
    const { color, pattern } = trace.marker;
    const whole = svg("path", { d: path, "shape-rendering": "crispEdges" }, { fill: color });
    return pattern ? [whole, svg("path", { d: path }, { fill: hatch() })] : [whole];
  }

  const circle = (x, y, size) => `M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0`;

  function lines(trace, scale) {
    const { color, width } = trace.line, { size, symbol } = trace.marker, error = trace.error_y;
    let path = "", full = "", hollow = "", intervals = "", gap = true;
    trace.x.forEach((time, index) => {
      const value = trace.y[index];
      if (value === null || (scale.log && !(value > 0))) return void (gap = true);
      const x = scale.x(ms(time)), y = scale.y(value), isHollow = symbol[index] === "circle-open";
      path += `${gap ? "M" : "L"}${x} ${y}`;
      gap = false;
      if (isHollow) hollow += circle(x, y, size[index] / 2);
      else full += circle(x, y, size[index] / 2);
      if (!error || !(error.array[index] || error.arrayminus[index])) return undefined;
      const low = value - error.arrayminus[index];
      intervals += `M${x} ${scale.log && !(low > 0) ? scale.top + scale.high : scale.y(low)}V${scale.y(value + error.array[index])}`;
      return undefined;
    });
    const line = (d, stroke) => svg("path", { d, fill: "none", "stroke-width": stroke, "stroke-linejoin": "round" }, { stroke: color });
    return [
      ...(intervals ? [line(intervals, error.thickness)] : []), line(path, width),
      ...(full ? [svg("path", { d: full }, { fill: color })] : []), ...(hollow ? [line(hollow, 1)] : []),
    ];
  }

  function shade(colours, share) {
    const at = share * (colours.length - 1), below = Math.min(colours.length - 2, Math.floor(at));
    return { fill: `color-mix(in srgb, ${colours[below + 1]} ${Math.round(100 * (at - below))}%, ${colours[below]})` };
  }

  function cells(trace, scale) {
    const xs = trace.x.map((time) => scale.x(ms(time))), ys = trace.y.map(scale.y);
    const most = trace.z.reduce((high, row) => row.reduce((found, value) => Math.max(found, value || 0), high), 0);
    const paths = {};
    trace.z.forEach((row, up) => row.forEach((value, along) => {
      if (value === null) return;
      const key = Math.round((SHADES * value) / most);
      paths[key] = (paths[key] || "") + `M${xs[along]} ${ys[up]}V${ys[up + 1]}H${Math.max(xs[along] + 0.5, xs[along + 1] - trace.xgap)}V${ys[up]}z`;
    }));
    const colours = trace.colorscale.map(([, colour]) => colour);
    return Object.entries(paths).map(([key, d]) => svg("path", { d, "shape-rendering": "crispEdges" }, shade(colours, key / SHADES)));
  }

  function axes({ xaxis, yaxis }, scale) {
    const bottom = scale.top + scale.high, right = scale.left + scale.wide;
    const ticks = scale.log ? decades(yaxis, [scale.from, scale.to]) : linearTicks([scale.from, scale.to], yaxis.ticksuffix || "");
    const grid = yaxis.showgrid === false ? "" : ticks.map(([value]) => `M${scale.left} ${scale.y(value)}H${right}`).join("");
    const label = (x, y, anchor, words) => svg("text", { x, y, "text-anchor": anchor }, null, words);
    return [
      svg("path", { d: grid, class: "tt-grid", "shape-rendering": "crispEdges" }),
      ...ticks.map(([value, words]) => label(scale.left - 5, scale.y(value) + 4, "end", words)),
      // The first and the last stay within the chart.
      ...timeTicks(xaxis, scale).map(([time, words]) => {
        const x = scale.x(time), half = 3.2 * words.length;
        return x + half > right + 8 ? label(right + 8, bottom + 15, "end", words) : label(Math.max(x, half), bottom + 15, "middle", words);
      }),
    ];
  }

  function shape(one, scale) {
    const stroke = { stroke: one.line.color };
    const look = { "stroke-width": one.line.width, "stroke-dasharray": DASHES[one.line.dash] || "none" };
    const x = scale.x(ms(one.x0));
    if (one.type === "line") return svg("path", { d: `M${x} ${scale.top}V${scale.top + scale.high}`, ...look }, stroke);
    const y = scale.y(one.y1);
    return svg("rect", { x, y, width: Math.max(1, scale.x(ms(one.x1)) - x), height: Math.max(1, scale.y(one.y0) - y), ...look }, { ...stroke, fill: one.fillcolor });
  }

  // Texts come escaped, as Plotly reads a little HTML in them.
  const plain = (words) => words.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

  function note(one, scale) {
    const y = scale.top + scale.high * (1 - one.y) + one.font.size;
    const title = svg("title", {}, null, plain(one.hovertext));
    return svg("text", { x: scale.x(ms(one.x)) + 2, y, class: "tt-note", "font-size": one.font.size }, { fill: one.font.color }, plain(one.text), title);
  }

  function draw(place, chart) {
    const { figure, width, height } = chart;
    if (!width) return; // folded away
    const scale = (chart.scale = scaleOf(figure, width, height));
    const { data, layout } = figure;
    const inside = svg("svg", { x: scale.left, y: scale.top, width: scale.wide, height: scale.high, viewBox: `${scale.left} ${scale.top} ${scale.wide} ${scale.high}` });
    data.forEach((trace, at) => inside.append(...(trace.type === "heatmap" ? cells(trace, scale) : trace.type === "bar" ? bars(trace, scale.bases[at], scale) : lines(trace, scale))));
    inside.append(...(layout.shapes || []).map((one) => shape(one, scale)));
    const seen = (one) => ms(one.x) >= scale.since && ms(one.x) <= scale.until;
    const drawn = svg("svg", { width, height, "aria-hidden": "true" }, null, ...axes(layout, scale), inside, ...(layout.annotations || []).filter(seen).map((one) => note(one, scale)));
    if (chart.drawn) chart.drawn.replaceWith(drawn);
    else place.prepend(drawn);
    chart.drawn = drawn;
    delete place.dataset.waiting;
  }

  const known = new WeakMap(); // place -> what is drawn there
  // Widths are told after the layout and before the paint, of all charts at once: none makes the page be laid out for itself.
  const resized = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const chart = known.get(target);
      const width = Math.floor(contentRect.width);
      if (!chart || chart.width === width) continue;
      chart.width = width;
      draw(target, chart);
    }
  });

  // Draws a figure, or another one, in a place.
  tt.timeChart = function (place, figure, height) {
    let chart = known.get(place);
    place.data = figure.data;
    if (chart) {
      Object.assign(chart, { figure, height });
      draw(place, chart);
      return tt.tableAgain(place);
    }
    chart = { figure, height, width: 0, scale: null, drawn: null };
    known.set(place, chart);
    resized.observe(place);
    return tt.timeChartInput(place, chart);
  };

  tt.timeChartGone = (place) => resized.unobserve(place);
  tt.chartTime = ms;
})(window.tailtrace);
