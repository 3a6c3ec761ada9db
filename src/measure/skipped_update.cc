#include "src/measure/skipped_update.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/compare/compare_summaries.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/sample.h"

namespace ttrace {
namespace {

// Fewer elements may all be moved by less than a rounding.
constexpr int64_t kFewest = 16;
constexpr int64_t kSampled = 1 << 18;

// What the step of iteration `id.iteration` started from.
const TensorPieces* Before(const Side& side, const TensorId& id) {
  TensorId before = id;
  --before.iteration;
  if (const auto* found = side.Find("real", before)) return found;
  before = {id.fqn, Role::kParam, id.iteration, 0, "", Pass::kForward};
  return side.Find("real", before);
}

// Of the elements that `rank` holds, how many the step from `before` to `after`
// moved by 4 units in the last place or more. Each value is within half a unit
// of its master, so the master moved by at least 3, and a step a third as long
// moves a weight too.
Result<int64_t> MovedFar(const TensorPieces& before, const TensorPieces& after,
                         const TensorPieces& candidate, int rank) {
  const Shape shape = candidate.global_shape();
  const double unit = 2 * UnitRoundoff(candidate.pieces.front()->dtype);
  const RankPieces part(candidate, rank);
  const auto boxes = PlanSample(shape, kSampled);
  TTRACE_ASSIGN_OR_RETURN(const auto held, ReadSample(part.pieces(), boxes));
  TTRACE_ASSIGN_OR_RETURN(const auto then, ReadSample(before, boxes));
  TTRACE_ASSIGN_OR_RETURN(const auto now, ReadSample(after, boxes));
  int64_t moved = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    if (std::isnan(held[i])) continue;
    const double largest = std::fmax(std::fabs(then[i]), std::fabs(now[i]));
    const double step = std::fabs(now[i] - then[i]);
    // A bias of zeros that is frozen moves by nothing, of nothing.
    moved += step > 0 && step >= 4 * unit * largest ? 1 : 0;
  }
  return moved;
}

}  // namespace

Result<SkippedUpdate> FindSkippedUpdate(const Side& reference,
                                        const Side& candidate,
                                        const TensorId& id) {
  SkippedUpdate out;
  const TensorPieces* after = reference.Find("real", id);
  const TensorPieces* pieces = candidate.Find("real", id);
  const TensorPieces* before =
      Before(candidate.weights_grafted() ? reference : candidate, id);
  if (after == nullptr || before == nullptr || pieces == nullptr) return out;
  // How many elements a step moves, and how far, only values tell.
  for (const TensorPieces* each : {after, before, pieces}) {
    if (HasSummaries(*each)) return out;
  }
  const DType dtype = pieces->pieces.front()->dtype;
  const bool low_precision = UnitRoundoff(dtype) > UnitRoundoff(DType::kF32);
  const auto from_before = CompareTensor(*before, *pieces);
  if (!from_before.ok()) {
    if (from_before.error().code() == ErrorCode::kIncomparable) return out;
    return from_before.error();
  }
  const bool any_unchanged = std::any_of(
      from_before->instances.begin(), from_before->instances.end(),
      [](const InstanceStats& i) { return i.stats.bitwise_equal(); });
  if (!any_unchanged) return out;
  const auto from_after = CompareTensor(*after, *pieces);
  if (!from_after.ok()) {
    if (from_after.error().code() == ErrorCode::kIncomparable) return out;
    return from_after.error();
  }
  std::set<int> ranks;
  for (size_t i = 0;
       i < from_before->instances.size() && i < from_after->instances.size();
       ++i) {
    const InstanceStats& then = from_before->instances[i];
    const InstanceStats& now = from_after->instances[i];
    if (then.ranks != now.ranks || !then.stats.bitwise_equal()) continue;
    int64_t changed = now.stats.mismatched;
    if (low_precision) {
      TTRACE_ASSIGN_OR_RETURN(
          changed, MovedFar(*before, *after, *pieces, then.ranks.front()));
    }
    if (changed < kFewest ||
        (!low_precision && 2 * changed < then.stats.count)) {
      continue;
    }
    if (ranks.empty()) {
      out.unchanged = then.stats.count;
      out.changed = changed;
      out.far = low_precision;
    }
    ranks.insert(then.ranks.begin(), then.ranks.end());
  }
  out.ranks.assign(ranks.begin(), ranks.end());
  return out;
}

}  // namespace ttrace
