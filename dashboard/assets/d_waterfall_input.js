// The waterfall's keys, its minimap and the range drawn on it with the mouse.
(function (tt) {
  "use strict";

  tt.waterfallKeys = function (view) {
    const keys = {
      w: () => view.scale(0.7), s: () => view.scale(1.4), a: () => view.pan(-0.2), d: () => view.pan(0.2),
      A: () => view.pan(-0.8), D: () => view.pan(0.8), ArrowLeft: () => view.pan(-0.2), ArrowRight: () => view.pan(0.2),
      j: () => view.step(1), f: () => view.zoom(0, view.model.data.duration_ns), k: () => view.step(-1),
      ".": () => view.step(1), ",": () => view.step(-1), "]": () => view.act(() => view.model.foldAll(0)),
      "[": () => view.act(() => view.model.foldAll(1)), o: () => view.act(() => view.model.level(1)),
      p: () => view.act(() => view.model.level(-1)), "/": () => view.find.focus(), "?": () => (view.keys.hidden = !view.keys.hidden),
      Escape: () => (view.find.blur(), (view.find.value = ""), view.search(""), view.select(-1)),
      Enter: () => view.selected >= 0 && view.act(() => view.model.fold(view.selected)),
    };
    const keyed = function (event) {
      if (!document.body.contains(view.place)) return document.removeEventListener("keydown", keyed);
      const typing = event.target.closest("input,textarea,select,[contenteditable]");
      if ((typing && event.key !== "Escape") || event.ctrlKey || event.metaKey || event.altKey) return undefined;
      if (event.key === "Enter" && !event.target.closest(".tt-waterfall")) return undefined;
      const act = keys[event.key];
      if (!act) return undefined;
      event.preventDefault();
      return act();
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

  // The whole trace in 44 pixels: every span a line, the critical path along the bottom in its stages' colours.
  tt.drawMinimap = function (canvas, model) {
    const { data } = model;
    const width = canvas.clientWidth || 800;
    const height = canvas.clientHeight || 44;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const known = new Map();
    const colour = (stage) => {
      const name = stage ? "--stage-" + stage : "--span";
      if (!known.has(name)) known.set(name, style.getPropertyValue(name).trim());
      return known.get(name);
    };
    const scale = width / Math.max(1, data.duration_ns);
    const lane = height - 12;
    pen.globalAlpha = model.count > 2000 ? 0.4 : 0.85;
    const thick = Math.max(1, Math.min(4, lane / model.count));
    for (let index = 0; index < model.count; index++) {
      pen.fillStyle = colour(model.stage(index));
      pen.fillRect(model.start(index) * scale, (lane * index) / model.count, Math.max(0.5, data.durations[index] * scale), thick);
    }
    pen.globalAlpha = 1;
    for (const segment of model.path) {
      pen.fillStyle = colour(data.words[segment[1]]);
      pen.fillRect(segment[2] * scale, height - 8, Math.max(0.5, segment[3] * scale), 8);
    }
  };
})(window.tailtrace);
