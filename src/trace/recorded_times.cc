#include "src/trace/recorded_times.h"

#include <nlohmann/json.hpp>

#include "src/trace/note_json.h"
#include "src/trace/writing/record_times.h"

namespace ttrace {
namespace {

// A clock that ran for 300 years: sums of two stay far from an overflow.
constexpr int64_t kMostMicroseconds = int64_t{10} << 50;

std::optional<int64_t> MicrosecondsIn(const nlohmann::json& number) {
  if (!number.is_number_integer() ||
      (number.is_number_unsigned() &&
       number.get<uint64_t>() > static_cast<uint64_t>(kMostMicroseconds))) {
    return std::nullopt;
  }
  const auto value = number.get<int64_t>();
  if (value < -kMostMicroseconds || value > kMostMicroseconds) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> MicrosecondsAt(const nlohmann::json& object,
                                      const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : MicrosecondsIn(*found);
}

void ReadRun(const nlohmann::json& note, RecordedTimes* out) {
  const auto first = MicrosecondsAt(note, "first");
  const auto begin = MicrosecondsAt(note, "begin_us");
  const auto steps = note.find("steps_us");
  if (!first || *first < 0 || !begin || *begin < 0 || steps == note.end() ||
      !steps->is_array()) {
    return;
  }
  std::vector<int64_t> times = {*begin};
  for (const auto& step : *steps) {
    const auto value = MicrosecondsIn(step);
    if (!value) return;
    const int64_t next = times.back() + *value;
    if (next < 0 || next > kMostMicroseconds) return;
    times.push_back(next);
  }
  out->runs.emplace(*first, std::move(times));
}

}  // namespace

std::optional<int64_t> RecordedTimes::At(int64_t sequence) const {
  auto run = runs.upper_bound(sequence);
  if (run == runs.begin()) return std::nullopt;
  --run;
  const auto place = static_cast<uint64_t>(sequence - run->first);
  if (place >= run->second.size()) return std::nullopt;
  return run->second[place];
}

RecordedTimes ReadRecordedTimes(const RankTrace& rank) {
  RecordedTimes out;
  ForEachNote(
      rank.notes, {kRecordTimesNote, kClockNote}, [&](const ParsedNote& note) {
        if (note.kind == kRecordTimesNote) {
          ReadRun(note.json, &out);
          return;
        }
        const auto monotonic = MicrosecondsAt(note.json, "monotonic_us");
        const auto realtime = MicrosecondsAt(note.json, "realtime_us");
        if (!monotonic || !realtime || out.clocks) return;
        out.clocks = {*monotonic, *realtime, TextAt(note.json, "boot")};
      });
  return out;
}

}  // namespace ttrace
