#include "src/report/timeline/track_events.h"

namespace ttrace {
namespace {

// Numbers of fields in perfetto/protos/perfetto/trace/perfetto_trace.proto; a
// test reads what is written with the classes that Perfetto publishes.
namespace trace_field {
constexpr uint32_t kPacket = 1;
}  // namespace trace_field
namespace packet_field {
constexpr uint32_t kTimestamp = 8;
constexpr uint32_t kSequenceId = 10;
constexpr uint32_t kTrackEvent = 11;
constexpr uint32_t kInternedData = 12;
constexpr uint32_t kSequenceFlags = 13;
constexpr uint32_t kTrackDescriptor = 60;
}  // namespace packet_field
namespace event_field {
constexpr uint32_t kCategoryNumbers = 3;
constexpr uint32_t kDebugAnnotations = 4;
constexpr uint32_t kType = 9;
constexpr uint32_t kNameNumber = 10;
constexpr uint32_t kTrack = 11;
constexpr uint32_t kFlows = 47;
}  // namespace event_field
namespace descriptor_field {
constexpr uint32_t kNumber = 1;
constexpr uint32_t kName = 2;
constexpr uint32_t kProcess = 3;
constexpr uint32_t kParent = 5;
constexpr uint32_t kChildOrdering = 11;
constexpr uint32_t kRankAmongSiblings = 12;
}  // namespace descriptor_field
namespace process_field {
constexpr uint32_t kPid = 1;
constexpr uint32_t kName = 6;
}  // namespace process_field
namespace interned_field {
constexpr uint32_t kCategories = 1;
constexpr uint32_t kEventNames = 2;
constexpr uint32_t kFactNames = 3;
// Of each of these.
constexpr uint32_t kNumber = 1;
constexpr uint32_t kText = 2;
}  // namespace interned_field
namespace fact_field {
constexpr uint32_t kNameNumber = 1;
constexpr uint32_t kText = 6;
}  // namespace fact_field

constexpr uint64_t kSliceBegin = 1;
constexpr uint64_t kSliceEnd = 2;
constexpr uint64_t kInstant = 3;
constexpr uint64_t kExplicitOrder = 3;
constexpr uint64_t kStateCleared = 1;
constexpr uint64_t kNeedsState = 2;
// All packets are of one writer.
constexpr uint64_t kSequence = 1;
constexpr int64_t kNanoseconds = 1000;

}  // namespace

TrackEvents::TrackEvents() {
  ProtoMessage packet;
  packet.Varint(packet_field::kSequenceFlags, kStateCleared);
  AddPacket(std::move(packet));
}

void TrackEvents::AddPacket(ProtoMessage packet) {
  packet.Varint(packet_field::kSequenceId, kSequence);
  trace_.Message(trace_field::kPacket, packet);
}

Track TrackEvents::AddProcess(int pid, const std::string& name) {
  ProtoMessage process;
  process.Varint(process_field::kPid, static_cast<uint64_t>(pid));
  process.Bytes(process_field::kName, name);
  ProtoMessage track;
  track.Varint(descriptor_field::kNumber, ++tracks_);
  track.Message(descriptor_field::kProcess, process);
  track.Varint(descriptor_field::kChildOrdering, kExplicitOrder);
  ProtoMessage packet;
  packet.Message(packet_field::kTrackDescriptor, track);
  AddPacket(std::move(packet));
  return tracks_;
}

Track TrackEvents::AddTrack(Track parent, const std::string& name) {
  ProtoMessage track;
  track.Varint(descriptor_field::kNumber, ++tracks_);
  track.Bytes(descriptor_field::kName, name);
  track.Varint(descriptor_field::kParent, parent);
  track.Varint(descriptor_field::kChildOrdering, kExplicitOrder);
  track.Varint(descriptor_field::kRankAmongSiblings, children_[parent]++);
  ProtoMessage packet;
  packet.Message(packet_field::kTrackDescriptor, track);
  AddPacket(std::move(packet));
  return tracks_;
}

uint64_t TrackEvents::NumberOf(std::map<std::string, uint64_t>& known,
                               uint32_t field, const std::string& text,
                               ProtoMessage* interned) {
  const auto [found, is_new] = known.try_emplace(text, known.size() + 1);
  if (is_new) {
    ProtoMessage entry;
    entry.Varint(interned_field::kNumber, found->second);
    entry.Bytes(interned_field::kText, text);
    interned->Message(field, entry);
  }
  return found->second;
}

void TrackEvents::Add(Track track, int64_t at_us, uint64_t type,
                      const Event& event) {
  ProtoMessage interned;
  ProtoMessage out;
  out.Varint(event_field::kType, type);
  out.Varint(event_field::kTrack, track);
  if (type != kSliceEnd) {
    out.Varint(
        event_field::kNameNumber,
        NumberOf(names_, interned_field::kEventNames, event.name, &interned));
    out.Varint(event_field::kCategoryNumbers,
               NumberOf(categories_, interned_field::kCategories,
                        event.category, &interned));
    for (const auto& [name, text] : event.facts) {
      ProtoMessage fact;
      fact.Varint(
          fact_field::kNameNumber,
          NumberOf(fact_names_, interned_field::kFactNames, name, &interned));
      fact.Bytes(fact_field::kText, text);
      out.Message(event_field::kDebugAnnotations, fact);
    }
    if (event.flow != 0) out.Fixed64(event_field::kFlows, event.flow);
  }
  ProtoMessage packet;
  packet.Varint(packet_field::kTimestamp,
                static_cast<uint64_t>(at_us * kNanoseconds));
  packet.Varint(packet_field::kSequenceFlags, kNeedsState);
  if (!interned.bytes().empty()) {
    packet.Message(packet_field::kInternedData, interned);
  }
  packet.Message(packet_field::kTrackEvent, out);
  AddPacket(std::move(packet));
}

void TrackEvents::Begin(Track track, int64_t at_us, const Event& event) {
  Add(track, at_us, kSliceBegin, event);
}

void TrackEvents::End(Track track, int64_t at_us) {
  Add(track, at_us, kSliceEnd, {});
}

void TrackEvents::Instant(Track track, int64_t at_us, const Event& event) {
  Add(track, at_us, kInstant, event);
}

}  // namespace ttrace
