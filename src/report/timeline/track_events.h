// TrackEvents: a trace of Perfetto, event by event.
//
// Its own binary format and not the JSON of Chrome: a third of the bytes, lanes
// in an order that is said, and flows between any two events
// (https://perfetto.dev/docs/reference/synthetic-track-event). Each name is
// written once.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_REPORT_TIMELINE_TRACK_EVENTS_H_
#define TTRACE_SRC_REPORT_TIMELINE_TRACK_EVENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/report/timeline/protobuf.h"

namespace ttrace {

using Track = uint64_t;
inline constexpr Track kNoTrack = 0;

class TrackEvents {
 public:
  using Facts = std::vector<std::pair<std::string, std::string>>;
  struct Event {
    std::string name;
    std::string category;
    Facts facts = {};
    uint64_t flow = 0;  // 0: none
  };

  TrackEvents();

  // A process, which the viewer shows as a group that opens.
  Track AddProcess(int pid, const std::string& name);
  // Tracks of one parent are shown in the order in which they are added.
  Track AddTrack(Track parent, const std::string& name);

  // Those of one track nest, and each is closed.
  void Begin(Track track, int64_t at_us, const Event& event);
  void End(Track track, int64_t at_us);
  void Instant(Track track, int64_t at_us, const Event& event);

  // The file.
  std::string Take() { return trace_.Take(); }

 private:
  uint64_t NumberOf(std::map<std::string, uint64_t>& known, uint32_t field,
                    const std::string& text, ProtoMessage* interned);
  void Add(Track track, int64_t at_us, uint64_t type, const Event& event);
  void AddPacket(ProtoMessage packet);

  ProtoMessage trace_;
  Track tracks_ = kNoTrack;
  std::map<Track, uint64_t> children_;
  std::map<std::string, uint64_t> names_;
  std::map<std::string, uint64_t> categories_;
  std::map<std::string, uint64_t> fact_names_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_TIMELINE_TRACK_EVENTS_H_
