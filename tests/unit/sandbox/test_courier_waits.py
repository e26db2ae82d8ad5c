import signal
import threading

import pytest

from securebench.sandbox.courier import wait_for_term


@pytest.fixture
def blocked():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    while signal.SIGTERM in signal.sigpending():
        signal.sigwait({signal.SIGTERM})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("blocked")
def test_the_courier_waits_for_sigterm_which_does_not_end_it():
    # To this thread: another one, left by an earlier test, does not block the signal.
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    wait_for_term()
    assert signal.SIGTERM not in signal.sigpending()
    assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
