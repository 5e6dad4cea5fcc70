"""The one tree of errors.

TailtraceError
├── ConfigError        a setting or argument that cannot work; the user mends it
│   └── MissingExtra   a part of the installation is absent; the message holds the exact pip command
├── StoreError         the store refused or is gone
│   ├── StoreLocked    another process owns the data directory
│   ├── StoreDead      used in a forked child, or after close
│   └── SchemaTooNew   the directory was written by a newer release
├── Rejected           input that is not accepted: the reason is for its sender
│   ├── TooLarge       over a stated limit
│   └── Overloaded     accepted later: retry after a while
└── NotFound           nothing is stored under that id

Each message says what was expected, what came, and what to do.
"""


class TailtraceError(Exception):
    """Root of every error this product raises on purpose."""


class ConfigError(TailtraceError):
    """A setting or argument that cannot work."""


class MissingExtra(ConfigError):
    """A feature whose packages are not installed; names the pip command."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs packages that are not installed: pip install 'tailtrace[{extra}]'")


class StoreError(TailtraceError):
    """The store refused a statement or cannot be reached."""


class StoreLocked(StoreError):
    """Another process owns the data directory."""


class StoreDead(StoreError):
    """The store is used after close, or in a forked child of its owner."""


class SchemaTooNew(StoreError):
    """The data was written by a newer release than this program."""


class Rejected(TailtraceError):
    """Input that is not accepted; the message tells its sender why."""


class TooLarge(Rejected):
    """Input over a stated limit."""


class Overloaded(Rejected):
    """Input that may be accepted later."""

    def __init__(self, reason: str, retry_after_s: int = 5) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class NotFound(TailtraceError):
    """Nothing is stored under that id."""
