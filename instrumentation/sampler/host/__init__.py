"""The host as /proc and /sys show it: threads, pressure, quotas, network, disks. Standard library only."""
