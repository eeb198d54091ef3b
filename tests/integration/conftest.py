"""What several of the integration tests do to a run."""

import pytest

from outgrid.execute.kernel import Kernel


@pytest.fixture
def cut_off(monkeypatch):
    """``cut_off(n, run)`` calls ``run``, whose kernel fails at its n-th advance; not later ones."""

    def call(advances, run):
        advance, count = Kernel.advance, []

        def failing(self, *given):
            count.append(1)
            if len(count) == advances:
                raise RuntimeError("stop")
            return advance(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(Kernel, "advance", failing)
            with pytest.raises(RuntimeError):
                run()

    return call
