"""Reads a trace with the classes that Perfetto publishes, as strictly as its importer counts.

What trace_processor would put among its statistics of errors (an event of a track or a name that
nobody declared, an end without a beginning, bytes of no known field) raises AssertionError.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto


@dataclass
class Slice:
    track: str
    name: str
    category: str
    begin: int
    end: int = -1
    depth: int = 0
    facts: dict[str, str] = field(default_factory=dict)


@dataclass
class Reading:
    tracks: list[str] = field(default_factory=list)  # "process/track", as they are shown
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    flows: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))


def _refuse_unknown(message: Any) -> None:
    assert len(UnknownFieldSet(message)) == 0, f"unknown fields in {message.DESCRIPTOR.full_name}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            repeated = not hasattr(value, "ListFields")
            for inner in value if repeated else [value]:
                _refuse_unknown(inner)


def read(path: Path) -> Reading:
    trace = proto.Trace()
    trace.ParseFromString(path.read_bytes())
    _refuse_unknown(trace)
    assert trace.packet, "no packet"
    first = trace.packet[0]
    assert first.sequence_flags & proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    out = Reading()
    names: dict[int, str] = {}
    categories: dict[int, str] = {}
    fact_names: dict[int, str] = {}
    tracks: dict[int, str] = {}
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    last: dict[int, int] = {}
    pids: set[int] = set()
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == first.trusted_packet_sequence_id != 0
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid and track.uuid not in tracks
            if track.HasField("process"):
                assert track.process.pid > 0 and track.process.pid not in pids
                pids.add(track.process.pid)
                tracks[track.uuid] = track.process.process_name
            else:
                assert track.parent_uuid in tracks, "a track of no parent"
                tracks[track.uuid] = f"{tracks[track.parent_uuid]}/{track.name}"
                out.tracks.append(tracks[track.uuid])
        interned = packet.interned_data
        for known, added in (
            (names, interned.event_names),
            (categories, interned.event_categories),
            (fact_names, interned.debug_annotation_names),
        ):
            for entry in added:
                assert entry.iid and entry.iid not in known
                known[entry.iid] = entry.name
        if not packet.HasField("track_event"):
            continue
        assert packet.sequence_flags & proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        assert packet.HasField("timestamp")
        event = packet.track_event
        where = tracks[event.track_uuid]
        assert last.get(event.track_uuid, 0) <= packet.timestamp, f"{where} goes back in time"
        last[event.track_uuid] = packet.timestamp
        stack = open_slices[event.track_uuid]
        if event.type == proto.TrackEvent.TYPE_SLICE_END:
            stack.pop().end = packet.timestamp
            continue
        assert len(event.category_iids) == 1
        seen = Slice(
            where,
            names[event.name_iid],
            categories[event.category_iids[0]],
            packet.timestamp,
            depth=len(stack),
            facts={fact_names[a.name_iid]: a.string_value for a in event.debug_annotations},
        )
        assert len(seen.facts) == len(event.debug_annotations), "a fact is there twice"
        for flow in event.flow_ids:
            out.flows[flow].append(seen)
        if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
            assert not stack or stack[-1].begin <= seen.begin
            stack.append(seen)
            out.slices.append(seen)
        else:
            assert event.type == proto.TrackEvent.TYPE_INSTANT
            out.instants.append(seen)
    assert not any(open_slices.values()), "a slice has no end"
    for flow in out.flows.values():
        assert len({one.track for one in flow}) >= 2, "a flow that goes nowhere"
    return out
