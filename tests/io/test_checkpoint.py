"""Checkpoints: the same bits back, never half a file, one clear line for anything else."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from meshloom.errors import RunError, UserError
from meshloom.io import collective
from meshloom.io.checkpoint import Checkpoint, load, save
from meshloom.io.monitors import MonitorLog


@pytest.fixture
def checkpoint() -> Checkpoint:
    rng = np.random.default_rng(3)
    awkward = np.array([0.0, -0.0, 5e-324, 1e308, -np.inf, 0.1])
    return Checkpoint(
        case="airfoil",
        iteration=4,
        precision="double",
        mesh="ab" * 32,
        config='case = "airfoil"\n[run]\niterations = 4\n',
        state={"q": rng.random((20, 4)), "adt": awkward, "small": rng.random(3).astype(np.float32)},
        monitor_names=("rms", "lift"),
        monitors=rng.random((4, 2)),
    )


def test_comes_back_bit_for_bit(tmp_path: Path, checkpoint: Checkpoint):
    file = tmp_path / "c.h5"
    save(file, checkpoint)
    back = load(file)
    assert replace(back, state={}, monitors=checkpoint.monitors) == replace(checkpoint, state={})
    assert back.monitors.tobytes() == checkpoint.monitors.tobytes()
    assert back.state.keys() == checkpoint.state.keys()
    for name, values in checkpoint.state.items():
        assert back.state[name].dtype == values.dtype and back.state[name].tobytes() == values.tobytes()
    assert os.listdir(tmp_path) == ["c.h5"]


def test_before_the_first_iteration(tmp_path: Path, checkpoint: Checkpoint):
    save(tmp_path / "c.h5", replace(checkpoint, iteration=0, monitors=np.empty((0, 2))))
    assert load(tmp_path / "c.h5").monitors.shape == (0, 2)


def test_more_monitors_than_an_attribute_holds(tmp_path: Path, checkpoint: Checkpoint):
    many = replace(checkpoint, monitor_names=tuple(f"gauge/ü{k}" for k in range(4100)), monitors=np.zeros((4, 4100)))
    save(tmp_path / "c.h5", many)
    assert load(tmp_path / "c.h5").monitor_names == many.monitor_names


def refusal(file: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(file)
    message = str(caught.value)
    assert "\n" not in message and str(file) in message
    return message


def test_truncated_anywhere(tmp_path: Path, checkpoint: Checkpoint):
    whole, cut = tmp_path / "c.h5", tmp_path / "cut.h5"
    save(whole, checkpoint)
    data = whole.read_bytes()
    for size in range(0, len(data), len(data) // 97):
        cut.write_bytes(data[:size])
        assert "checkpoint" in refusal(cut)


def test_a_changed_byte_is_noticed(tmp_path: Path, checkpoint: Checkpoint):
    whole, bad = tmp_path / "c.h5", tmp_path / "bad.h5"
    save(whole, checkpoint)
    data = bytearray(whole.read_bytes())
    noticed = 0
    for position in range(0, len(data), 41):
        changed = data.copy()
        changed[position] ^= 0x40
        bad.write_bytes(changed)
        assert "\n" not in refusal(bad)
        noticed += 1
    assert noticed > 20


def test_checkpoints_of_before_there_were_checksums(tmp_path: Path, checkpoint: Checkpoint):
    save(tmp_path / "c.h5", checkpoint)
    whole = (tmp_path / "c.h5").read_bytes()
    with h5py.File(tmp_path / "c.h5", "r") as new, h5py.File(tmp_path / "old.h5", "w") as old:
        for name in new:
            new.copy(name, old)
        old.attrs.update(new.attrs)
    assert load(tmp_path / "old.h5").digest() == checkpoint.digest()
    (tmp_path / "bare.h5").write_bytes(whole[512:])  # the checksum alone is missing
    assert load(tmp_path / "bare.h5").digest() == checkpoint.digest()


def test_a_changed_number_is_noticed(tmp_path: Path, checkpoint: Checkpoint):
    bad = tmp_path / "c.h5"
    save(bad, checkpoint)
    data = bytearray(bad.read_bytes())
    numbers = data.copy()
    numbers[data.index(checkpoint.state["q"].tobytes()) + 100] ^= 1
    bad.write_bytes(numbers)
    assert "damaged" in refusal(bad)


def test_things_that_are_no_checkpoints(tmp_path: Path):
    assert "no such" in refusal(tmp_path / "missing.h5")
    assert "it is a folder" in refusal(tmp_path)
    (tmp_path / "text.h5").write_text("hello")
    assert "not a checkpoint" in refusal(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = np.arange(3)
    assert "not a Meshloom checkpoint" in refusal(tmp_path / "other.h5")


def test_another_format_is_named(tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as later:
        later.setattr("meshloom.io.checkpoint.FORMAT", 99)
        save(tmp_path / "c.h5", checkpoint)
    assert "format 99" in refusal(tmp_path / "c.h5")


def _full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_previous_checkpoint(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "c.h5"
    save(file, checkpoint)
    before = file.read_bytes()
    monkeypatch.setattr(os, "fsync", _full_disk)
    with pytest.raises(RunError, match=r"cannot write .*c\.h5: disk full"):
        save(file, replace(checkpoint, iteration=5, monitors=np.ones((5, 2))))
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["c.h5"]


def test_monitors_start_with_history_and_grow(tmp_path: Path):
    file = tmp_path / "m.csv"
    file.write_text("left over from a longer run\n" * 9)
    with closing(MonitorLog(file, ("rms", "lift"), np.array([[0.1, 1.0]]))) as log:
        log.append(np.array([[1 / 3, 2.0], [1e-300, -0.0]]))
        assert file.read_text() == "iteration,rms,lift\n1,0.1,1.0\n2,0.3333333333333333,2.0\n3,1e-300,-0.0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_monitors_on_a_full_disk(tmp_path: Path):
    log = MonitorLog(tmp_path / "m.csv", ("rms",), np.empty((0, 1)))
    log._file = open("/dev/full", "a")  # noqa: SIM115  closed by the log
    with pytest.raises(RunError, match=r"m\.csv: disk full"):
        log.append(np.ones((3, 1)))
    log.close(failed=True)
    assert log._file.closed


def written_before(path: Path, checkpoint: Checkpoint) -> bytes:
    """As versions wrote it whose checksum is that of all that follows it, with another one of the content."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=512) as file:
        head = ("case", "iteration", "precision", "mesh", "config")
        file.attrs.update({name: getattr(checkpoint, name) for name in head}, format=1, sha256=checkpoint.digest())
        for name, values in checkpoint.state.items():
            file.create_dataset(f"state/{name}", data=values)
        file.create_dataset("monitors", data=checkpoint.monitors).attrs["names"] = checkpoint.monitor_names
    return sealed_before(path, buffer.getvalue()[512:])


