"""The lab: an inference service in miniature, with faults of known cause.

`history` makes OTLP bodies of a scenario in virtual time, `truth` says what was done to it, `LiveLab` runs it for real.
"""

from tailtrace.lab.history import history
from tailtrace.lab.scenario import Scenario, list_scenarios
from tailtrace.lab.truth import Truth, truth

__all__ = ["Scenario", "Truth", "history", "list_scenarios", "truth"]
