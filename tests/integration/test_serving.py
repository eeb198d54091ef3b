"""A folder served to viewers: real requests, what they get, and what they do not."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.parse
from contextlib import closing

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import UsageError
from outgrid.serving import Served, _Request, link

zarr = pytest.importorskip("zarr")
VALUES = np.random.default_rng(1).standard_normal((70, 80, 90)).astype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    np.save(root / "u.npy", VALUES)
    (root / "secret.txt").write_text("mine")
    og.convert(
        og.InputFile(str(root / "u.npy")), root / "u.zarr", chunks=32, levels=True, shards=False
    )
    group = zarr.open_group(root / "u.zarr", mode="r+")
    group.create_array("plane", shape=(4, 5), dtype="i2", chunks=(2, 5))[...] = 7
    group.create_array("x", shape=(5,), dtype="f8")
    (root / "u.zarr" / "outside").symlink_to(root / "secret.txt")
    return root / "u.zarr"


@pytest.fixture(scope="module")
def served(folder):
    with Served(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(served, path, method="GET", **headers):
    there = served.server_address[:2]
    with closing(http.client.HTTPConnection(*there, timeout=60)) as connection:
        connection.request(method, path, headers=headers)
        with connection.getresponse() as answer:
            return answer.status, dict(answer.getheaders()), answer.read()


def test_a_file_comes_whole_and_says_who_may_read_it(served, folder):
    status, headers, body = ask(served, "/u/0/zarr.json", Origin="https://viewer.example")
    assert (status, body) == (200, (folder / "u/0/zarr.json").read_bytes())
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["Content-Length"] == str(len(body))


def test_groups_of_pyramids_are_no_pyramid(tmp_path):
    np.save(tmp_path / "u.npy", VALUES[:8, :8, :8])
    group = zarr.open_group(tmp_path / "plate.zarr", mode="w")
    group.attrs["ome"] = {"version": "0.5", "plate": {"name": "p"}}
    given = og.InputFile(str(tmp_path / "u.npy"))
    og.convert(given, tmp_path / "plate.zarr" / "A.zarr", levels=True)
    with Served(tmp_path / "plate.zarr") as server:
        assert server.arrays == ("A.zarr/u",)
        assert link(server, "A.zarr/u")


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("bytes=0-9", slice(0, 10)),
        ("bytes=5-", slice(5, None)),
        ("bytes=-16", slice(-16, None)),
        ("bytes=100-9999999999", slice(100, None)),
    ],
)
def test_a_range_comes_alone(served, folder, asked, wanted):
    chunk = "u/0/c/0/1/2"
    content = (folder / chunk).read_bytes()
    status, headers, body = ask(served, f"/{chunk}", Range=asked)
    assert (status, body) == (206, content[wanted])
    first = range(len(content))[wanted].start
    assert headers["Content-Range"] == f"bytes {first}-{first + len(body) - 1}/{len(content)}"


def test_a_range_that_is_not_there_is_told(served, folder):
    size = (folder / "zarr.json").stat().st_size
    status, headers, body = ask(served, "/zarr.json", Range=f"bytes={size}-")
    assert (status, headers["Content-Range"], body) == (416, f"bytes */{size}", b"")
    assert ask(served, "/zarr.json", Range="lines=1-2")[0] == 200


def test_a_head_has_no_body(served, folder):
    status, headers, body = ask(served, "/zarr.json", "HEAD")
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str((folder / "zarr.json").stat().st_size)
    assert ask(served, "/none", "HEAD")[::2] == (404, b"")


def test_a_browser_may_ask_before(served):
    status, headers, _ = ask(served, "/zarr.json", "OPTIONS", Origin="https://viewer.example")
    assert status == 204
    assert "GET" in headers["Access-Control-Allow-Methods"]
    assert ask(served, "/zarr.json", "DELETE")[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "/none",
        "/u",
        "/",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/u/..%2f..%2fsecret.txt",
        "/..%2fsecret.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/outside",
        "/zarr.json%00",
        "/" + "a" * 5000,
    ],
)
def test_what_is_not_of_the_folder_is_not_there(served, path):
    status, _, body = ask(served, path)
    assert status == 404
    assert b"mine" not in body


def test_zarr_reads_what_is_served(served):
    """By ranges and whole files, as a client does that knows nothing of the folder."""
    said = json.loads(ask(served, "/u/0/zarr.json")[2])
    cells = said["chunk_grid"]["configuration"]["chunk_shape"]
    assert cells == [32, 32, 32]
    _, _, body = ask(served, "/u/0/c/1/0/2")
    found = np.frombuffer(body, "<f4").reshape(cells)[:, :, : 90 - 64]
    np.testing.assert_array_equal(found, VALUES[32:64, :32, 64:])


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, ValueError])
def test_a_reader_that_leaves_early_is_no_error(served, monkeypatch, capfd, error):
    def gone(*given):
        raise error

    monkeypatch.setattr(_Request, "_send", gone)
    with pytest.raises(http.client.IncompleteRead):
        ask(served, "/zarr.json")
    monkeypatch.undo()
    assert ask(served, "/zarr.json")[0] == 200
    assert ("Traceback" in capfd.readouterr().err) == (error is ValueError)


def test_tensorstore_reads_what_is_served(served):
    """As neuroglancer does: connections that stay, ranges of shards, many at once."""
    tensorstore = pytest.importorskip("tensorstore")
    place = {"driver": "zarr3", "kvstore": f"{served.address}/u/0/"}
    array = tensorstore.open(place, read=True, open=True).result(timeout=60)
    asked = [array[plane, 3:, 40:].read() for plane in range(len(VALUES))]
    found = np.array([plane.result(timeout=60) for plane in asked])
    np.testing.assert_array_equal(found, VALUES[:, 3:, 40:])
    folder = tensorstore.KvStore.open(f"{served.address}/").result(timeout=60)
    assert folder.read("u/0/c/9/9/9").result(timeout=60).state == "missing"


def test_shards_are_read_in_the_order_in_which_neuroglancer_asks(tmp_path):
    """Metadata of any version, the size of a shard, its index, and then each chunk by itself."""
    numcodecs = pytest.importorskip("numcodecs")
    np.save(tmp_path / "u.npy", VALUES)
    how = {"chunks": 32, "codec": "zstd:1", "levels": True}
    og.convert(og.InputFile(str(tmp_path / "u.npy")), tmp_path / "u.zarr", **how)
    with Served(tmp_path / "u.zarr") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert [ask(server, f"/u/{name}")[0] for name in (".zarray", ".zattrs")] == [404, 404]
        (scales,) = json.loads(ask(server, "/u/zarr.json")[2])["attributes"]["ome"]["multiscales"]
        (codec,) = json.loads(ask(server, "/u/0/zarr.json")[2])["codecs"]
        assert (scales["datasets"][0]["path"], codec["name"]) == ("0", "sharding_indexed")
        shard, cells = "/u/0/c/0/0/0", codec["configuration"]["chunk_shape"]
        size, count = int(ask(server, shard, "HEAD")[1]["Content-Length"]), 3 * 3 * 3
        asked = f"bytes={size - 16 * count - 4}-{size - 1}"
        index = np.frombuffer(ask(server, shard, Range=asked)[2][:-4], "<u8").reshape(3, 3, 3, 2)
        for place in np.ndindex(3, 3, 3):
            first, nbytes = map(int, index[place])
            asked = f"bytes={first}-{first + nbytes - 1}"
            status, _, body = ask(server, shard, Range=asked, Origin="https://viewer.example")
            assert status == 206
            found = np.frombuffer(numcodecs.Zstd().decode(body), "<f4").reshape(cells)
            wanted = VALUES[tuple(slice(32 * k, 32 * k + 32) for k in place)]
            np.testing.assert_array_equal(found[tuple(map(slice, wanted.shape))], wanted)
        server.shutdown()
        thread.join()


def test_arrays_have_links_for_viewers(served):
    assert served.arrays == ("plane", "u")
    port = served.server_address[1]
    assert served.source("u") == f"zarr://http://127.0.0.1:{port}/u/"
    page, _, state = link(served, "u").partition("#!")
    assert page.startswith("https://neuroglancer")
    (layer,) = json.loads(urllib.parse.unquote(state))["layers"]
    shown = layer.pop("shaderControls")["normalized"]["range"]
    assert VALUES.min() <= shown[0] < shown[1] <= VALUES.max()
    assert shown[1] - shown[0] > 0.25 * np.ptp(VALUES)
    assert layer == {"type": "image", "name": "u", "source": served.source("u")}
    (layer,) = json.loads(urllib.parse.unquote(link(served, "plane").partition("#!")[2]))["layers"]
    assert "shaderControls" not in layer  # all of its values are the same


def test_the_verb_serves_until_ctrl_c(folder):
    command = [sys.executable, "-m", "outgrid", "serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            first = process.stdout.readline()
            port = int(re.search(r"http://127\.0\.0\.1:(\d+)", first)[1])
            listed = [process.stdout.readline() for _ in range(4)]
            assert f"u: zarr://http://127.0.0.1:{port}/u/" in listed[2]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/zarr.json")
            assert connection.getresponse().status == 200
            connection.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_what_cannot_be_served_is_refused(tmp_path, served):
    with pytest.raises(UsageError, match=r"is not a folder.*outgrid export"):
        Served(tmp_path / "none")
    with pytest.raises(UsageError, match=r"has no zarr\.json"):
        Served(tmp_path)
    with pytest.raises(UsageError, match="not 99999"):
        Served(served.folder, 99999)
    with pytest.raises(UsageError, match="is not available"):
        Served(served.folder, served.server_address[1])


def test_a_run_is_served_as_it_lies(tmp_path):
    problem = og.Problem(
        "heat7", (6, 7, 8), steps=2, parameters={"k": 0.1}, initial={"u": "x + y * z"}
    )
    result = og.run(problem, memory="256 MiB", out=tmp_path / "heat.run")
    plane = result["u"][1]
    with Served(result.out) as run:
        thread = threading.Thread(target=run.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert run.arrays == ("u",)
            said = json.loads(ask(run, "/u/zarr.json")[2])
            assert said["shape"] == [6, 7, 8]
            first = 4096 + plane.nbytes
            asked = f"bytes={first}-{first + plane.nbytes - 1}"
            status, _, body = ask(run, "/u/c/0/0/0", Range=asked)
            tensorstore = pytest.importorskip("tensorstore")
            place = {"driver": "zarr3", "kvstore": f"{run.address}/u/"}
            array = tensorstore.open(place, read=True, open=True).result(timeout=60)
            np.testing.assert_array_equal(array[1].read().result(timeout=60), plane)
        finally:
            run.shutdown()
            thread.join()
    assert (status, body) == (206, plane.tobytes())
