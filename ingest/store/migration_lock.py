"""One migrator at a time on a server that several processes share.

A migration may drop a view and make it anew. A second migrator that came a moment later would do so while the first
already inserts, and what is inserted in between would never reach the view. The lock is a table: making one that is
there fails, whoever tries. A migrator that died leaves it; after two minutes without a sign of life it counts as dead.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from tailtrace.errors import StoreError
from tailtrace.ingest.store.protocol import Store

DEAD_S = 120
_LOCK = "CREATE TABLE schema_lock (Nothing UInt8) ENGINE = Memory COMMENT '{owner}'"
_ALIVE = "ALTER TABLE schema_lock MODIFY COMMENT '{owner}'"
_DEAD = """
SELECT count() AS dead FROM system.tables WHERE database = currentDatabase() AND name = 'schema_lock'
  AND metadata_modification_time < now() - {seconds:UInt32}
"""


@contextmanager
def migration_lock(store: Store, wait_s: float = 600.0, dead_s: int = DEAD_S) -> Iterator[Callable[[], None]]:
    """Waits for its turn; gives the function to call now and then as a sign of life. StoreError when it never comes."""
    owner = uuid4().hex
    ends = time.monotonic() + wait_s
    while True:
        try:
            store.command(_LOCK.format(owner=owner))
            break
        except StoreError as error:
            if "TABLE_ALREADY_EXISTS" not in str(error):
                raise
        if time.monotonic() > ends:
            raise StoreError(
                "another process has been changing the schema for too long: if none is, DROP TABLE schema_lock"
            )
        if store.query(_DEAD, {"seconds": dead_s}, role="jobs")[0]["dead"]:
            store.command("DROP TABLE IF EXISTS schema_lock")
        else:
            time.sleep(0.5)
    told = time.monotonic()

    def alive() -> None:
        nonlocal told
        if time.monotonic() - told > dead_s / 10:
            told = time.monotonic()
            store.command(_ALIVE.format(owner=f"{owner} {int(told)}"))

    try:
        yield alive
    finally:
        store.command("DROP TABLE IF EXISTS schema_lock")
