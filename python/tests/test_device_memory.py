"""What capture makes of tensors of a CUDA device: their memory is the writer's to read, in the
order of the stream on which they are computed. The device is a stand-in, which is
tests/native/stand_in_cuda.cc, and tensors of a torch without CUDA are said to be on it."""

import ctypes
import subprocess

import pytest
import torch

from captured_run import ROOT, index
from ttrace.capture import device_memory
from ttrace.capture.placed import Batch, Moment, TensorRule
from ttrace.capture.rewrite import Place
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings
from ttrace.capture.tensor_bytes import on_host

RULE = TensorRule(batch_dim=1, order=(1, 0, 2))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("driver") / "libstand_in_cuda.so"
    source = ROOT / "tests" / "native" / "stand_in_cuda.cc"
    include = [f"-I{ROOT}", f"-I{ROOT / 'include'}"]
    command = ["c++", "-std=c++20", "-shared", "-fPIC", "-pthread", *include, str(source)]
    subprocess.run([*command, "-o", str(path)], check=True)
    return path


class Device:
    """The program's view of it: one stream, and tensors that it computes."""

    def __init__(self, library):
        self.driver = ctypes.CDLL(str(library))
        self.driver.standInCount.restype = ctypes.c_long
        self._call("cuDevicePrimaryCtxRetain", context := ctypes.c_void_p())
        self.driver.cuCtxPushCurrent_v2(context)
        self._call("cuStreamCreate", stream := ctypes.c_void_p())
        self.stream = stream.value

    def _call(self, name, result):
        assert getattr(self.driver, name)(ctypes.byref(result), 0) == 0

    def close(self):
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        assert self.driver.standInCount(b"violations") == 0

    def capture(self, captured):
        self.driver.standInCapture(ctypes.c_void_p(self.stream), int(captured))

    def empty(self, values):
        """Memory for a tensor like `values`, in which nothing has been computed."""
        tensor = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype).fill_(-7)
        storage = tensor.untyped_storage()
        self.driver.standInAdopt(
            ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes())
        )
        return tensor

    def compute(self, tensor, values):
        """Enqueued: the values are there when the stream is."""
        source = values.untyped_storage()
        done = self.driver.cuMemcpyHtoDAsync_v2(
            ctypes.c_ulonglong(tensor.data_ptr()),
            ctypes.c_void_p(source.data_ptr()),
            ctypes.c_size_t(source.nbytes()),
            ctypes.c_void_p(self.stream),
        )
        assert done == 0


@pytest.fixture
def device(library, monkeypatch):
    device = Device(library)
    monkeypatch.setattr(device_memory, "_current_stream", lambda index: device.stream)
    yield device
    device.close()


