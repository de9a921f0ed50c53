"""What this machine offers."""

import os


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux, where a container may own a few of many cores
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
