// Draws what dashboard/still.py sends: [tag, attributes, child, ...] as elements of React, without a Dash component for each.
(function (tt) {
  "use strict";

  function element(node) {
    if (!Array.isArray(node)) return node;
    const [tag, attributes, ...children] = node;
    return window.React.createElement(tag, attributes, ...children.map(element));
  }

  tt.Still = ({ tree }) => window.React.useMemo(() => element(JSON.parse(tree)), [tree]);
})(window.tailtrace);
