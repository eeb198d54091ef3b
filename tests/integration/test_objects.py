"""Object stores: inputs are copied in, exports out, by a store on this disk and by one of S3."""

import subprocess
import sys
import urllib.request

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import StoreError, UsageError

obstore = pytest.importorskip("obstore")
VALUES = np.random.default_rng(2).standard_normal((6, 7, 8)).astype("f4")


@pytest.fixture
def bucket(tmp_path):
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def result(tmp_path):
    problem = og.Problem(
        "heat7", (6, 7, 8), steps=1, parameters={"k": 0.1}, dtype="float32", initial={"u": VALUES}
    )
    return og.run(problem, memory="256 MiB", out=tmp_path / "r")


@pytest.mark.parametrize("name", ["u.npy", "u.zarr", "u.h5"])
def test_what_is_exported_to_a_store_is_imported_from_it(result, bucket, tmp_path, name):
    url = f"{bucket.as_uri()}/{name}"
    found = og.export(result, url)
    assert (str(found.path), found.arrays) == (url, ("u",))
    inside = ":u" if name.endswith(".h5") else ""
    og.convert(og.InputFile(url + inside), tmp_path / "again.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), result["u"])
    with pytest.raises(UsageError, match="exists and is not overwritten"):
        og.export(result, url)
    og.export(result, url, overwrite=True)


def test_what_is_replaced_leaves_nothing(result, bucket):
    def names(url):
        files = (path for path in (bucket / url).rglob("*") if path.is_file())
        return {path.relative_to(bucket / url) for path in files}

    og.export(result, f"{bucket.as_uri()}/new.zarr")
    og.export(result, f"{bucket.as_uri()}/u.zarr", chunks=2, shards=False, levels=True)
    assert len(names("u.zarr")) > len(names("new.zarr"))
    og.export(result, f"{bucket.as_uri()}/u.zarr", overwrite=True)
    assert names("u.zarr") == names("new.zarr")


def test_metadata_are_deleted_first_and_written_last(result, bucket, monkeypatch):
    url = f"{bucket.as_uri()}/u.zarr"
    og.export(result, url, chunks=2, shards=False)
    done = []
    with monkeypatch.context() as patched:
        for verb in ("delete", "put"):
            call = getattr(obstore, verb)

            def noted(store, paths, *rest, verb=verb, call=call):
                one_or_more = [paths] if isinstance(paths, str) else paths
                done.append((verb, {path.endswith("zarr.json") for path in one_or_more}))
                return call(store, paths, *rest)

            patched.setattr(obstore, verb, noted)
        og.export(result, url, overwrite=True)
    assert done[:2] == [("delete", {True}), ("delete", {False})]
    data, metadata = [("put", {False})] * 4, [("put", {True})] * 5  # u, z, y, x; and the group
    assert done[2:] == data + metadata


def test_a_name_that_begins_like_another_is_another(result, bucket, tmp_path):
    og.export(result, f"{bucket.as_uri()}/u.zarr")
    with pytest.raises(StoreError, match=r"u\.zar\.npy does not exist"):
        og.convert(og.InputFile(f"{bucket.as_uri()}/u.zar.npy"), tmp_path / "again.npy")
    assert not (tmp_path / "again.npy").exists()


def test_the_verbs_take_urls(result, bucket, tmp_path):
    url = f"{bucket.as_uri()}/u.npy"
    for words in (("export", result.out, "--to", url), ("import", url, "--to", tmp_path / "v.npy")):
        command = [sys.executable, "-m", "outgrid", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), result["u"])


def test_a_run_says_how_to_copy_its_input_in(tmp_path):
    problem = og.Problem(
        "heat7", (6, 7, 8), steps=1, parameters={"k": 0.1}, initial={"u": "s3://bucket/m.h5:/vp"}
    )
    with pytest.raises(UsageError, match=r"outgrid import s3://bucket/m\.h5:/vp --to m\.npy"):
        og.run(problem, memory="256 MiB", out=tmp_path / "q")


def test_a_missing_library_says_how_to_get_it(result, monkeypatch):
    def absent(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("outgrid.formats.registry.importlib.import_module", absent)
    with pytest.raises(UsageError, match=r"pip install 'outgrid\[cloud\]'"):
        og.export(result, "s3://bucket/u.npy")


def test_a_bucket_alone_is_no_object(result):
    with pytest.raises(UsageError, match="must name an object"):
        og.export(result, "s3://u.npy")


@pytest.fixture
def s3(monkeypatch):
    """An empty bucket of a server of S3 on this machine."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    request = urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")
    urllib.request.urlopen(request).close()
    yield "s3://bucket"
    server.stop()


def test_s3_gives_inputs_and_takes_exports(result, s3, tmp_path):
    for name, inside, how in (
        ("u.npy", "", {}),
        ("some/u.h5", ":u", {}),
        ("u.zarr", "/u", {"chunks": 4, "codec": "zstd:1", "levels": False}),
    ):
        og.export(result, f"{s3}/{name}", **how)
        og.convert(og.InputFile(f"{s3}/{name}{inside}"), tmp_path / "again.npy", overwrite=True)
        np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), result["u"])
    zarr = pytest.importorskip("zarr")
    store = zarr.storage.ObjectStore(obstore.store.from_url(f"{s3}/u.zarr"), read_only=True)
    np.testing.assert_array_equal(zarr.open(store, mode="r")["u"][...], result["u"])

    with pytest.raises(UsageError, match="exists and is not overwritten"):
        og.export(result, f"{s3}/u.npy")
    with pytest.raises(StoreError, match=r"missing\.npy does not exist"):
        og.convert(og.InputFile(f"{s3}/missing.npy"), tmp_path / "v.npy")
    with pytest.raises(StoreError, match="cannot be reached"):
        og.convert(og.InputFile("s3://no-bucket/u.npy"), tmp_path / "v.npy")
    assert not (tmp_path / "v.npy").exists()
