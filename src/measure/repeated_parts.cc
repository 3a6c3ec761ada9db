#include "src/measure/repeated_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/align/read_local.h"
#include "src/compare/compared_piece.h"
#include "src/compare/sample.h"

namespace ttrace {
namespace {

// What one rank holds, by micro-batch.
struct Part {
  std::set<int64_t> places;       // where its segments begin
  std::vector<uint64_t> digests;  // and what they are
};

// The first dimension of which a rank has not all; -1: none.
int CutDimension(const TensorPieces& own) {
  const Layout& layout = own.pieces.front().layout();
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    if (layout.dims[d].local_size() < layout.dims[d].global_size) {
      return static_cast<int>(d);
    }
  }
  return -1;
}

// Whether the part of `rank` varies along dimension `dim`.
bool Varies(const TensorPieces& own, int rank, size_t dim) {
  const RankPieces part(own, rank);
  Shape size = own.global_shape();
  Shape begin(size.size(), 0);
  size[dim] = 1;
  std::optional<std::vector<double>> first;
  for (const Record& record : part.pieces().pieces) {
    for (const Segment& segment : record.layout().dims[dim].segments) {
      for (int64_t i = 0; i < segment.size; ++i) {
        begin[dim] = segment.begin + i;
        auto values = ReadBox(part.pieces(), begin, size);
        if (!values.ok()) return false;
        if (first && *values != *first) return true;
        if (!first) first = *std::move(values);
      }
    }
  }
  return false;
}

// What each rank holds of it. Nothing if a checksum is not that of what is
// there: that is no evidence.
std::optional<std::map<int, Part>> PartsOf(const TensorPieces& own,
                                           size_t dim) {
  std::map<int, Part> parts;
  for (const Record& record : own.pieces) {  // by rank, then micro-batch
    Part& part = parts[record.rank()];
    for (const Segment& segment : record.layout().dims[dim].segments) {
      part.places.insert(segment.begin);
    }
    const Result<uint64_t> digest = DigestOfValues(*own.trace, record);
    if (!digest.ok()) return std::nullopt;
    part.digests.push_back(*digest);
  }
  return parts;
}

bool Disjoint(const std::set<int64_t>& a, const std::set<int64_t>& b) {
  return std::none_of(a.begin(), a.end(),
                      [&](int64_t place) { return b.contains(place); });
}

}  // namespace

RepeatedParts FindRepeatedParts(
    const TensorPieces& own, const std::vector<int>& wrong,
    const std::vector<const TensorPieces*>& beside) {
  const int cut = CutDimension(own);
  if (cut < 0 || wrong.empty()) return {};
  const auto dim = static_cast<size_t>(cut);
  const auto parts = PartsOf(own, dim);
  if (!parts) return {};
  std::vector<std::map<int, Part>> others;
  for (const TensorPieces* tensor : beside) {
    if (tensor->global_shape().empty()) continue;
    auto other = PartsOf(*tensor, 0);
    if (!other) return {};
    others.push_back(*std::move(other));
  }
  const auto hold_the_same = [&](int a, int b) {
    return std::all_of(others.begin(), others.end(), [&](const auto& other) {
      const auto first = other.find(a);
      const auto second = other.find(b);
      return first == other.end() || second == other.end() ||
             first->second.digests == second->second.digests;
    });
  };
  std::set<int> ranks;
  std::set<int> owners;
  for (const int rank : wrong) {
    const Part& mine = parts->at(rank);
    std::vector<int> twins;
    for (const auto& [other, theirs] : *parts) {
      if (theirs.digests == mine.digests &&
          Disjoint(theirs.places, mine.places) && hold_the_same(rank, other)) {
        twins.push_back(other);
      }
    }
    if (twins.empty() || !Varies(own, rank, dim)) continue;
    ranks.insert(rank);
    owners.insert(twins.begin(), twins.end());
  }
  // Where none is in its own place, each holds what the others do.
  std::erase_if(owners, [&](int rank) { return ranks.contains(rank); });
  if (owners.empty()) owners = ranks;
  return {{ranks.begin(), ranks.end()}, {owners.begin(), owners.end()}};
}

}  // namespace ttrace
