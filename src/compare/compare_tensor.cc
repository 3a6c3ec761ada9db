#include "src/compare/compare_tensor.h"

#include <limits>
#include <set>
#include <string>
#include <utility>

#include "src/compare/compared_piece.h"
#include "src/compare/first_copies.h"
#include "src/compare/instances.h"
#include "src/compare/layout_overlap.h"
#include "src/compare/planned_comparison.h"
#include "src/compare/reference_instances.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/sweep.h"

namespace ttrace {
namespace {

Result<std::vector<InstanceGroup>> GroupWithoutOverlap(
    const TensorPieces& pieces) {
  TTRACE_ASSIGN_OR_RETURN(std::vector<InstanceGroup> groups,
                          GroupInstances(pieces, {}));
  const int64_t twice = MeasureOverlap(LayoutsOf(groups), {}).twice_a;
  if (twice == 0) return groups;
  return Error(ErrorCode::kIncomparable,
               DescribeTensor(pieces) + ": pieces overlap in " +
                   std::to_string(twice) + " elements");
}

}  // namespace

std::vector<int> DifferingRanks(const TensorComparison& compared) {
  std::set<int> ranks;
  for (const InstanceStats& instance : compared.instances) {
    if (instance.stats.bitwise_equal()) continue;
    ranks.insert(instance.ranks.begin(), instance.ranks.end());
  }
  return {ranks.begin(), ranks.end()};
}

Result<TensorComparison> CompareTensor(const TensorPieces& reference,
                                       const TensorPieces& candidate,
                                       const CompareOptions& options) {
  return CompareAlone<PlannedComparison>(options.cache, reference, candidate,
                                         options);
}

Result<std::vector<ErrorStats>> CompareWithin(
    const TensorPieces& reference, const TensorPieces& other,
    const std::vector<Layout>& regions, const CompareOptions& options) {
  return CompareAlone<PlannedWithin>(options.cache, reference, other, regions,
                                     options);
}

Result<SquareSum> SumOfSquares(const TensorPieces& pieces, RecordCache* cache) {
  if (HasSummaries(pieces) || WasComparedInPlace(pieces)) {
    TTRACE_ASSIGN_OR_RETURN(const std::vector<InstanceGroup> groups,
                            GroupWithoutOverlap(pieces));
    TTRACE_ASSIGN_OR_RETURN(const auto first, FirstCopies(pieces, groups));
    TTRACE_ASSIGN_OR_RETURN(const SummaryComparison own,
                            CompareSummaries(first, first));
    return SquareSum{own.stats.nonfinite_ref != 0
                         ? std::numeric_limits<double>::quiet_NaN()
                         : own.stats.sum_sq_ref,
                     own.stats.count};
  }
  TTRACE_ASSIGN_OR_RETURN(const ErrorSums sums, ExactSquares(pieces, cache));
  const ErrorStats stats = sums.Stats();
  SquareSum out = {stats.sum_sq_ref, stats.count};
  if (stats.nonfinite_ref != 0) {
    out.sum = std::numeric_limits<double>::quiet_NaN();
  }
  return out;
}

Result<ErrorSums> ExactSquares(const TensorPieces& pieces, RecordCache* cache) {
  TTRACE_ASSIGN_OR_RETURN(const std::vector<InstanceGroup> groups,
                          GroupWithoutOverlap(pieces));
  Sweep sweep(cache);
  std::vector<size_t> planned;
  for (const InstanceGroup& group : groups) {
    const PlacedInstance first = {group.instances.front(), group.layout};
    planned.push_back(
        sweep.Compare({first}, first, 0, CompareOptions{}.tile_elements));
  }
  sweep.Run();
  ErrorSums sums;
  for (const size_t one : planned) {
    TTRACE_ASSIGN_OR_RETURN(const ErrorSums of_group, sweep.SumsOf(one));
    sums.Merge(of_group);
  }
  return sums;
}

}  // namespace ttrace