@pytest.fixture
def as_cuda(monkeypatch):
    """All tensors are."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    monkeypatch.setattr(torch.Tensor, "device", property(lambda _: torch.device("cuda", 0)))


def open_session(folder, **settings):
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    session = Session(Settings(out=str(folder), **settings))
    session.start(0, 1, [("tp", 1)], [0], {})
    return session


def write(session, tensor, step):
    """By a slot and without one."""
    place = Place(
        Moment(step, "real", 0, Batch(2, 2, 1, (1, 4))), RULE, "m", "output", "0", 0, "forward"
    )
    session.record_at(place, tensor)
    session.record("p", "param", "", tensor, iteration=step, pass_="forward")


def values():
    torch.manual_seed(3)
    plain = [torch.randn(2, 4, 8) for _ in range(20)]
    return [*plain, torch.randn(8, 4, 2).permute(2, 1, 0), torch.randn(2, 4, 8).bfloat16()]


def files(folder):
    """What was written, but for when: lines of the index, and the values."""
    lines = [
        {key: value for key, value in line.items() if key != "chain"}
        for line in index(folder)
        if line.get("kind") not in ("record_times", "clock")
    ]
    return lines, (folder / "rank-00000.r0" / "segment-00000.safetensors").read_bytes()


def notes(folder, kind):
    lines = index(folder)
    return [line["data"] for line in lines if line["type"] == "note" and line["kind"] == kind]


def test_the_trace_is_that_of_the_same_values_on_the_host(tmp_path, device, library, request):
    on_cpu = open_session(tmp_path / "host")
    for step, value in enumerate(values()):
        write(on_cpu, value, step)
    on_cpu.finish()

    there = [(value, device.empty(value)) for value in values()]
    gone = [torch.full_like(value, 9) for value, _ in there]
    request.getfixturevalue("as_cuda")
    session = open_session(tmp_path / "device", cuda_driver=str(library))
    for step, (value, tensor) in enumerate(there):
        device.compute(tensor, value)
        write(session, tensor, step)
        device.compute(tensor, gone[step])  # the next tensor of an allocator
    session.finish()
    assert not session.stopped
    assert files(tmp_path / "device") == files(tmp_path / "host")


def test_what_is_computed_into_a_graph_is_named_once(tmp_path, device, library, as_cuda):
    tensor = device.empty(torch.randn(2, 4, 8))
    session = open_session(tmp_path / "trace", cuda_driver=str(library))
    write(session, tensor, 0)
    device.capture(True)
    write(session, tensor, 1)
    write(session, tensor, 2)
    device.capture(False)
    write(session, tensor, 3)
    session.finish()
    missing = notes(tmp_path / "trace", "not_recorded")
    assert [(note["fqn"], note["role"]) for note in missing] == [("m", "output"), ("p", "param")]
    (open_verdict,) = notes(tmp_path / "trace", "unsupported")
    assert open_verdict["what"] == "CUDA graphs"
    records = [line for line in index(tmp_path / "trace") if line["type"] == "record"]
    assert {line["iteration"] for line in records} == {0, 3}


@pytest.mark.parametrize("thread", [True, False])
def test_without_a_driver_tensors_are_copied_and_that_is_said_once(tmp_path, as_cuda, thread):
    session = open_session(tmp_path / "trace", cuda_driver="libnone.so", writer_thread=thread)
    for step, value in enumerate(values()):
        write(session, value, step)
    session.finish()
    (notice,) = notes(tmp_path / "trace", "notice")
    assert "training waits for each" in notice["text"]
    records = [line for line in index(tmp_path / "trace") if line["type"] == "record"]
    assert len(records) == 2 * len(values())


def test_an_error_of_the_driver_turns_capture_off(tmp_path, device, library, as_cuda, capfd):
    tensor = device.empty(torch.randn(2, 4, 8))
    session = open_session(tmp_path / "trace", cuda_driver=str(library))
    hook = session.guarded(write)
    hook(session, tensor, 0)
    device.driver.standInFail(b"cuMemcpyDtoDAsync", 700)
    hook(session, tensor, 1)
    device.driver.standInFail(b"cuMemcpyDtoDAsync", 0)
    assert session.over
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in session.stopped
    assert "training continues" in capfd.readouterr().err
    (note,) = notes(tmp_path / "trace", "stopped")
    assert "cuMemcpyDtoDAsync" in note["reason"]


def test_numbers_of_one_device_and_dtype_are_one_transfer(monkeypatch):
    values = [torch.tensor(i, dtype=torch.float32) for i in range(5)]
    values += [torch.tensor(i, dtype=torch.float64) for i in range(5)]
    transfers = []

    def cpu(tensor):
        transfers.append(tensor.shape)
        return tensor

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    assert on_host(values) == values and not transfers
    monkeypatch.setattr(torch.Tensor, "device", property(lambda _: torch.device("cuda", 0)))
    assert [float(value) for value in on_host(values)] == [*range(5), *range(5)]
    assert transfers == [(5,), (5,)]


def test_the_driver_of_tests_is_asked_for_by_name():
    assert Settings.from_environment({"TTRACE_OUT": "x"}).cuda_driver == "libcuda.so.1"
    settings = Settings.from_environment({"TTRACE_OUT": "x", "TTRACE_CUDA_DRIVER": "other.so"})
    assert settings.cuda_driver == "other.so"