def sealed_before(path: Path, body: bytes) -> bytes:
    front = b"meshloom checkpoint, sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    path.write_bytes(front.ljust(512, b"\0") + body)
    return body


def test_checkpoints_of_earlier_versions(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "c.h5"
    body = bytearray(written_before(path, checkpoint))
    assert load(path).digest() == checkpoint.digest()
    body[body.index(checkpoint.state["q"].tobytes()) + 100] ^= 1
    damaged = path.read_bytes()[:512] + body
    path.write_bytes(damaged)
    assert "damaged or truncated" in refusal(path)
    sealed_before(path, bytes(body))
    assert "its content does not match its checksum" in refusal(path)


def test_the_checksum_is_that_of_the_checksums_of_blocks(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "BLOCK", 1000)
    save(tmp_path / "c.h5", checkpoint)
    data = (tmp_path / "c.h5").read_bytes()
    blocks = [data[512:1000], *(data[first : first + 1000] for first in range(1000, len(data), 1000))]
    checksum = hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in blocks)).hexdigest()
    front = f"meshloom checkpoint, sha256 of blocks {checksum}\n".encode()
    assert len(blocks) > 3 and data[:512] == front.ljust(512, b"\0")
    with h5py.File(tmp_path / "c.h5") as file:
        places = {name: file["state"][name].id.get_offset() for name in checkpoint.state}
    for name, values in checkpoint.state.items():
        assert data[places[name] :].startswith(values.tobytes()), "rows stand in one piece"
