"""Recording of tensors of a real CUDA device, beside which test_device_memory.py has a stand-in.

Skipped where there is none. docs/gpu.md says when and on what these last ran.
"""

import threading

import pytest
import torch

from captured_run import index
from test_device_memory import files, notes, open_session, write

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int64, torch.uint8, torch.bool,
]  # fmt: skip


def values():
    """On the host: kinds, layouts, and sizes up to one that has no room in the staging memory."""
    torch.manual_seed(3)
    whole = torch.randn(2, 40, 72)
    out = [(whole * 100).to(dtype) for dtype in DTYPES]
    out += [whole.permute(0, 2, 1), whole[:, 3:, 5:], whole[:, :, ::2]]
    out += [torch.randn(9, 8, 2).transpose(0, 2), torch.randn(30, 3, 4)[4::20]]
    out += [torch.randn(2, 1, n) for n in (1, 3, 1 << 10, 5_000_001)]
    out += [torch.randn(2, 2, 5 << 20)[:, :, 7:], torch.empty(2, 0, 3)]
    return out


def on_device(value):
    """Of the same layout: a copy of all that its storage holds."""
    base = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage()).cuda()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def record_on_host(folder, values):
    session = open_session(folder)
    for step, value in enumerate(values):
        write(session, value, step)
    session.finish()


def test_the_trace_is_that_of_the_same_values_on_the_host(tmp_path):
    """Each tensor is overwritten as soon as its hook has returned, as an allocator has it."""
    record_on_host(tmp_path / "host", values())
    there = [on_device(value) for value in values()]
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    allocated = torch.cuda.memory_allocated()
    session = open_session(tmp_path / "device")
    for step, tensor in enumerate(there):
        with torch.cuda.stream(streams[step % 3]):
            late = tensor.clone()
            tensor.zero_()
            torch.cuda._sleep(2_000_000)
            tensor.copy_(late)
            write(session, tensor, step)
            tensor.zero_()
            del late
    session.finish()
    assert not session.stopped
    assert torch.cuda.memory_allocated() == allocated
    assert not notes(tmp_path / "device", "notice")
    assert files(tmp_path / "device") == files(tmp_path / "host")


def test_training_does_not_wait_for_the_device(tmp_path):
    session = open_session(tmp_path / "trace")
    tensor = torch.randn(2, 4, 8, device="cuda")
    write(session, tensor, 0)  # what the first one opens
    session.flush()
    before = torch.cuda.Event()
    torch.cuda._sleep(1 << 31)  # a second
    before.record()
    write(session, tensor, 1)
    assert not before.query(), "the device had to get there first"
    session.finish()
    assert not session.stopped
    assert before.query()


def test_what_is_computed_into_a_graph_is_named_and_the_graph_is_whole(tmp_path):
    session = open_session(tmp_path / "trace")
    tensor, result = torch.ones(2, 4, 8, device="cuda"), torch.zeros(2, 4, 8, device="cuda")
    write(session, tensor, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(tensor * 3)
        write(session, result, 1)
        result.add_(1)
    graph.replay()
    write(session, result, 2)
    session.finish()
    assert not session.stopped
    assert torch.equal(result, torch.full_like(result, 4))
    (open_verdict,) = notes(tmp_path / "trace", "unsupported")
    assert open_verdict["what"] == "CUDA graphs"
    missing = notes(tmp_path / "trace", "not_recorded")
    assert [(note["fqn"], note["role"]) for note in missing] == [("m", "output"), ("p", "param")]
    records = [line for line in index(tmp_path / "trace") if line["type"] == "record"]
    assert {line["iteration"] for line in records} == {0, 2}


def test_a_graph_that_another_thread_captures_is_not_spoilt(tmp_path):
    """Captured in the strict mode, in which most calls of any thread would end it."""
    tensor = torch.randn(2, 4, 8, device="cuda")
    captures, written = threading.Event(), threading.Event()
    failed = []

    def capture():
        try:
            a = torch.ones(1000, device="cuda")
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="global")
                a.add_(1)
                captures.set()
                assert written.wait(60)
                a.add_(1)
                graph.capture_end()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(a, torch.full_like(a, 3))
        except Exception as error:
            failed.append(error)
            captures.set()

    thread = threading.Thread(target=capture)
    thread.start()
    assert captures.wait(60)
    session = open_session(tmp_path / "trace")  # opened and closed meanwhile
    for step in range(50):
        write(session, tensor, step)
    session.flush()
    session.finish()
    written.set()
    thread.join()
    assert not failed
    assert not session.stopped


def test_a_device_without_room_is_recorded_by_way_of_the_host(tmp_path):
    free, _ = torch.cuda.mem_get_info()
    tensor = torch.randn(2, 4, 8, device="cuda")
    hog = torch.empty(max(0, free - (96 << 20)), dtype=torch.uint8, device="cuda")
    session = open_session(tmp_path / "trace")
    write(session, tensor, 0)
    session.finish()
    del hog
    torch.cuda.empty_cache()
    assert not session.stopped
    (notice,) = notes(tmp_path / "trace", "notice")
    assert "training waits for each" in notice["text"]
    record_on_host(tmp_path / "host", [tensor.cpu()])
    assert files(tmp_path / "trace")[1] == files(tmp_path / "host")[1]
