"""What several of the integration tests do to a run."""

import pytest

from outgrid import pipeline


@pytest.fixture
def cut_off(monkeypatch):
    """``cut_off(n, run)`` calls ``run``, whose kernel fails at its n-th advance; not later ones."""

    def call(advances, run):
        advance, count = pipeline.Kernel.advance, []

        def failing(self, *given):
            count.append(1)
            if len(count) == advances:
                raise RuntimeError("stop")
            return advance(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(pipeline.Kernel, "advance", failing)
            with pytest.raises(RuntimeError):
                run()

    return call
