import importlib.metadata

import outgrid


def test_version_is_the_installed_one():
    assert outgrid.__version__ == importlib.metadata.version("outgrid")
