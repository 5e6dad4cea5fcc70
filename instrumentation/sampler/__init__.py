"""Counters of the machine: GPUs by NVML, links, and the host, read by one process per host (`tailtrace sample`).

`catalogue` names every metric; nothing here is imported by a service unless it asks for it.
"""
