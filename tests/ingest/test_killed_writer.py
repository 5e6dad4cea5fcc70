"""kill -9: nothing acknowledged is lost, nothing is there twice."""

import os
import random
import subprocess
import sys
from pathlib import Path

from tailtrace.ingest.settings import ServerSettings

_CHECK = """
import sys; from pathlib import Path
from tailtrace.ingest.pipeline import Pipeline; from tailtrace.ingest.settings import ServerSettings
from tailtrace.ingest.store import open_store
settings = ServerSettings(data=Path(sys.argv[1]))
store = open_store(settings)
pipeline = Pipeline(store, settings.data / 'journal', settings)
pipeline.start(); pipeline.flush(); pipeline.stop()
for row in store.query("SELECT TraceId, count() AS n, uniqExact(SpanId) AS u FROM otel_traces GROUP BY TraceId"):
    print(int(row['TraceId'], 16), row['n'], row['u'])
bounds = store.query("SELECT uniqExact(TraceId) AS t FROM otel_traces_trace_id_ts")
print('bounds', bounds[0]['t'], 0)
store.close()
"""


def test_every_acknowledged_span_is_there_exactly_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here)}
    directory = ServerSettings(data=tmp_path / "data").data
    acknowledged: set[int] = set()
    for round_ in range(4):
        command = [sys.executable, str(here / "killed_writer.py"), str(directory), str((round_ + 1) * 1_000_000)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        for _ in range(dice.randrange(1, 3_000)):
            acknowledged.add(int(process.stdout.readline()))
        process.kill()
        acknowledged.update(int(line) for line in process.stdout.read().split("\n")[:-1])
        process.wait()
    check = [sys.executable, "-c", _CHECK, str(directory)]
    output = subprocess.run(check, capture_output=True, text=True, env=environment, timeout=120, check=True).stdout
    *rows, bounds = [line.split() for line in output.splitlines()]
    stored = {int(trace) for trace, _, _ in rows}
    assert acknowledged - stored == set()
    assert {(spans, unique) for _, spans, unique in rows} == {("3", "3")}
    assert bounds == ["bounds", str(len(stored)), "0"]
