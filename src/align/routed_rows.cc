#include "src/align/routed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

RoutingTrouble NoMap(const Record& routed, int rank, std::string detail) {
  RoutingTrouble out;
  out.rank = rank;
  out.router = routed.routed()->by;
  out.expert = routed.routed()->expert;
  out.detail = std::move(detail);
  return out;
}

// The forward whose map counts for rows of a pass, if a recomputed one has
// none.
Pass ForwardOf(Pass pass) {
  return pass == Pass::kRecompute ? Pass::kRecompute : Pass::kForward;
}

std::vector<int> RanksAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  std::vector<int> out;
  if (found == json.end() || !found->is_array()) return out;
  for (const Json& rank : *found) {
    if (!rank.is_number_integer()) return {};
    out.push_back(rank.get<int>());
  }
  return out;
}

std::vector<int64_t> Indices(const DimLayout& dim) {
  std::vector<int64_t> out;
  for (const Segment& segment : dim.segments) {
    for (int64_t i = 0; i < segment.size; ++i) out.push_back(segment.begin + i);
  }
  return out;
}

// Why a record is no map of [sequence, batch, experts]; empty: it is one.
std::string WhyNoMap(const Record& map) {
  // Also what a file may declare without having it: of a map that holds
  // something no dimension is longer than that.
  if (map.extent().bytes == 0) return "holds nothing";
  if (map.dtype() != DType::kBool) return "is not of dtype bool";
  if (map.layout().dims.size() != 3) return "is not [sequence, batch, experts]";
  const DimLayout& experts = map.layout().dims[2];
  if (experts.local_size() != experts.global_size) {
    return "is cut along the experts";
  }
  for (const auto& [name, placement] : map.placements()) {
    if (std::holds_alternative<Partial>(placement)) return "is a term of a sum";
  }
  return "";
}

bool RecordedTwice(const RecordList& maps) {
  return std::adjacent_find(maps.begin(), maps.end(),
                            [](const Record& a, const Record& b) {
                              return a.micro_batch() == b.micro_batch();
                            }) != maps.end();
}

}  // namespace

std::string ToString(const RoutingTrouble& trouble) {
  if (!trouble.miscounted) {
    return fmt::format("rank {}: {}", trouble.rank, trouble.detail);
  }
  return fmt::format(
      "rank {} holds {} row{} of expert {}, to which {} sent it {}",
      trouble.rank, trouble.actual, trouble.actual == 1 ? "" : "s",
      trouble.expert, trouble.router, trouble.expected);
}

RoutingMaps::RoutingMaps(const Trace& trace) : trace_(trace) {
  for (const Record& record : trace.records()) {
    if (record.routed()) ++wanted_[{record.routed()->by, record.routed()->arg}];
  }
  if (wanted_.empty()) return;
  for (const Record& record : trace.records()) {
    if (record.id().role != Role::kOutput ||
        !wanted_.contains({record.id().fqn, record.id().arg})) {
      continue;
    }
    const TensorId& id = record.id();
    maps_[{record.leg(), id.iteration, id.fqn, id.arg, id.call, id.pass}]
         [record.rank()]
             .push_back(record);
  }
  for (auto& [forward, ranks] : maps_) {
    for (auto& [rank, maps] : ranks) {
      maps.StableSort([](const Record& a, const Record& b) {
        return a.micro_batch() < b.micro_batch();
      });
    }
  }
  ForEachNote(trace, {"expert_group"}, [&](const ParsedNote& note) {
    const auto name = note.json.find("name");
    if (name == note.json.end() || !name->is_string()) return;
    groups_.emplace(std::pair(note.rank, name->get<std::string>()),
                    RanksAt(note.json, "sources"));
  });
}

const RoutingMaps::MapsOfRank* RoutingMaps::Find(const Record& routed,
                                                 int rank) const {
  const RoutedRows& rows = *routed.routed();
  const TensorId& id = routed.id();
  for (const Pass pass : {ForwardOf(id.pass), Pass::kForward}) {
    const auto forward = maps_.find(
        {routed.leg(), id.iteration, rows.by, rows.arg, id.call, pass});
    if (forward == maps_.end()) continue;
    const auto maps = forward->second.find(rank);
    if (maps != forward->second.end()) return &maps->second;
  }
  return nullptr;
}

const std::vector<int>* RoutingMaps::Sources(const Record& routed) const {
  const auto found = groups_.find({routed.rank(), routed.routed()->group});
  return found == groups_.end() || found->second.empty() ? nullptr
                                                         : &found->second;
}

