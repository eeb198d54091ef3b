"""How the suite runs: OUTGRID_HYPOTHESIS=thorough tries 25 times as many random cases."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,  # some examples compile a kernel
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile(os.environ.get("OUTGRID_HYPOTHESIS", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the kernels of the tests out of the user's cache, but from one run to the next."""
    os.environ["OUTGRID_CACHE"] = str(config.cache.mkdir("kernels"))
