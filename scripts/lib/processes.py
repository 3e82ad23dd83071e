"""Processes that never outlive the script that started them."""

import shutil
import signal
import sys


def unwind_on_signals():
    """Makes a request to end an exception, so that everything that was opened is closed on the way out."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))


def ending_with_us(command, number=signal.SIGTERM):
    """The command, told to end when this process dies without a chance to stop it. Linux only, else unchanged."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", number.name.removeprefix("SIG"), *command] if setpriv else command
