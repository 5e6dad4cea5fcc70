// A trace as rows that can be folded: which rows are visible, which alike siblings stand as one row "name x 4,812".
(function (tt) {
  "use strict";
  const GROUP_FROM = 8; // alike leaf siblings from here on are one row until opened
  const OPEN_ROWS = 400; // larger traces start folded around the critical path

  tt.TraceModel = class {
    constructor(data) {
      this.data = data;
      this.count = data.names.length;
      this.ids = data.span_ids.match(/.{16}/g) || [];
      this.indexOf = new Map(this.ids.map((id, index) => [id, index]));
      this.path = this._path();
      this.folded = new Uint8Array(this.count);
      this.parents = this._parents();
      this.pathOf = this._segmentsBy(this.path);
      this.derivedOf = this._segmentsBy(data.derived);
      this.corrected = false;
      this._outside();
      this.openGroups = new Set();
      this.groups = this._groups();
      this.visible = [];
      if (this.count > OPEN_ROWS) this.foldAroundPath();
      this.refresh();
    }

    _parents() {
      const parents = new Int32Array(this.count).fill(-1);
      const line = [];
      this.data.depths.forEach((depth, index) => {
        line.length = depth;
        if (depth) parents[index] = line[depth - 1];
        line.push(index);
      });
      return parents;
    }

    // Spans that reach beyond their parent count only inside it; one that starts before a parent of another service has another
    // clock. `shifts` would put those into their parents, as a way to draw: no stored time is changed.
    _outside() {
      const { starts, durations, services } = this.data;
      this.shifts = new Float64Array(this.count);
      this.clipped = new Map();
      this.skewed = 0;
      for (let index = 0; index < this.count; index++) {
        const parent = this.parents[index];
        if (parent < 0) continue;
        const from = starts[parent], to = from + durations[parent], end = starts[index] + durations[index];
        const early = starts[index] < from;
        if (early || (end > to && starts[index] < to)) this.clipped.set(index, [from, to]);
        this.shifts[index] = this.shifts[parent];
        if (!early || services[index] === services[parent]) continue;
        this.skewed += 1;
        this.shifts[index] += from - starts[index] + Math.max(0, durations[parent] - durations[index]) / 2;
      }
    }

    shift(index) {
      return this.corrected && index >= 0 ? this.shifts[index] : 0;
    }

    start(index) {
      return this.data.starts[index] + this.shift(index);
    }

    orphans() {
      return this.data.flags.reduce((sum, flags) => sum + ((flags >> 1) & 1), 0);
    }

    // [row, stage word, start, duration, derived]: the segments follow each other, so starts are sums.
    _path() {
      let at = this.data.path_start;
      return this.data.path.map(([row, stage, length, derived]) => [row, stage, (at += length) - length, length, derived]);
    }

    _segmentsBy(list) {
      const by = new Map();
      for (const segment of list) {
        if (!by.has(segment[0])) by.set(segment[0], []);
        by.get(segment[0]).push(segment);
      }
      return by;
    }

    // first row of a run of alike leaf siblings -> the rows of the run
    _groups() {
      const { depths, sizes, names, services, flags } = this.data;
      const groups = new Map();
      let run = [];
      const close = () => {
        if (run.length >= GROUP_FROM) groups.set(run[0], run);
        run = [];
      };
      for (let index = 0; index < this.count; index++) {
        const last = run[run.length - 1];
        const leaf = sizes[index] === 0 && !this.pathOf.has(index) && !(flags[index] & 1);
        const alike =
          last !== undefined && depths[last] === depths[index] && names[last] === names[index] &&
          services[last] === services[index] && this.parents[last] === this.parents[index];
        if (!leaf || !alike) close();
        if (leaf) run.push(index);
      }
      close();
      return groups;
    }

    // Rows: {index} for a span, {group, index} for a run of alike ones.
    refresh() {
      const rows = [];
      for (let index = 0; index < this.count; ) {
        const group = this.groups.get(index);
        if (group && !this.openGroups.has(index)) {
          rows.push({ index, group });
          index += group.length;
          continue;
        }
        rows.push({ index });
        index += 1 + (this.folded[index] ? this.data.sizes[index] : 0);
      }
      this.visible = rows;
    }

    foldAroundPath() {
      const kept = new Set();
      for (const index of this.pathOf.keys()) {
        for (let at = index; at >= 0 && !kept.has(at); at = this.parents[at]) kept.add(at);
      }
      for (let index = 0; index < this.count; index++) {
        this.folded[index] = this.data.sizes[index] > 0 && (!kept.has(index) || this.data.depths[index] > 6) ? 1 : 0;
      }
    }

    fold(index, value) {
      if (this.data.sizes[index]) this.folded[index] = value === undefined ? 1 - this.folded[index] : value;
      this.refresh();
    }

    foldAll(value) {
      for (let index = 0; index < this.count; index++) this.folded[index] = value && this.data.sizes[index] ? 1 : 0;
      if (!value) this.openGroups.clear();
      this.refresh();
    }

    // One level open more (+1) or less (-1).
    level(step) {
      let deepest = 0;
      for (const row of this.visible) deepest = Math.max(deepest, this.data.depths[row.index]);
      const limit = Math.max(0, deepest + step);
      for (let index = 0; index < this.count; index++) {
        this.folded[index] = this.data.sizes[index] && this.data.depths[index] >= limit ? 1 : 0;
      }
      this.refresh();
    }

    // Make a span's row visible, whatever is folded above it.
    reveal(index) {
      for (let at = this.parents[index]; at >= 0; at = this.parents[at]) this.folded[at] = 0;
      for (const [first, group] of this.groups) {
        if (index >= first && index <= group[group.length - 1] && group.includes(index)) this.openGroups.add(first);
      }
      this.refresh();
      return this.visible.findIndex((row) => row.index === index);
    }

    name(index) {
      return this.data.words[this.data.names[index]];
    }

    service(index) {
      return this.data.words[this.data.services[index]];
    }

    stage(index) {
      return this.data.words[this.data.stages[index]];
    }
  };
})(window.tailtrace);
