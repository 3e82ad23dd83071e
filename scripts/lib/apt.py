"""Installing Debian packages without starting the services that they bring.

A package such as `redis-server` starts a system service when it is installed. The tests start their own
private servers, so a temporary policy keeps the installation from starting services.
"""

import fcntl
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")


def can_install():
    """True when this process may install Debian packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages, say):
    """Installs the packages; raises subprocess.CalledProcessError when apt-get refuses."""
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    # A second run at the same time waits for the first one's lock instead of failing.
    apt_get = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
    with _one_at_a_time(), _no_service_starts():
        say(f"installing Debian packages: {' '.join(packages)}")
        _run([*apt_get, "update"], env, say)
        _run([*apt_get, "install", "--no-install-recommends", *packages], env, say)


def _run(command, env, say):
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        say(done.stdout)
        raise subprocess.CalledProcessError(done.returncode, command)


@contextmanager
def _one_at_a_time():
    # The program itself serves as the lock file: it is there for sure, and nothing has to be left behind.
    fd = os.open(shutil.which("apt-get"), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _no_service_starts():
    if POLICY.exists():
        # The machine has a policy of its own; ours must not replace it.
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
