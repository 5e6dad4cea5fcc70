"""The way of a request that ended, as intervals: stages of the gateway, stages of the engine, and both ends."""

from __future__ import annotations

from tailtrace.lab.clock import MILLISECOND
from tailtrace.lab.constants import Constants
from tailtrace.lab.request import Request

# (stage, start, end)
Interval = tuple[str, int, int]


class Journey:
    """Made from the marks of an ended request; -1 where there was no first token."""

    __slots__ = ("client_end", "engine", "engine_end", "engine_first", "gateway", "gateway_end", "gateway_first")

    def __init__(self, request: Request, c: Constants) -> None:
        r, spread = request, request.spread * MILLISECOND
        ended = r.ended_ns
        at = r.arrival_ns + r.net_in_ns
        authed = at + r.auth_ns
        limited = authed + r.rate_limit_ns
        self.gateway: list[Interval] = [("net_in", r.arrival_ns, at), ("auth", at, authed)]
        if r.refused != 401:
            self.gateway.append(("rate_limit", authed, limited))
        if r.external_ns and not r.refused:
            self.gateway.append(("external", limited, limited + r.external_ns))
        self.engine: list[Interval] = []
        self.engine_first = self.gateway_first = -1
        self.engine_end = self.client_end = self.gateway_end = ended
        if r.dispatched_ns < 0:
            return
        routed = r.routed_ns + r.route_ns
        self.gateway += [("route", r.routed_ns, routed), ("dispatch", routed, r.dispatched_ns)]
        engine = self.engine = [
            ("parse", r.engine_start_ns, r.parsed_ns),
            ("template", r.template_start_ns, r.templated_ns),
            ("tokenize", r.templated_ns, r.tokenized_ns),
            ("engine_submit", r.tokenized_ns, r.kv_start_ns if r.kv_start_ns >= 0 else ended),
        ]
        loaded = r.kv_start_ns + r.kv_load_ns
        if r.kv_load_ns:
            engine.append(("kv_load", r.kv_start_ns, loaded))
        if r.kv_transfer_ns:
            engine.append(("kv_transfer", loaded, loaded + r.kv_transfer_ns))
        last, first = r.last_token_ns, r.first_token_ns
        if r.submitted_ns >= 0:
            engine.append(("queue", r.submitted_ns, r.scheduled_ns if r.scheduled_ns >= 0 else ended))
        if r.scheduled_ns >= 0:
            if r.batched_ns >= 0:
                engine += [
                    ("batch_wait", r.scheduled_ns, r.batched_ns),
                    ("forward", r.batched_ns, last if last >= 0 else ended),
                ]
            elif first < 0:
                engine.append(("prefill", r.scheduled_ns, ended))
            else:
                engine += [("prefill", r.scheduled_ns, first), ("decode", first, last if r.outcome == "ok" else ended)]
            engine += [("preempted", start, end) for start, end in r.preemptions]
        back = int((c.engine_return + c.detokenize) * spread)
        if first >= 0:
            self.engine_first = first + back
            self.gateway_first = self.engine_first + r.network_ns
        if r.outcome != "ok":
            if self.gateway_first >= 0 and r.streaming and self.gateway_first < ended:
                self.gateway.append(("stream_out", self.gateway_first, ended))
            if self.engine_first >= ended:
                self.engine_first = -1
            if self.gateway_first >= ended:
                self.gateway_first = -1
            return
        returned = last + int(c.engine_return * spread)
        written = last + back + int(c.write * spread)
        engine += [("engine_return", last, returned), ("detokenize", returned, last + back)]
        engine.append(("stream_out", self.engine_first if r.streaming and first >= 0 else last + back, written))
        self.engine_end = ended
        self.client_end = self.engine_end + r.network_ns
        out = self.gateway_first if r.streaming and first >= 0 else self.client_end
        # A client takes its tokens no faster than it reads; an unstreamed body goes in a few packets.
        taken = out + r.token_interval_ns * (r.produced if r.streaming else r.produced // 20)
        sent = max(self.client_end, taken) + int(c.write * spread)
        self.gateway.append(("stream_out", out, sent))
        self.gateway_end = sent + int(c.handler * spread)
