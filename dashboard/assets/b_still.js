// Draws what dashboard/still.py sends: [tag, attributes, child, ...] as elements of React, without a Dash component for each.
(function (tt) {
  "use strict";
  const PARTS = new Set(["Chart", "SavedViews"]); // drawn by scripts of their own

  function element(node) {
    if (!Array.isArray(node)) return node;
    const [tag, attributes, ...children] = node;
    return window.React.createElement(PARTS.has(tag) ? tt[tag] : tag, attributes, ...children.map(element));
  }

  const drawn = (tree) => window.React.useMemo(() => (tree ? element(JSON.parse(tree)) : null), [tree]);

  tt.Still = ({ tree }) => drawn(tree);

  tt.Body = function ({ id, tree, children }) {
    const loading = window.dash_component_api.useDashContext().useLoading();
    return window.React.createElement("div", { id, "data-dash-is-loading": loading || undefined }, drawn(tree), tree ? null : children);
  };
})(window.tailtrace);
