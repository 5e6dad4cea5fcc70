"""The whole state of a view, as its URL holds it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode

RANGES: Final = ("15m", "1h", "6h", "24h", "7d", "30d")
REFRESH: Final = ("off", "live", "10s", "30s", "1m")


@dataclass(frozen=True, slots=True)
class Address:
    """Filters and range of a page; empty text means "not said". `since` and `until` win over `range`.

    `box` is a rectangle on a heatmap: since, until (Unix ns) and low, high (ns), joined by commas.
    """

    range: str = ""
    since: str = ""
    until: str = ""
    service: str = ""
    model: str = ""
    route: str = ""
    outcome: str = ""
    kind: str = ""
    root: str = ""
    min: str = ""
    max: str = ""
    text: str = ""
    order: str = ""
    cursor: str = ""
    metric: str = ""
    entry: str = ""
    version: str = ""
    replica: str = ""
    tenant: str = ""
    where: str = ""
    columns: str = ""
    facets: str = ""
    box: str = ""
    q: str = ""
    a_since: str = ""
    a_until: str = ""
    a_filter: str = ""
    b_filter: str = ""
    stage: str = ""
    x_queue: str = ""
    x_prefill: str = ""
    x_decode: str = ""
    x_tokenize: str = ""
    factor: str = ""
    replicas: str = ""
    rate: str = ""
    state: str = ""
    id: str = ""

    @classmethod
    def parse(cls, search: str | None) -> Self:
        """From a query string; unknown keys are ignored, long values cut."""
        given = parse_qs((search or "").lstrip("?"), keep_blank_values=False, max_num_fields=100)
        known = {field.name for field in fields(cls)}
        return cls(**{key: values[-1][:400] for key, values in given.items() if key in known})

    def href(self, path: str, **changes: Any) -> str:
        """A link to `path` with this state, changed; a change to None or "" leaves that key out."""
        changed = replace(self, **{key: "" if value is None else str(value) for key, value in changes.items()})
        pairs = [(field.name, getattr(changed, field.name)) for field in fields(changed)]
        query = urlencode([(key, value) for key, value in pairs if value])
        return f"{path}?{query}" if query else path

    def only(self, *keys: str) -> Self:
        """This state with nothing but `keys`: what a link to another page carries along."""
        return type(self)(**{key: getattr(self, key) for key in keys})

    @property
    def is_root(self) -> bool | None:
        """Entry requests alone (default), or every service's own (`root=any`)."""
        return {"any": None, "false": False}.get(self.root, True)
