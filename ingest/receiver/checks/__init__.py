"""Checks on receipt: what of a body may go into the journal, what of it was wrong, and why."""

from tailtrace.ingest.receiver.checks.check import Checked, check, warm_up

__all__ = ["Checked", "check", "warm_up"]