const RoutingMaps::Choices& RoutingMaps::Read(const Record& map) {
  const auto [found, is_new] = read_.try_emplace(map);
  Choices& out = found->second;
  if (!is_new) return out;
  if (std::string why = WhyNoMap(map); !why.empty()) {
    out = std::move(why);
    return out;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(map.extent().bytes));
  const Status status = trace_.Read(map, 0, bytes);
  if (!status.ok()) {
    out = "cannot be read: " + status.error().message();
    return out;
  }
  const std::vector<int64_t> places = Indices(map.layout().dims[0]);
  const std::vector<int64_t> rows = Indices(map.layout().dims[1]);
  const int64_t sequence = map.layout().dims[0].global_size;
  const auto experts = static_cast<size_t>(map.layout().dims[2].global_size);
  std::vector<std::vector<int64_t>> tokens(experts);
  const std::byte* at = bytes.data();
  for (const int64_t place : places) {
    for (const int64_t row : rows) {
      for (size_t expert = 0; expert < experts; ++expert, ++at) {
        if (*at == std::byte{0}) continue;
        tokens[expert].push_back(row * sequence + place);
      }
    }
  }
  out = std::move(tokens);
  return out;
}

std::variant<const std::vector<int64_t>*, RoutingTrouble> RoutingMaps::Chosen(
    const Record& routed, const Record& map) {
  const RoutedRows& rows = *routed.routed();
  const auto bad = [&](const std::string& why) {
    return NoMap(routed, map.rank(),
                 fmt::format("the routing map (output {} of {}) {}", rows.arg,
                             rows.by, why));
  };
  const Choices& choices = Read(map);
  if (const auto* why = std::get_if<std::string>(&choices)) return bad(*why);
  const auto& tokens = std::get<0>(choices);
  if (static_cast<size_t>(rows.expert) >= tokens.size()) {
    return bad(fmt::format("has no expert {}", rows.expert));
  }
  const Shape shape = map.layout().global_shape();
  if (shape[0] * shape[1] != routed.layout().dims.front().global_size) {
    return bad(fmt::format("is of {} tokens, not of {}", shape[0] * shape[1],
                           routed.layout().dims.front().global_size));
  }
  return &tokens[static_cast<size_t>(rows.expert)];
}

std::variant<DimLayout, RoutingTrouble> RoutingMaps::TokensOf(
    const Record& record) {
  const RoutedRows& routed = *record.routed();
  const TensorId& id = record.id();
  const Forward forward = {record.leg(), id.iteration, routed.by,
                           routed.arg,   id.call,      ForwardOf(id.pass)};
  if (forward != current_) {
    read_.clear();
    current_ = forward;
  }
  const std::vector<int>* sources = Sources(record);
  if (sources == nullptr) {
    return NoMap(record, record.rank(),
                 fmt::format("no note names the ranks of expert group '{}'",
                             routed.group));
  }
  const auto missing = [&](int rank, const std::string& what) {
    return NoMap(
        record, rank,
        fmt::format("{} of {} (output {})", what, routed.by, routed.arg));
  };
  const MapsOfRank* own = Find(record, record.rank());
  if (own == nullptr) return missing(record.rank(), "no routing map");
  const auto k = static_cast<size_t>(std::find_if(own->begin(), own->end(),
                                                  [&](const Record& map) {
                                                    return map.micro_batch() ==
                                                           record.micro_batch();
                                                  }) -
                                     own->begin());
  if (k == own->size()) {
    return missing(
        record.rank(),
        fmt::format("no routing map of micro-batch {}", record.micro_batch()));
  }
  std::vector<int64_t> tokens;
  for (const int source : *sources) {
    const MapsOfRank* maps = Find(record, source);
    if (maps == nullptr) return missing(source, "no routing map");
    if (RecordedTwice(*maps))
      return missing(source, "two routing maps of one micro-batch");
    // Otherwise the k-th of one need not be with the k-th of another.
    if (maps->size() != own->size()) {
      return missing(source,
                     fmt::format("{} routing maps beside {} of rank {}",
                                 maps->size(), own->size(), record.rank()));
    }
    const auto chosen = Chosen(record, (*maps)[k]);
    if (const auto* bad = std::get_if<RoutingTrouble>(&chosen)) return *bad;
    const auto& more = *std::get<0>(chosen);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  const int64_t actual = record.local_shape().front();
  if (static_cast<int64_t>(tokens.size()) != actual) {
    RoutingTrouble out = NoMap(record, record.rank(), "");
    out.miscounted = true;
    out.expected = static_cast<int64_t>(tokens.size());
    out.actual = actual;
    return out;
  }
  auto dim = ListIndices(tokens, record.layout().dims.front().global_size);
  if (!dim.ok()) {
    return missing(record.rank(),
                   fmt::format("two sources hold one token: {}; routing maps",
                               dim.error().message()));
  }
  return *std::move(dim);
}

std::variant<DimLayout, RoutingTrouble> RoutingMaps::AllTokens(
    const Record& record) {
  std::vector<int64_t> tokens;
  for (const RankTrace& rank : trace_.ranks()) {
    const MapsOfRank* maps = Find(record, rank.meta.rank);
    if (maps == nullptr) continue;
    for (const Record& map : *maps) {
      const auto chosen = Chosen(record, map);
      if (const auto* bad = std::get_if<RoutingTrouble>(&chosen)) return *bad;
      const auto& more = *std::get<0>(chosen);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  auto dim = ListIndices(tokens, record.layout().dims.front().global_size);
  if (!dim.ok()) return NoMap(record, record.rank(), dim.error().message());
  return *std::move(dim);
}

}  // namespace ttrace
