"""Every rank's trace says which run it belongs to, so that folders of two runs cannot be mixed."""

import json

import pytest

from ttrace import _native
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings


def record(folder, rank, run_id):
    session = Session(Settings(out=str(folder), run_id=run_id))
    session.start(rank, 2, [("tp", 2)], [rank], {})
    session.finish()


def test_a_rank_names_its_run(tmp_path):
    record(tmp_path, 1, "6f1c")
    meta = json.loads((tmp_path / "rank-00001.r0" / "meta.json").read_text())
    assert meta["run_id"] == "6f1c"


def test_ranks_of_two_runs_are_no_reference(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    record(tmp_path, 0, "6f1c")
    record(tmp_path, 1, "77aa")
    mixed = "rank 0 belongs to run 6f1c, rank 1 belongs to run 77aa"
    with pytest.raises(_native.Error, match=mixed):
        _native.Reference(str(tmp_path))
