#include "src/measure/skipped_update.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "src/compare/compare_tensor.h"
#include "src/compare/instances.h"
#include "src/compare/sample.h"
#include "src/compare/summaries/compare_summaries.h"

namespace ttrace {
namespace {

// Fewer elements may all be moved by less than a rounding.
constexpr int64_t kFewest = 16;
constexpr int64_t kSampled = 1 << 18;

// What the step of iteration `id.iteration` started from.
const TensorPieces* Before(const Side& side, const TensorId& id) {
  TensorId before = id;
  --before.iteration;
  if (const auto* found = side.Find(kReal, before)) return found;
  before = {id.fqn, Role::kParam, id.iteration, 0, "", Pass::kForward};
  return side.Find(kReal, before);
}

// Of the elements that `part` holds, how many the step from `before` to `after`
// moved by 4 units in the last place or more. Each value is within half a unit
// of its master, so the master moved by at least 3, and a step a third as long
// moves a weight too.
Result<int64_t> MovedFar(const TensorPieces& before, const TensorPieces& after,
                         const TensorPieces& part) {
  const double unit = 2 * UnitRoundoff(part.pieces.front().dtype());
  const auto boxes = PlanSample(part.global_shape(), kSampled);
  TTRACE_ASSIGN_OR_RETURN(const auto held, ReadSample(part, boxes));
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

bool InLowPrecision(const TensorPieces& pieces) {
  return UnitRoundoff(pieces.pieces.front().dtype()) >
         UnitRoundoff(DType::kF32);
}

// Whether a step that moves `changed` of `count` elements, far if
// `low_precision`, cannot be lost in rounding.
bool IsSeen(int64_t changed, int64_t count, bool low_precision) {
  return changed >= kFewest && (low_precision || 2 * changed >= count);
}

// Whether the checksums say that each piece changed: after most steps all have,
// and nothing has to be read to see that none stayed.
bool EachPieceChanged(const TensorPieces& before, const TensorPieces& pieces) {
  return std::equal(
      before.pieces.begin(), before.pieces.end(), pieces.pieces.begin(),
      pieces.pieces.end(), [](const Record& then, const Record& now) {
        return then.rank() == now.rank() && then.dtype() == now.dtype() &&
               then.layout() == now.layout() && !IsTerm(then) && !IsTerm(now) &&
               then.scale().value() == now.scale().value() &&
               then.holds_values() && now.holds_values() &&
               then.extent().xxh3 != now.extent().xxh3;
      });
}

// Nothing where the two cannot be compared.
Result<std::optional<TensorComparison>> Compared(const TensorPieces& a,
                                                 const TensorPieces& b) {
  auto compared = CompareTensor(a, b);
  if (compared.ok()) return std::optional(*std::move(compared));
  if (compared.error().code() != ErrorCode::kIncomparable) {
    return compared.error();
  }
  return std::optional<TensorComparison>();
}

// Of summaries the whole tensor is one: that nothing of it moved their digests
// tell, and what should have moved the values of the reference.
Result<SkippedUpdate> OfTheWhole(const TensorPieces& before,
                                 const TensorPieces& after,
                                 const TensorPieces& pieces) {
  SkippedUpdate out;
  if (HasSummaries(before) || HasSummaries(after)) return out;
  TTRACE_ASSIGN_OR_RETURN(const auto own, Compared(before, pieces));
  if (!own || !own->total.bitwise_equal()) return out;
  TTRACE_ASSIGN_OR_RETURN(const auto step, Compared(before, after));
  if (!step) return out;
  const bool low_precision = InLowPrecision(pieces);
  int64_t changed = step->total.mismatched;
  if (low_precision) {
    TTRACE_ASSIGN_OR_RETURN(changed, MovedFar(before, after, before));
  }
  if (!IsSeen(changed, own->total.count, low_precision)) return out;
  std::set<int> ranks;
  for (const Record& piece : pieces.pieces) ranks.insert(piece.rank());
  out.ranks.assign(ranks.begin(), ranks.end());
  out.unchanged = own->total.count;
  out.changed = changed;
  out.far = low_precision;
  return out;
}

}  // namespace

Result<SkippedUpdate> FindSkippedUpdate(const Side& reference,
                                        const Side& candidate,
                                        const TensorId& id) {
  SkippedUpdate out;
  const TensorPieces* after = reference.Find(kReal, id);
  const TensorPieces* pieces = candidate.Find(kReal, id);
  const TensorPieces* theirs = Before(reference, id);
  const TensorPieces* before =
      candidate.facts().weights_grafted ? theirs : Before(candidate, id);
  if (after == nullptr || theirs == nullptr || before == nullptr ||
      pieces == nullptr) {
    return out;
  }
  if (HasSummaries(*after) || HasSummaries(*before) || HasSummaries(*pieces)) {
    return OfTheWhole(*before, *after, *pieces);
  }
  if (EachPieceChanged(*before, *pieces)) return out;
  const bool low_precision = InLowPrecision(*pieces);
  TTRACE_ASSIGN_OR_RETURN(const auto from_before, Compared(*before, *pieces));
  if (!from_before) return out;
  const bool any_unchanged = std::any_of(
      from_before->instances.begin(), from_before->instances.end(),
      [](const InstanceStats& i) { return i.stats.bitwise_equal(); });
  if (!any_unchanged) return out;
  if (before != theirs) {
    // A run's own weights that are frozen by now may differ from the
    // reference's by what was rounded otherwise before.
    TTRACE_ASSIGN_OR_RETURN(const auto step, Compared(*theirs, *after));
    if (!step ||
        !IsSeen(step->total.mismatched, step->total.count, low_precision)) {
      return out;
    }
  }
  TTRACE_ASSIGN_OR_RETURN(const auto from_after, Compared(*after, *pieces));
  if (!from_after) return out;
  std::set<int> ranks;
  for (size_t i = 0;
       i < from_before->instances.size() && i < from_after->instances.size();
       ++i) {
    const InstanceStats& then = from_before->instances[i];
    const InstanceStats& now = from_after->instances[i];
    if (then.ranks != now.ranks || !then.stats.bitwise_equal()) continue;
    int64_t changed = now.stats.mismatched;
    if (low_precision) {
      const RankPieces part(*pieces, then.ranks.front());
      TTRACE_ASSIGN_OR_RETURN(changed,
                              MovedFar(*theirs, *after, part.pieces()));
    }
    if (!IsSeen(changed, then.stats.count, low_precision)) continue;
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
