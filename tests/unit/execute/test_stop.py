import os
import signal
import time

import pytest

from outgrid.execute.stop import Interrupted, Stop, scheduler_seconds_left, stop_in_time


def test_a_run_stops_before_its_time_is_over_not_after():
    stop = Stop()
    assert stop.due(1e9) is None
    stop.after(100.0, "the end")
    assert stop.due(10.0) is None
    assert stop.due(101.0) == "the end"
    assert stop.due() == "the end"  # a reason stays


def test_the_end_of_a_slurm_job_is_read_from_its_environment(monkeypatch):
    assert scheduler_seconds_left({}) == float("inf")
    assert scheduler_seconds_left({"SLURM_JOB_END_TIME": "soon"}) == float("inf")
    assert scheduler_seconds_left({"SLURM_JOB_END_TIME": "9" * 400}) == float("inf")
    end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 3600)}
    assert 3590 < scheduler_seconds_left(end) <= 3600
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 20))
    stop = Stop()
    stop_in_time(stop, None)
    assert stop.due() == "the end of its Slurm job"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_request_once_and_an_end_twice(number):
    stop, old = Stop(), signal.getsignal(number)
    stop.listening = True
    with stop.on_signals():
        os.kill(os.getpid(), number)
        assert stop.due() == signal.Signals(number).name
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is old


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_nobody_listens_to_is_an_end_and_if_that_gets_lost_a_request(number):
    stop = Stop()
    with stop.on_signals():
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), number)
        assert caught.value.exit_code == 128 + number
        assert stop.due() == signal.Signals(number).name
