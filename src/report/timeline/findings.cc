#include "src/report/timeline/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/base/format.h"
#include "src/report/exports/place_words.h"

namespace ttrace {
namespace {

constexpr std::string_view kOut = "diverged";

// Nothing of what no record can be named.
std::optional<TensorId> TensorIdOf(const ResultFile::Id& id) {
  const auto role = ParseRole(id.role);
  const auto pass = ParsePass(id.pass);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (!role || !pass || id.iteration < 0 || id.iteration > kMost ||
      id.call < 0 || id.call > kMost) {
    return std::nullopt;
  }
  return TensorId{
      id.fqn, *role, static_cast<int>(id.iteration), static_cast<int>(id.call),
      id.arg, *pass};
}

bool IsOn(const ResultFile::Place& place, int rank) {
  return place.ranks.empty() ||
         std::find(place.ranks.begin(), place.ranks.end(), rank) !=
             place.ranks.end();
}

}  // namespace

Findings::Findings(const ResultFile& result) : result_(result) {
  for (const ResultFile::Tensor& tensor : result.tensors) {
    const bool end_to_end = tensor.verdict == kOut;
    const bool isolated = tensor.isolated && tensor.isolated->verdict == kOut;
    if (!end_to_end && !isolated) continue;
    const auto id = TensorIdOf(tensor);
    if (!id) {
      ++unnamed_;
      continue;
    }
    Finding& finding = by_tensor_[*id];
    finding.tensor = &tensor;
    finding.end_to_end = end_to_end;
    finding.isolated = isolated;
  }
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const auto id = TensorIdOf(result.culprits[i].tensor);
    if (!id) {
      ++unnamed_;
      continue;
    }
    by_tensor_[*id].culprits.push_back(i);
  }
}

const Findings::Finding* Findings::Find(const Record& record) const {
  const auto found = by_tensor_.find(record.id());
  if (found == by_tensor_.end()) return nullptr;
  const Leg& leg = record.leg();
  const Finding& finding = found->second;
  if (leg == kReal && (finding.end_to_end || !finding.culprits.empty())) {
    return &finding;
  }
  if (leg == kIsolated && finding.isolated) return &finding;
  return nullptr;
}

bool Findings::IsFlagged(const Record& record) const {
  return Find(record) != nullptr;
}

std::vector<TimelineMark> Findings::Mark(const Record& record, int64_t at_us) {
  Finding& finding = by_tensor_.at(record.id());
  finding.placed = true;
  std::vector<int>& ranks = finding.marked[record.leg().name()];
  if (std::find(ranks.begin(), ranks.end(), record.rank()) != ranks.end()) {
    return {};
  }
  ranks.push_back(record.rank());
  std::vector<TimelineMark> marks;
  for (const size_t i : finding.culprits) {
    const ResultFile::Place& place = result_.culprits[i];
    if (record.leg() != kReal || !IsOn(place, record.rank())) continue;
    TimelineMark mark{
        at_us,
        (i == 0 ? "FIRST: " : "culprit: ") + PlaceHeading(place),
        "culprit",
        {{"why", fmt::format("{}", fmt::join(PlaceLines(place), "\n"))}}};
    marks.push_back(std::move(mark));
  }
  if (finding.tensor != nullptr &&
      (record.leg() == kReal ? finding.end_to_end : finding.isolated)) {
    const ResultFile::Tensor& tensor = *finding.tensor;
    TimelineMark mark{at_us,
                      PlaceName(tensor.fqn) + " " + Printable(tensor.role),
                      "out of bounds",
                      {{"headroom", fmt::format("{:.3g}", tensor.headroom)}}};
    if (!tensor.arg.empty())
      mark.facts.emplace_back("arg", Printable(tensor.arg));
    if (!tensor.reason.empty()) {
      mark.facts.emplace_back("why", Printable(tensor.reason));
    }
    marks.push_back(std::move(mark));
  }
  return marks;
}

int64_t Findings::unplaced() const {
  return unnamed_ +
         std::count_if(by_tensor_.begin(), by_tensor_.end(),
                       [](const auto& one) { return !one.second.placed; });
}

}  // namespace ttrace
