"""What the browser asks a dashboard, for tests that go without one."""

from __future__ import annotations

from typing import Any

import httpx


def draw_question(client: httpx.Client, path: str, search: str = "") -> dict[str, Any]:
    """The question that draws a page; the answer's `response.body` holds it."""
    declared = next(one for one in client.get("/_dash-dependencies").json() if "body.children" in one["output"])
    values = {"pathname": path, "search": search, "data": 0}
    inputs = [{**one, "value": values[one["property"]]} for one in declared["inputs"]]
    state = [{**one, "value": None} for one in declared["state"]]
    names = declared["output"].strip(".").split("...")
    outputs = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
    return {
        "output": declared["output"], "outputs": outputs, "inputs": inputs, "state": state,
        "changedPropIds": ["url.pathname"],
    }  # fmt: skip
