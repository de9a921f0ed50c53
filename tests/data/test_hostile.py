"""Damaged and malicious files: the same data or a DataError, never anything else."""

import io
import pickle
import struct
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from jumpyworld.data import load
from jumpyworld.errors import DataError

ROWS = 150
watched: list[str] = []
watching = False


def _hook(event, args):
    if watching and event in ("pickle.find_class", "subprocess.Popen", "os.system", "os.exec"):
        watched.append(event)
    if watching and event.startswith(("socket.connect", "ctypes.dlopen")):
        watched.append(event)


sys.addaudithook(_hook)


def arrays():
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(ROWS, 29)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, 8)).astype(np.float32),
        "terminals": np.arange(ROWS) % 50 == 49,
        "qpos": rng.normal(size=(ROWS, 15)).astype(np.float32),
    }


def base_bytes(save):
    buffer = io.BytesIO()
    save(buffer, **arrays())
    return buffer.getvalue()


def mutate(rng, kind, data):
    out = bytearray(data)
    place = int(rng.integers(len(out)))
    if kind == "flip":
        out[place] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del out[place:]
    else:
        run = int(rng.integers(1, 64))
        out[place : place + run] = rng.bytes(min(run, len(out) - place))
    return bytes(out)


def count_mutations(tmp_path, count, seed):
    """Return how many loads ended in (error, same, wrong), over flips, cuts and garbled runs."""
    rng = np.random.default_rng(seed)
    bases = [base_bytes(np.savez), base_bytes(np.savez_compressed)]
    path = tmp_path / "set.npz"
    path.write_bytes(bases[0])
    want = load(path).fingerprint()
    result = {"error": 0, "same": 0, "wrong": 0}
    for i in range(count):
        kind = ("flip", "cut", "garble")[i % 3]
        path.write_bytes(mutate(rng, kind, bases[i // 3 % 2]))
        try:
            same = load(path).fingerprint() == want
            result["same" if same else "wrong"] += 1
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            result["error"] += 1
    return result


def test_three_thousand_mutations(tmp_path):
    result = count_mutations(tmp_path, 3000, seed=0)
    assert result["wrong"] == 0 and result["error"] > 2900, result


@pytest.mark.slow
def test_hundred_thousand_mutations(tmp_path):
    result = count_mutations(tmp_path, 100_000, seed=1)
    assert result["wrong"] == 0, result


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_flips_in_the_directory_and_at_the_end_of_each_member(tmp_path, save):
    base = base_bytes(save)
    path = tmp_path / "set.npz"
    path.write_bytes(base)
    want = load(path).fingerprint()
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
        ends = []
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", base, info.header_offset + 26)
            ends.append(info.header_offset + 30 + name + extra + info.compress_size)
    # The very last byte of a deflate stream may hold bits that mean nothing.
    last = [end - 1 - i for end in ends for i in range(8)]
    for place in [*last, *range(start, len(base))]:
        for bit in range(8) if place in last else (0, 5):
            out = bytearray(base)
            out[place] ^= 1 << bit
            path.write_bytes(out)
            try:
                assert load(path).fingerprint() == want
                assert save is not np.savez or place not in last, "checksum not compared"
            except DataError:
                pass


def npy(header: str, body: bytes = b"", magic=b"\x93NUMPY\x01\x00") -> bytes:
    text = header.encode("latin1")
    return magic + len(text).to_bytes(2, "little") + text + body


def header(descr="'<f4'", shape=f"({ROWS}, 29)", order="False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def write_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, compression, compresslevel=1)


def good_members():
    out = []
    for name, array in arrays().items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array, allow_pickle=False)
        out.append((f"{name}.npy", buffer.getvalue()))
    return out


class Bomb:
    """Runs code when unpickled."""

    def __init__(self, canary):
        self.canary = str(canary)

    def __reduce__(self):
        return open, (self.canary, "w")


def pickled(canary):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.array([Bomb(canary)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def evil_names():
    return {
        f"name {name!r}": [*good_members(), (name, good_members()[3][1])]
        for name in (
            "../../x.npy",
            "/etc/x.npy",
            "C:\\x.npy",
            "a/../../x.npy",
            "x",
            "folder/",
            "\u202egnp.npy",
            "a b.npy",
            "qpos.npy",
            ".npy",
            "..npy",
            "x.npy/",
            "x.npy\n",
        )
    }


def evil_headers(canary):
    body = bytes(ROWS * 29 * 4)
    command = f"__import__('os').system('touch {canary}')"
    return {
        "huge shape": npy(header(shape="(1000000000000, 29)"), body),
        "overflowing shape": npy(header(shape="(4294967296, 4294967296)"), body),
        "shape wraps to size": npy(header(shape=f"(4294967296, 4294967296, {ROWS}, 29)"), body),
        "negative shape": npy(header(shape="(-150, -29)"), body),
        "long number": npy(header(shape=f"({'9' * 400},)"), body),
        "many dimensions": npy(header(shape=f"({'1,' * 64} {ROWS}, 29)"), body),
        "not enough bytes": npy(header(), body[:-4]),
        "too many bytes": npy(header(), body + b"abcd"),
        "object": npy(header(descr="'|O'"), body),
        "object in structure": npy(header(descr="[('a', '|O')]"), body),
        "structure": npy(header(descr="[('a', '<f4')]"), body),
        "text": npy(header(descr="'<U1'"), body),
        "dates": npy(header(descr="'<M8[ns]'"), body),
        "void": npy(header(descr="'|V4'"), body),
        "long double": npy(header(descr="'<f16'"), body),
        "unknown type": npy(header(descr="'<q99'"), body),
        "code for a type": npy(header(descr=command), body),
        "code for a shape": npy(header(shape=command), body),
        "spaces": npy(header()[:-1] + " " * 9000, body),
        "brackets": npy("{'descr': [" + "[" * 9000, body),
        "commas": npy(header(shape="(" + "1 " * 4000 + ")"), body),
        "missing key": npy("{'descr': '<f4', 'fortran_order': False}", body),
        "no header": b"\x93NUMPY\x01\x00",
        "header cut": npy(header(), body)[:40],
        "wrong version": npy(header(), body, magic=b"\x93NUMPY\x09\x00"),
        "other magic": b"GIF89a" + body,
        "nothing": b"",
    }


def corpus(folder, canary):
    """Write the malicious files and return their paths by description."""
    out = {}

    def add(name, members=None, data=None, compression=zipfile.ZIP_STORED, patch=None):
        path = folder / f"{len(out)}.npz"
        if members is not None:
            write_zip(path, members, compression)
        else:
            path.write_bytes(data)
        if patch:
            path.write_bytes(patch(bytearray(path.read_bytes())))
        out[name] = path

    good = good_members()
    for name, members in evil_names().items():
        add(name, members)
    for name, data in evil_headers(canary).items():
        add(name, [("observations.npy", data), *good[1:]])
    add("pickle in npz", [*good, ("evil.npy", pickled(canary))])
    add("pickle as a member", [*good, ("evil.npy", pickle.dumps(Bomb(canary)))])
    add("pickle as a file", data=pickle.dumps(Bomb(canary)))
    add("npy as a file", data=good[0][1])
    add("page of text", data=b"<html><title>404 Not Found</title></html>" * 50)
    add("empty file", data=b"")
    add("empty zip", [])
    add("zeros", data=bytes(4096))
    bomb = npy(header(shape="(16777216,)"), bytes(2**26))
    add("zip bomb", [*good, ("bomb.npy", bomb)], compression=zipfile.ZIP_DEFLATED)
    add("two thousand keys", [(f"k{i}.npy", b"") for i in range(2000)])
    add("lzma", good, compression=zipfile.ZIP_LZMA)
    add("bzip2", good, compression=zipfile.ZIP_BZIP2)

    def directory(offset, form, *values):
        # Overwrite a field of the first entry of the central directory.
        def patch(data):
            struct.pack_into(form, data, data.index(b"PK\x01\x02") + offset, *values)
            return data

        return patch

    add("encrypted", good, patch=directory(8, "<H", 1))
    add("declares 4 GB", good, patch=directory(24, "<I", 2**32 - 2))
    add("declares 4 GB stored", good, patch=directory(20, "<II", 2**32 - 2, 2**32 - 2))
    add("offset past the end", good, patch=directory(42, "<I", 2**31))
    add("overlapping entries", good, patch=directory(42, "<I", 2**10))
    add("zip64 count", good, patch=_forged_zip64)
    return out


def _forged_zip64(data):
    at = data.rindex(b"PK\x05\x06")
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**6, 10**6, 2**40, 0)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    return data[:at] + record + locator + data[at:]


def test_malicious_corpus(tmp_path):
    global watching
    canary = tmp_path / "canary"
    folder = tmp_path / "files"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **k: None)  # zipfile warns when writing twice
        files = corpus(folder, canary)
    assert len(files) >= 50
    names = sorted(p.name for p in tmp_path.rglob("*"))
    watched.clear()
    for name, path in files.items():
        tracemalloc.start()
        began = time.process_time()
        watching = True
        try:
            with pytest.raises(DataError) as caught:
                load(path)
        finally:
            watching = False
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert time.process_time() - began < 1, name
        assert peak < 2 * path.stat().st_size + 40e6, name
        assert str(caught.value).isprintable(), name
    assert not canary.exists() and not watched
    assert names == sorted(p.name for p in tmp_path.rglob("*"))


def test_a_prefix_or_comment_does_not_matter(tmp_path):
    path = tmp_path / "set.npz"
    write_zip(path, good_members())
    want = load(path).fingerprint()
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"made elsewhere"
    assert load(path).fingerprint() == want
    path.write_bytes(b"prefix" + path.read_bytes())
    assert load(path).fingerprint() == want


def test_odd_booleans_become_plain_ones(tmp_path):
    path = tmp_path / "set.npz"
    flags = (np.arange(ROWS) % 50 == 49).astype(np.uint8) * 255
    members = dict(good_members())
    odd = npy(header("'|b1'", f"({ROWS},)"), flags.tobytes())
    write_zip(path, (members | {"terminals.npy": odd, "padded.npy": odd}).items())
    data = load(path)
    assert data.ends.tolist() == [49, 99, 149]
    assert data.extras["padded"].view(np.uint8).max() == 1


def test_compressed_constant_data_is_no_bomb(tmp_path):
    path = tmp_path / "set.npz"
    parts = {key: np.zeros_like(value) for key, value in arrays().items()}
    np.savez_compressed(path, **parts | {"terminals": arrays()["terminals"]})
    assert load(path).num_trajectories == 3


def test_last_bytes_of_a_large_member_are_checked(tmp_path):
    path = tmp_path / "set.npz"
    n = 60_001  # more than one block
    terminals = np.arange(n) == n - 1
    np.savez(
        path, terminals=terminals, observations=np.ones((n, 20), "f4"), actions=np.ones((n, 1))
    )
    data = bytearray(path.read_bytes())
    assert load(path).num_states == n
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("actions.npy")
    end = info.header_offset  # the byte before is the last of observations
    data[end - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="CRC"):
        load(path)
