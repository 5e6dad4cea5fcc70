// The waterfall's keys, its minimap and the range drawn on it with the mouse.
(function (tt) {
  "use strict";

  tt.waterfallKeys = function (view) {
    const keys = {
      w: () => view.scale(0.7), s: () => view.scale(1.4), a: () => view.pan(-0.2), d: () => view.pan(0.2),
      A: () => view.pan(-0.8), D: () => view.pan(0.8), ArrowUp: () => view.scale(0.7), ArrowDown: () => view.scale(1.4),
      ArrowLeft: (fast) => view.pan(fast ? -0.8 : -0.2), ArrowRight: (fast) => view.pan(fast ? 0.8 : 0.2),
      j: () => view.step(1), f: () => view.zoom(0, view.model.data.duration_ns), F: () => view.zoom(0, view.model.data.duration_ns), k: () => view.step(-1),
      ".": () => view.step(1), ",": () => view.step(-1), "]": () => view.act(() => view.model.foldAll(0)),
      "[": () => view.act(() => view.model.foldAll(1)), o: () => view.act(() => view.model.level(1)),
      p: () => view.act(() => view.model.level(-1)), "/": () => view.find.focus(), "?": () => (view.keys.hidden = !view.keys.hidden),
      Escape: () => (view.find.blur(), (view.find.value = ""), view.search(""), view.select(-1)),
      Enter: () => view.selected >= 0 && view.act(() => view.model.fold(view.selected)),
    };
    const keyed = function (event) {
      if (!document.body.contains(view.place)) return document.removeEventListener("keydown", keyed);
      const typing = event.target.closest("input,textarea,select,[contenteditable]");
      if ((event.ctrlKey || event.metaKey) && !event.altKey && "kb".includes(event.key)) {
        event.preventDefault();
        return view.find.focus();
      }
      if ((typing && event.key !== "Escape") || event.ctrlKey || event.metaKey || event.altKey) return undefined;
      // Elsewhere they scroll the page.
      if (event.key.startsWith("Arrow") && !event.target.closest(".tt-waterfall")) return undefined;
      if (event.key === "Enter" && !event.target.closest(".tt-waterfall")) return undefined;
      const act = keys[event.key];
      if (!act) return undefined;
      event.preventDefault();
      return act(event.shiftKey);
    };
    document.addEventListener("keydown", keyed);
    return keyed;
  };

  // Calls done(from, to) with shares of the width, 0 to 1, after a drag.
  tt.dragRange = function (node, done) {
    node.addEventListener("pointerdown", function (event) {
      const box = node.getBoundingClientRect();
      const share = (x) => Math.min(1, Math.max(0, (x - box.left) / box.width));
      const from = share(event.clientX);
      const shade = tt.make("div", { class: "tt-drag" });
      node.append(shade);
      const move = (now) => {
        const to = share(now.clientX);
        shade.style.left = 100 * Math.min(from, to) + "%";
        shade.style.width = 100 * Math.abs(to - from) + "%";
      };
      const up = (now) => {
        window.removeEventListener("pointermove", move);
        window.removeEventListener("pointerup", up);
        shade.remove();
        const to = share(now.clientX);
        if (Math.abs(to - from) > 0.004) done(Math.min(from, to), Math.max(from, to));
      };
      window.addEventListener("pointermove", move);
      window.addEventListener("pointerup", up);
      event.preventDefault();
    });
  };

  // A colour of the theme as one little-endian word of image data.
  function pixels() {
    const style = getComputedStyle(document.documentElement);
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const known = new Map();
    return (stage, alpha) => {
      const name = (stage ? "--stage-" + stage : "--span") + alpha;
      if (!known.has(name)) {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = style.getPropertyValue(stage ? "--stage-" + stage : "--span").trim();
        pen.fillRect(0, 0, 1, 1);
        const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
        known.set(name, ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0);
      }
      return known.get(name);
    };
  }

  // The whole trace in 44 pixels: every span a line, the critical path along the bottom in its stages' colours. Written pixel by
  // pixel: canvas calls for 20,000 spans take a third of a second.
  tt.drawMinimap = function (canvas, model) {
    const { data } = model;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round((canvas.clientWidth || 800) * ratio));
    const height = Math.max(1, Math.round((canvas.clientHeight || 44) * ratio));
    canvas.width = width;
    canvas.height = height;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(width, height);
    const cells = new Uint32Array(image.data.buffer);
    const colour = pixels();
    const fill = (start, length, top, thick, word) => {
      const from = Math.max(0, Math.floor(start * scale));
      const to = Math.min(width, Math.max(from + 1, Math.ceil((start + length) * scale)));
      for (let y = top; y < Math.min(height, top + thick); y++) cells.fill(word, y * width + from, y * width + to);
    };
    const scale = width / Math.max(1, data.duration_ns);
    const lane = height - Math.round(12 * ratio);
    const alpha = model.count > 2000 ? 150 : 217;
    const thick = Math.max(1, Math.floor(Math.min(4 * ratio, lane / model.count)));
    for (let index = 0; index < model.count; index++) {
      fill(model.start(index), data.durations[index], Math.floor((lane * index) / model.count), thick, colour(model.stage(index), alpha));
    }
    const band = Math.round(8 * ratio);
    for (const segment of model.path) fill(segment[2], segment[3], height - band, band, colour(data.words[segment[1]], 255));
    pen.putImageData(image, 0, 0);
  };
})(window.tailtrace);
