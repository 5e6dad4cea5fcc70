// The waterfall: a name tree beside bars on a time axis. Only the rows in view are in the document, so size does not matter.
(function (tt) {
  "use strict";
  const ROW = 22;
  const MARGIN = 12;
  const TICKS = 5;

  class View {
    constructor(place, spec, data) {
      this.place = place;
      this.spec = spec;
      this.model = new tt.TraceModel(data);
      this.window = [0, Math.max(1, data.duration_ns)];
      this.selected = -1;
      this.query = "";
      this.pathOnly = false;
      this._build();
      this._restore();
      this.draw();
    }

    _build() {
      const words = this.spec.words;
      const data = this.model.data;
      const button = (word, act, title) => tt.make("button", { class: "tt-button is-small", onclick: act, title }, words[word]);
      this.find = tt.make("input", { type: "search", class: "tt-find", placeholder: words.search, "aria-label": words.search });
      this.find.addEventListener("input", () => this.search(this.find.value));
      this.matches = tt.make("span", { class: "tt-caption" });
      this.pathButton = button("critical", () => this.togglePath());
      this.pathButton.setAttribute("aria-pressed", "false");
      this.keys = tt.make("p", { class: "tt-keys", hidden: true }, words.keys);
      const shown = tt.words(words.showing, { shown: data.shown.toLocaleString("en"), total: data.total.toLocaleString("en") });
      this.toolbar = tt.make(
        "div", { class: "tt-toolbar" }, this.find, this.matches, this.pathButton,
        button("fold", () => this.act(() => this.model.foldAll(1))), button("unfold", () => this.act(() => this.model.foldAll(0))),
        button("fit", () => this.zoom(0, data.duration_ns)), button("help", () => (this.keys.hidden = !this.keys.hidden)),
        ...this._findings(words),
        tt.make("span", { class: "tt-caption tt-shown" }, shown),
      );
      this.map = tt.make("canvas", { class: "tt-minimap", height: 44, "aria-hidden": "true" });
      this.brush = tt.make("div", { class: "tt-brush" });
      this.axis = tt.make("div", { class: "tt-axis" });
      this.rows = tt.make("div", { class: "tt-rows" });
      this.scroll = tt.make("div", { class: "tt-rows-scroll", tabindex: "0", role: "tree", "aria-label": words.search }, this.rows);
      this.side = tt.make("aside", { class: "tt-side", hidden: true });
      this.panel = new tt.SpanPanel(this.side, this.spec, () => this.select(-1));
      this.place.replaceChildren(
        this.toolbar, this.keys,
        tt.make(
          "div", { class: "tt-split-view" },
          tt.make("div", { class: "tt-lanes" }, tt.make("div", { class: "tt-map-row" }, this.map, this.brush), this.axis, this.scroll),
          this.side,
        ),
      );
      this.scroll.addEventListener("scroll", () => this.later());
      this.scroll.addEventListener("click", (event) => this.clicked(event));
      this.scroll.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      this.resize = new ResizeObserver(() => this.draw());
      this.resize.observe(this.scroll);
      this.theme = new MutationObserver(() => this.minimap());
      this.theme.observe(document.documentElement, { attributeFilter: ["data-mantine-color-scheme"] });
      tt.dragRange(this.map.parentNode, (from, to) => this.zoom(from * data.duration_ns, to * data.duration_ns));
      this.keyed = tt.waterfallKeys(this);
    }

    // What is odd about the trace: spans whose parent never came, clocks that differ; the latter can be put right in the view.
    _findings(words) {
      const found = [];
      const orphans = this.model.orphans();
      if (orphans) found.push(tt.make("span", { class: "tt-skew" }, "⤒ " + tt.words(words.orphans, { n: orphans.toLocaleString("en") })));
      if (this.model.skewed) {
        this.skewButton = tt.make("button", { class: "tt-button is-small", "aria-pressed": "false", title: words.skew_hint, onclick: () => this.correct(!this.model.corrected) }, words.skew_fix);
        found.push(tt.make("span", { class: "tt-skew" }, "⚠ " + tt.words(words.skew, { n: this.model.skewed.toLocaleString("en") }), this.skewButton));
      }
      return found;
    }

    correct(on) {
      this.model.corrected = on;
      this.skewButton.setAttribute("aria-pressed", String(on));
      tt.remember({ clocks: on ? "corrected" : null });
      this.draw();
    }

    stop() {
      this.resize.disconnect();
      this.theme.disconnect();
      document.removeEventListener("keydown", this.keyed);
    }

    // The selected span and the zoom live in the address.
    _restore() {
      const address = new URLSearchParams(window.location.search);
      const zoom = (address.get("zoom") || "").split("-").map(Number);
      if (zoom.length === 2 && zoom.every(Number.isFinite) && zoom[1] > zoom[0]) this.window = zoom;
      if (address.get("dim") === "1") this.togglePath();
      if (address.get("clocks") === "corrected" && this.skewButton) this.correct(true);
      const index = this.model.indexOf.get((address.get("span") || "").toLowerCase());
      if (index !== undefined) requestAnimationFrame(() => this.select(index));
    }

    act(change) {
      change();
      this.draw();
    }

    later() {
      if (!this.pending) this.pending = requestAnimationFrame(() => ((this.pending = 0), this.drawRows()));
    }

    draw() {
      this.minimap();
      this.drawAxis();
      this.drawRows();
    }

    position(ns) {
      return (100 * (ns - this.window[0])) / (this.window[1] - this.window[0]);
    }

    drawAxis() {
      const [from, to] = this.window;
      const ticks = [];
      for (let i = 0; i < TICKS; i++) {
        const at = from + ((to - from) * i) / (TICKS - 1);
        ticks.push(tt.make("span", { style: `left:${(100 * i) / (TICKS - 1)}%` }, tt.duration(at)));
      }
      this.axis.replaceChildren(tt.make("div", { class: "tt-ticks" }, ...ticks));
    }

    drawRows() {
      const rows = this.model.visible;
      const height = Math.max(this.scroll.clientHeight, 640);
      const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - MARGIN);
      const last = Math.min(rows.length, Math.ceil((this.scroll.scrollTop + height) / ROW) + MARGIN);
      this.rows.style.height = rows.length * ROW + "px";
      this.place.style.setProperty("--gutter", this.scroll.offsetWidth - this.scroll.clientWidth + "px");
      const nodes = [];
      for (let at = first; at < last; at++) nodes.push(this.row(rows[at], at));
      this.rows.replaceChildren(...nodes);
    }

    row(row, at) {
      const { model } = this;
      const { data } = model;
      const index = row.index;
      const onPath = model.pathOf.has(index);
      const match = this.query && this.matchesQuery(index);
      const classes = ["tt-row"];
      if (index === this.selected) classes.push("is-selected");
      if (match) classes.push("is-match");
      if ((this.pathOnly && !onPath) || (this.query && !match)) classes.push("is-dim");
      return tt.make(
        "div",
        { class: classes.join(" "), style: `top:${at * ROW}px`, "data-at": at, role: "treeitem", "aria-level": data.depths[index] + 1, "aria-selected": index === this.selected },
        this.nameCell(row),
        tt.make("div", { class: "tt-track" }, ...this.bars(row)),
      );
    }

    nameCell(row) {
      const { model } = this;
      const index = row.index;
      const size = model.data.sizes[index];
      const foldable = row.group || size;
      const open = row.group ? false : !model.folded[index];
      const sign = foldable ? tt.make("button", { class: "tt-fold", tabindex: "-1", "aria-expanded": open, "data-fold": "1" }, open ? "▾" : "▸") : tt.make("i", { class: "tt-fold" });
      const extra = row.group
        ? tt.make("small", {}, `× ${row.group.length.toLocaleString("en")} ${this.spec.words.group}`)
        : !open && size ? tt.make("small", {}, size.toLocaleString("en")) : null;
      const flags = model.data.flags[index];
      return tt.make(
        "div",
        { class: "tt-name", style: `padding-left:${4 + Math.min(model.data.depths[index], 24) * 12}px`, title: `${model.service(index)}: ${model.name(index)}` },
        sign,
        tt.make("i", { class: "tt-service", style: `background:var(--service-${model.data.services[index] % 8})` }),
        tt.make("span", { class: "tt-name-text" }, model.name(index)),
        extra,
        flags & 1 ? tt.make("b", { class: "tt-mark is-bad", title: this.spec.words.error }, "!") : null,
        flags & 2 ? tt.make("b", { class: "tt-mark", title: this.spec.words.orphan }, "⤒") : null,
        model.clipped.has(index) && !row.group ? tt.make("b", { class: "tt-mark", title: this.spec.words.clipped }, "⇹") : null,
        tt.make("small", { class: "tt-service-name" }, model.service(index)),
      );
    }

    bars(row) {
      const { model } = this;
      const { data } = model;
      if (row.group) return [this.groupBar(row)];
      const index = row.index;
      const start = model.start(index);
      const length = data.durations[index];
      const left = this.position(start);
      const width = this.position(start + length) - left;
      if (left > 100 || left + width < 0) return [tt.make("i", { class: left > 100 ? "tt-beyond is-right" : "tt-beyond" })];
      const stage = model.stage(index);
      const label = tt.duration(length);
      const colour = tt.stageColour(stage);
      const bar = tt.make("div", { class: "tt-span" + (stage ? "" : " is-unstaged"), style: `left:${left}%;width:${width}%;background:${colour}`, title: `${model.name(index)} ${label}` });
      const nodes = [bar, ...this.outside(index, start, start + length)];
      for (const one of this.drawn(model.derivedOf.get(index))) nodes.push(this.piece("tt-derived", one, data.words[one[1]]));
      for (const one of this.drawn(model.pathOf.get(index), false)) nodes.push(this.piece("tt-critical", one, null));
      const right = Math.min(100, left + width);
      nodes.push(tt.make("span", right > 88 ? { class: "tt-length is-left", style: `right:${Math.max(0, 100 - left)}%` } : { class: "tt-length", style: `left:${Math.max(0, right)}%` }, label));
      if (right > 88 && left < 10) nodes[nodes.length - 1] = tt.make("span", { class: "tt-length is-inside" }, label);
      return nodes;
    }

    // The parts of a bar that lie beyond its parent, and so count for nothing.
    outside(index, start, end) {
      const parent = this.model.clipped.get(index);
      if (!parent) return [];
      const own = this.model.shift(this.model.parents[index]);
      const [from, to] = [parent[0] + own, parent[1] + own];
      const parts = [[start, Math.min(from, end)], [Math.max(to, start), end]].filter(([a, b]) => b > a);
      return parts.map(([a, b]) => tt.make("div", { class: "tt-outside", style: `left:${this.position(a)}%;width:${this.position(b) - this.position(a)}%` }));
    }

    // Segments of one row as they can be told apart: those less than half a pixel apart are one, and what lies outside the zoom
    // is left out. A root can have ten thousand of them.
    drawn(segments, byStage = true) {
      if (!segments) return [];
      const [from, to] = this.window;
      const near = ((to - from) * 0.5) / Math.max(1, this.scroll.clientWidth);
      const parts = [];
      let last = null;
      for (const [row, stage, start, length] of segments) {
        const begin = start + this.model.shift(row);
        if (begin > to || begin + length < from) continue;
        if (last && (!byStage || last[1] === stage) && start - (last[2] + last[3]) < near && start >= last[2]) {
          last[3] = Math.max(last[3], start + length - last[2]);
        } else parts.push((last = [row, stage, start, length]));
      }
      return parts;
    }

    piece(kind, segment, stage) {
      const begin = segment[2] + this.model.shift(segment[0]);
      const left = this.position(begin);
      const width = this.position(begin + segment[3]) - left;
      const title = stage ? `${this.spec.stages[stage] || stage} ${tt.duration(segment[3])}, ${this.spec.words.derived}` : null;
      return tt.make("div", { class: kind, style: `left:${left}%;width:${width}%${stage ? ";--c:" + tt.stageColour(stage) : ""}`, title });
    }

    groupBar(row) {
      const { durations } = this.model.data;
      let from = Infinity, to = 0;
      for (const index of row.group) {
        const start = this.model.start(index);
        from = Math.min(from, start);
        to = Math.max(to, start + durations[index]);
      }
      const left = this.position(from);
      return tt.make("div", { class: "tt-span is-group", style: `left:${left}%;width:${this.position(to) - left}%;--c:${tt.stageColour(this.model.stage(row.index))}` });
    }

    minimap() {
      tt.drawMinimap(this.map, this.model, this.spec);
      const { duration_ns: whole } = this.model.data;
      this.brush.style.left = (100 * this.window[0]) / whole + "%";
      this.brush.style.width = (100 * (this.window[1] - this.window[0])) / whole + "%";
      this.brush.hidden = this.window[0] <= 0 && this.window[1] >= whole;
    }

    zoom(from, to) {
      const whole = Math.max(1, this.model.data.duration_ns);
      const length = Math.min(whole, Math.max(1000, to - from));
      const start = Math.min(Math.max(0, from), whole - length);
      this.window = [start, start + length];
      const full = start <= 0 && length >= whole;
      tt.remember({ zoom: full ? null : `${Math.round(start)}-${Math.round(start + length)}` });
      this.draw();
    }

    scale(factor, centre) {
      const [from, to] = this.window;
      const at = centre === undefined ? (from + to) / 2 : from + centre * (to - from);
      this.zoom(at - (at - from) * factor, at + (to - at) * factor);
    }

    pan(share) {
      const length = this.window[1] - this.window[0];
      const start = Math.min(Math.max(0, this.window[0] + share * length), Math.max(0, this.model.data.duration_ns - length));
      this.zoom(start, start + length);
    }

    wheel(event) {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const track = this.axis.firstChild.getBoundingClientRect();
      this.scale(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - track.left) / track.width)));
    }

    clicked(event) {
      const node = event.target.closest(".tt-row");
      if (!node) return;
      const row = this.model.visible[Number(node.dataset.at)];
      if (row.group) this.act(() => (this.model.openGroups.add(row.index), this.model.refresh()));
      else if (event.target.dataset.fold) this.act(() => this.model.fold(row.index));
      else this.select(row.index === this.selected ? -1 : row.index);
    }

    select(index) {
      this.selected = index;
      tt.remember({ span: index < 0 ? null : this.model.ids[index] });
      if (index < 0) this.panel.hide();
      else {
        this.panel.show(this.model, index);
        this.show(this.model.reveal(index));
      }
      this.drawRows();
    }

    show(at) {
      const top = at * ROW;
      if (top < this.scroll.scrollTop || top > this.scroll.scrollTop + this.scroll.clientHeight - 2 * ROW) {
        this.scroll.scrollTop = Math.max(0, top - this.scroll.clientHeight / 3);
      }
    }

    step(by) {
      const rows = this.model.visible;
      const at = rows.findIndex((row) => row.index === this.selected);
      const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
      if (next) this.select(next.index);
    }

    search(text) {
      this.query = text.trim().toLowerCase();
      const hits = [];
      if (this.query) for (let index = 0; index < this.model.count; index++) if (this.matchesQuery(index)) hits.push(index);
      this.matches.textContent = this.query ? tt.words(this.spec.words.matches, { n: hits.length.toLocaleString("en") }) : "";
      if (hits.length) this.show(this.model.reveal(hits[0]));
      this.drawRows();
    }

    matchesQuery(index) {
      const { model } = this;
      const text = model.name(index) + " " + model.service(index) + " " + model.stage(index) + " " + model.ids[index];
      return text.toLowerCase().includes(this.query);
    }

    togglePath() {
      this.pathOnly = !this.pathOnly;
      this.pathButton.setAttribute("aria-pressed", String(this.pathOnly));
      tt.remember({ dim: this.pathOnly ? "1" : null });
      this.drawRows();
    }
  }

  let current = null; // the waterfall on the page, if any

  tt.waterfall = async function (place, spec) {
    const key = spec.trace + "/" + spec.entry;
    if (current && current.place === place && current.key === key && place.childElementCount) return;
    if (current && current.stop) current.stop();
    current = { place, key };
    place.replaceChildren(tt.make("p", { class: "tt-muted tt-loading" }, spec.words.loading));
    try {
      const answer = await fetch(`/api/v1/requests/${spec.trace}/waterfall?span_id=${spec.entry}`);
      const data = await answer.json();
      if (!current || current.key !== key) return;
      if (!answer.ok) throw new Error(data.error.message);
      current = new View(place, spec, data);
      current.key = key;
    } catch (error) {
      if (current && current.key === key) place.replaceChildren(tt.make("p", { class: "tt-bad tt-loading" }, spec.words.failed + ": " + String(error.message || error)));
    }
  };
})(window.tailtrace);
