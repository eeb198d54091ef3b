import errno

import pytest

from outgrid import errors


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.VerificationError, 1),
        (errors.DefinitionError, 2),
        (errors.UsageError, 2),
        (errors.InfeasiblePlan, 3),
        (errors.BuildError, 4),
        (errors.StoreError, 4),
        (errors.ExecutionError, 4),
    ],
)
def test_each_error_has_its_exit_code(kind: type[errors.Error], exit_code: int) -> None:
    assert kind.exit_code == exit_code
    assert issubclass(kind, errors.Error)


def test_store_error_names_file_offset_length_and_reason() -> None:
    error = errors.StoreError(
        "write failed", path="/data/u.npy", offset=4096, length=512, errno=errno.ENOSPC
    )
    assert isinstance(error, OSError)
    assert (str(error.path), error.offset, error.length) == ("/data/u.npy", 4096, 512)
    assert error.errno == errno.ENOSPC
    for part in ("write failed", "/data/u.npy", "4096", "512 bytes", "No space left", "errno 28"):
        assert part in str(error)


def test_store_error_says_only_what_is_known() -> None:
    assert str(errors.StoreError("header is damaged", path="a.npy")) == (
        "header is damaged, file a.npy"
    )


def test_build_error_keeps_source_and_command() -> None:
    error = errors.BuildError("no compiler", source_path="k.cpp", command=("g++", "k.cpp"))
    assert (str(error.source_path), error.command) == ("k.cpp", ("g++", "k.cpp"))
    assert str(error) == "no compiler"
