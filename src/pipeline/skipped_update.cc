#include "src/pipeline/skipped_update.h"

#include <algorithm>
#include <set>

#include "src/compare/compare_tensor.h"

namespace ttrace {
namespace {

// Fewer elements may all be moved by less than a rounding.
constexpr int64_t kFewest = 16;

// What the step of iteration `id.iteration` started from.
const TensorPieces* Before(const Side& side, const TensorId& id) {
  TensorId before = id;
  --before.iteration;
  if (const auto* found = side.Find("real", before)) return found;
  before = {id.fqn, Role::kParam, id.iteration, 0, "", Pass::kForward};
  return side.Find("real", before);
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
  const DType dtype = pieces->pieces.front()->dtype;
  if (UnitRoundoff(dtype) > UnitRoundoff(DType::kF32)) return out;
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
    if (then.ranks != now.ranks || then.stats.count < kFewest ||
        !then.stats.bitwise_equal() ||
        2 * now.stats.mismatched < then.stats.count) {
      continue;
    }
    if (ranks.empty()) {
      out.unchanged = then.stats.count;
      out.changed = now.stats.mismatched;
    }
    ranks.insert(then.ranks.begin(), then.ranks.end());
  }
  out.ranks.assign(ranks.begin(), ranks.end());
  return out;
}

}  // namespace ttrace
