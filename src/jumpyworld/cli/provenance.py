"""Where a result comes from: the device, and the commit of the code if it is a checkout."""

from pathlib import Path


def provenance() -> dict[str, str]:
    """Return ``device``, ``version`` and, if known, ``commit`` of a result row."""
    import jax

    import jumpyworld
    from jumpyworld.machine import available_cores

    device = jax.devices()[0]
    cores = f"{available_cores()} cores"
    name = f"cpu, {cores}" if device.platform == "cpu" else f"{device.device_kind}, {cores}"
    commit = _commit(Path(jumpyworld.__file__).parents[2])
    facts = {"device": name, "version": jumpyworld.__version__}
    return facts if commit is None else {**facts, "commit": commit}


def _commit(root: Path) -> str | None:
    """Return the short commit of a checkout of this project, or None."""
    import subprocess

    # Installed from a wheel, the package may lie inside somebody else's repository.
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
