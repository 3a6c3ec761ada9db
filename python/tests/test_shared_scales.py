"""Ranks that measure noise legs of what none of them holds whole, on a real store and with real
traces."""

import pytest
import torch
import torch.distributed as dist

from captured_run import index
from ttrace.capture.agreement import Agreement
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings
from ttrace.capture.shared_scales import SharedScales

LEGS = ("replay", "noise.1", "fp32", "isolated.noise.1", "fp32.noise.1")


class Rank:
    """One of two ranks, each with a half of a tensor."""

    def __init__(self, folder, store, rank, legs=LEGS, **settings):
        self.folder = folder
        self.session = Session(Settings(out=str(folder), legs=legs, **settings))
        self.session.start(rank, 2, [("tp", 2)], [rank], {})
        self.agreement = Agreement(store, "key", rank, 2)
        self.scales = SharedScales(self.session, self.agreement, legs)
        self.rank = rank

    def record(self, leg):
        torch.manual_seed(self.rank)
        values = torch.randn(64, 1024) * (1 + 99 * self.rank)
        if "noise" in leg:
            values = values * (1 + 1e-3 * torch.randn(64, 1024))
        where = {"iteration": 0, "pass_": "forward"}
        with self.session.rerun(leg):
            self.session.record("m", "output", "0", values, "tp:Shard(0)", **where)
        self.session.flush()

    def lines(self, kind):
        self.session.flush()
        return [line for line in index(self.folder, self.rank) if line.get("type") == kind]

    def measured(self, leg):
        (record,) = [line for line in self.lines("record") if line["leg"] == leg]
        return "measured_against" in record

    def said(self):
        return [line["data"]["text"] for line in self.lines("note") if line["kind"] == "notice"]


@pytest.fixture
def ranks(tmp_path, request):
    store = dist.HashStore()
    settings = getattr(request, "param", {})
    (tmp_path / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    made = [Rank(tmp_path, store, rank, **settings) for rank in range(2)]
    for rank in made:
        rank.store = store
    yield made
    for rank in made:
        rank.session.finish()


def run_leg(ranks, leg, silent=()):
    """As the reruns do: what ranks post before a vote is there after it."""
    for rank in ranks:
        if leg != "real":
            rank.scales.learn()
        rank.record(leg)
    for rank in ranks:
        if rank not in silent:
            rank.scales.tell(leg)
        else:
            rank.scales._told.append(leg)  # it believes that it has
    for rank in ranks:
        rank.scales.add_up()


def test_noise_is_measured_once_ranks_told_each_other(ranks):
    before = ranks[0].store.num_keys()
    for leg in ("real", *LEGS):
        run_leg(ranks, leg)
    for rank in ranks:
        for leg in ("noise.1", "isolated.noise.1", "fp32.noise.1"):
            assert rank.measured(leg), leg
        assert not rank.said()
        rank.scales.forget()
    assert ranks[0].store.num_keys() == before


def test_without_one_ranks_word_all_keep_their_values_and_say_why(ranks):
    for leg in ("real", "replay"):
        run_leg(ranks, leg, silent=ranks[1:])
    run_leg(ranks, "noise.1")
    for rank in ranks:
        assert not rank.measured("noise.1")
        assert "several ranks: rank 1 did not say how large its parts are" in rank.said()[0]
    # The legs in fp32 are another matter.
    for leg in ("fp32", "isolated.noise.1", "fp32.noise.1"):
        run_leg(ranks, leg)
    for rank in ranks:
        assert not rank.measured("isolated.noise.1")
        assert rank.measured("fp32.noise.1")


def test_a_damaged_word_is_as_good_as_none(ranks):
    post = ranks[1].agreement.post
    ranks[1].agreement.post = lambda name, content: post(name, content[:-1])
    for leg in ("real", "noise.1"):
        run_leg(ranks, leg)
    for rank in ranks:
        assert not rank.measured("noise.1")
        assert "rank 1" in rank.said()[0]


def test_a_damaged_answer_is_said_by_who_reads_it(ranks):
    posted = ranks[1].agreement.posted
    ranks[1].agreement.posted = lambda name: (posted(name) or b"")[:-1]
    for leg in ("real", "noise.1"):
        run_leg(ranks, leg)
    assert [rank.measured("noise.1") for rank in ranks] == [True, False]
    assert [len(rank.said()) for rank in ranks] == [0, 1]


def test_without_an_answer_values_are_kept(ranks):
    ranks[0].scales.add_up = lambda: None
    for leg in ("real", "noise.1"):
        run_leg(ranks, leg)
    assert not any(rank.measured("noise.1") for rank in ranks)
    assert all("rank 0 has not added up" in rank.said()[0] for rank in ranks)


@pytest.mark.parametrize("ranks", [{"keep_values": True}, {"legs": ("fp32",)}], indirect=True)
def test_nothing_is_told_that_nobody_needs(ranks):
    before = ranks[0].store.num_keys()
    for leg in ("real", "replay", "fp32"):
        run_leg(ranks, leg)
    assert ranks[0].store.num_keys() == before


def test_bytes_of_any_number_come_whole(tmp_path):
    parts = b"".join(bytes([k % 256]) * 77_777 for k in range(100))
    for store in (
        dist.HashStore(),
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
        dist.FileStore(str(tmp_path / "store"), 2),
    ):
        one, other = (Agreement(dist.PrefixStore("p", store), "key", rank, 2) for rank in range(2))
        assert other.posted("a") is None
        for content in (b"", b"\0\xff", parts):
            one.post("a", content)
            assert other.posted("a") == content
        one.withdraw("a")
        assert other.posted("a") is None
        other.withdraw("a")
