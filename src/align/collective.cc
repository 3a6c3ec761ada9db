#include "src/align/collective.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 11> kKinds = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
    "broadcast",  "reduce",         "gather",     "scatter",
    "send",       "recv",           "barrier"};
constexpr std::array<std::string_view, 6> kPhases = {
    "", "forward", "recompute", "backward", "reduction", "optimizer"};

template <typename Words>
bool IsOneOf(const std::string& word, const Words& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Reads the fields of one note; after the first that is not as promised, the
// note is bad and the rest does not matter.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  template <typename Int>
  void Read(const char* key, Int lowest, Int* out) {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_number_integer() ||
        // Unsigned above the signed range would wrap.
        (it->is_number_unsigned() &&
         it->template get<uint64_t>() >
             static_cast<uint64_t>(std::numeric_limits<Int>::max()))) {
      good_ = false;
      return;
    }
    const auto value = it->template get<int64_t>();
    good_ &= value >= lowest && value <= std::numeric_limits<Int>::max();
    if (good_) *out = static_cast<Int>(value);
  }

  void Read(const char* key, std::string* out) {
    const auto it = json_.find(key);
    good_ &= it != json_.end() && it->is_string();
    if (good_) *out = it->get<std::string>();
  }

  void Read(const char* key, std::vector<std::string>* out) {
    const auto it = json_.find(key);
    good_ &= it != json_.end() && it->is_array();
    if (!good_) return;
    for (const Json& word : *it) {
      good_ &= word.is_string();
      if (good_) out->push_back(word.get<std::string>());
    }
  }

  void Read(const char* key, std::vector<int>* out) {
    const auto it = json_.find(key);
    good_ &= it != json_.end() && it->is_array();
    if (!good_) return;
    for (const Json& number : *it) {
      const Json boxed = {{"n", number}};
      Fields one(boxed);
      int value = 0;
      one.Read("n", 0, &value);
      good_ &= one.good_;
      out->push_back(value);
    }
  }

  bool good() const { return good_; }

 private:
  const Json& json_;
  bool good_ = true;
};

std::optional<Collective> Parse(const Json& json, int rank) {
  Collective c;
  Fields fields(json);
  fields.Read("rank", 0, &c.rank);
  fields.Read("iteration", 0, &c.iteration);
  fields.Read("order", int64_t{0}, &c.order);
  fields.Read("kind", &c.kind);
  fields.Read("op", &c.op);
  fields.Read("members", &c.members);
  fields.Read("phase", &c.phase);
  fields.Read("fqn", &c.fqn);
  fields.Read("micro_batch", -1, &c.micro_batch);
  fields.Read("elements", int64_t{0}, &c.elements);
  fields.Read("dtype", &c.dtype);
  fields.Read("parameters", &c.parameters);
  if (json.contains("node")) fields.Read("node", &c.node);
  if (json.contains("time_us")) fields.Read("time_us", int64_t{0}, &c.time_us);
  if (!fields.good() || c.rank != rank || !IsOneOf(c.kind, kKinds) ||
      !IsOneOf(c.phase, kPhases) ||
      !std::is_sorted(c.members.begin(), c.members.end()) ||
      !std::binary_search(c.members.begin(), c.members.end(), rank)) {
    return std::nullopt;
  }
  return c;
}

class CollectiveReader {
 public:
  void Add(const ParsedNote& note) {
    if (note.kind == "collective") {
      std::optional<Collective> c = Parse(note.json, note.rank);
      if (c) {
        log_.seen.push_back(*std::move(c));
      } else {
        ++log_.malformed;
      }
    } else if (note.kind == "collectives") {
      AddCount(note.rank, note.json);
    } else {
      AddNotSeen(note.json);
    }
  }
  void AddMalformed(int64_t count) { log_.malformed += count; }

  CollectiveLog Finish() {
    std::sort(log_.seen.begin(), log_.seen.end(),
              [](const Collective& a, const Collective& b) {
                return std::tie(a.rank, a.iteration, a.order) <
                       std::tie(b.rank, b.iteration, b.order);
              });
    std::map<std::pair<int, int>, int64_t> found;
    for (const Collective& c : log_.seen) ++found[{c.rank, c.iteration}];
    for (const auto& [key, count] : counts_) {
      if (found[key] == count) log_.complete.insert(key);
    }
    return std::move(log_);
  }

 private:
  void AddCount(int rank, const Json& json) {
    int iteration = 0;
    int64_t count = 0;
    Fields fields(json);
    fields.Read("iteration", 0, &iteration);
    fields.Read("count", int64_t{0}, &count);
    if (!fields.good()) {
      ++log_.malformed;
    } else if (!json.contains("failed")) {
      counts_[{rank, iteration}] = count;
    }
  }

  void AddNotSeen(const Json& json) {
    std::string phase;
    std::string reason;
    Fields fields(json);
    fields.Read("phase", &phase);
    fields.Read("reason", &reason);
    if (!fields.good()) {
      ++log_.malformed;
    } else {
      log_.not_seen.emplace(phase, reason);
    }
  }

  CollectiveLog log_;
  std::map<std::pair<int, int>, int64_t> counts_;
};

}  // namespace

bool Collective::Sums() const {
  return (kind == "all_reduce" || kind == "reduce_scatter" ||
          kind == "reduce") &&
         (op == "sum" || op == "avg" || op == "premul_sum");
}

CollectiveLog ReadCollectives(const NoteList& notes) {
  CollectiveReader reader;
  reader.AddMalformed(
      ForEachNote(notes, {"collective", "collectives", "collectives_not_seen"},
                  [&](const ParsedNote& note) { reader.Add(note); }));
  return reader.Finish();
}

}  // namespace ttrace
