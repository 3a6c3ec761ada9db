"""ttrace.compare in the ranks of a job that runs: see comparing_job.py."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from launch_ranks import launcher

SCRIPT = Path(__file__).with_name("comparing_job.py")


def compare(folder, *names, ranks=3):
    """What each rank found, by the name of the comparison."""
    command = [*launcher(ranks), str(SCRIPT), str(folder), *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    for rank, one in enumerate(found):
        assert one["changed"] == [], f"rank {rank}"
        assert all(numbers == one["drawn"][0] for numbers in one["drawn"]), f"rank {rank}"
        assert one["total"] == ([3.0, 3.0] if rank == 0 else [6.0, 6.0])
    return [one["found"] for one in found]


def test_all_ranks_find_that_a_sum_is_missing_and_are_as_before(tmp_path):
    found = compare(tmp_path, "no reduction", "too many", "not of it")
    legs = [len(json.loads((tmp_path / f"rank-{k}.json").read_text())["drawn"]) for k in range(3)]
    assert legs[0] > legs[1] > 0 and legs[2] == 0  # the reference is on the first rank alone
    for of_rank in found:
        verdict, first, compared, _, text = of_rank["no reduction"]
        assert (verdict, first) == ("diverged", "2.bias"), text
        assert compared > 20
        assert of_rank["too many"] == "ranks: 4 are more than the 3 of the group"
        assert of_rank["no reduction"] == found[0]["no reduction"]
    assert found[0]["not of it"].startswith("group: this rank is not in it")


@pytest.mark.matrix
def test_a_subgroup_compares_and_a_rank_that_fails_ends_no_other(tmp_path):
    """Device meshes and groups of each leg are its own; a rank waits in a collective for the one
    that fails."""
    found = compare(tmp_path, "raises", "of a pair", "data parallel")
    for rank, of_rank in enumerate(found):
        verdict, _, _, reason, text = of_rank["raises"]
        assert verdict == "inconclusive" and "a fault of rank 1" in reason, text
        assert of_rank["data parallel"][0] == "within", of_rank["data parallel"][-1]
        if rank:
            assert of_rank["of a pair"][0] == "within", of_rank["of a pair"][-1]
