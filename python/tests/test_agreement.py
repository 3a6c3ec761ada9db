"""Votes of ranks that are threads here, on a real store."""

import threading
import time

import pytest
import torch.distributed as dist

from ttrace.capture.agreement import Agreement


def ballots(ranks, act, store=None):
    """What `act(agreement)` gives on each rank, all at the same time."""
    store = store or dist.HashStore()
    found = [None] * ranks

    def run(rank):
        found[rank] = act(Agreement(store, "key", rank, ranks))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found, store


def test_all_say_yes():
    assert ballots(3, lambda ranks: ranks.vote("go", None, 5))[0] == [None] * 3


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_on_the_stores_of_real_jobs(tmp_path, kind):
    if kind == "tcp":
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    else:
        store = dist.FileStore(str(tmp_path / "store"), 3)
    store = dist.PrefixStore("default_pg", store)

    def votes(me):
        first, word = me.vote("first", None, 5), me.tell("end", str(me.rank))
        return first, me.vote("second", "no" if me.rank == 2 else None, 5), word == me.told("end")

    assert ballots(3, votes, store)[0] == [(None, "rank 2: no", True)] * 3


def test_one_no_is_everybodys_answer_with_its_reason():
    def vote(me):
        return me.vote("go", "no memory" if me.rank == 1 else None, 5)

    assert ballots(3, vote)[0] == ["rank 1: no memory"] * 3


def test_who_says_no_waits_for_nobody_and_who_comes_late_reads_it():
    def vote(me):
        if me.rank == 0:
            time.sleep(0.5)
        began = time.monotonic()
        answer = me.vote("go", None if me.rank == 0 else "no", 30)
        return answer, time.monotonic() - began

    found, _ = ballots(2, vote)
    assert [answer for answer, _ in found] == ["rank 1: no"] * 2
    assert max(seconds for _, seconds in found) < 0.4


def test_a_silent_rank_is_named_and_finds_the_decision_when_it_comes():
    def vote(me):
        if me.rank == 2:
            time.sleep(1)
        return me.vote("go", None, 0.2 if me.rank == 0 else 10), me.silent

    assert ballots(3, vote)[0] == [("rank 2 did not answer in 0 s", True)] * 3


def test_a_rank_without_capture_refuses_and_goes_on():
    def vote(me):
        return me.refuse("go", "stopped") if me.rank == 0 else me.vote("go", None, 10)

    assert ballots(2, vote)[0] == [None, "rank 0: stopped"]


def test_answers_that_all_have_read_are_deleted():
    def vote(me):
        return [me.vote(f"question {k}", None, 5) for k in range(20)]

    found, store = ballots(2, vote)
    assert found == [[None] * 20] * 2
    time.sleep(0.1)
    assert store.num_keys() < 10


def test_a_word_is_the_first_one_s():
    found, _ = ballots(2, lambda me: (me.tell("end", f"rank {me.rank}"), me.told("end")))
    assert len({word for pair in found for word in pair}) == 1
    assert Agreement(None, "key", 0, 1).told("end") is None


def test_different_legs_are_noticed():
    found, _ = ballots(2, lambda me: me.differing("legs", f"noise.{me.rank}"))
    assert sum(value is not None for value in found) == 1


def test_alone_nobody_is_asked():
    assert Agreement(None, "key", 0, 1).vote("go", None, 0) is None
    assert Agreement(None, "key", 0, 1).vote("go", "no", 0) == "no"
