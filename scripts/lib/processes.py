"""Processes that never outlive the script that started them."""

import shutil
import signal
import sys


def unwind_on_signals():
    """Turns termination signals into an exception, so that cleanup handlers run."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))


def ending_with_us(command, number=signal.SIGTERM):
    """Wraps the command so that it is terminated when this process dies. Linux only, else unchanged."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", number.name.removeprefix("SIG"), *command] if setpriv else command
