// CompareReplicas: what needs no reference to be wrong.

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/compared_piece.h"
#include "src/compare/grouped_once.h"
#include "src/compare/instances.h"
#include "src/compare/same_bytes.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/sweep.h"

namespace ttrace {
namespace {

using GridDim = std::pair<int, size_t>;  // a grid, and its dimension

int GridOf(const Instance& instance) {
  return instance.terms.front().record.grid();
}

// Mesh dimensions in which two copies sit at different coordinates. A dimension
// that was summed over tells nothing: each copy has terms all along it.
void AddDifferingDims(const Instance& a, const Instance& b,
                      std::set<GridDim>* dims) {
  // Copies that speak of two grids are told apart in the first of all.
  const int grid = GridOf(a) == GridOf(b) ? GridOf(a) : 0;
  const DeviceMesh& mesh = a.trace->mesh(grid);
  const Coordinate& x = a.trace->coordinate(a.ranks.front(), grid);
  const Coordinate& y = b.trace->coordinate(b.ranks.front(), grid);
  for (size_t d = 0; d < mesh.dims.size(); ++d) {
    const bool summed = std::find(a.summed.begin(), a.summed.end(),
                                  mesh.dims[d].name) != a.summed.end();
    if (!summed && x[d] != y[d]) dims->emplace(grid, d);
  }
}

// Of values that were compared in place, or of values.
struct CopyDigest {
  uint64_t xxh3 = 0;
  std::optional<ErrorSums> against;  // the reference
};
Result<CopyDigest> DigestOfCopy(const Instance& copy) {
  const Record& record = copy.terms.front().record;
  if (record.holds_values()) {
    TTRACE_RETURN_IF_ERROR(copy.trace->Verify(record));
    return CopyDigest{record.extent().xxh3, std::nullopt};
  }
  TTRACE_ASSIGN_OR_RETURN(const ComparedPiece piece,
                          ReadComparedPiece(*copy.trace, record));
  return CopyDigest{piece.xxh3, piece.legs.front().sums};
}

bool ComparedInPlace(const Instance& copy) {
  return copy.terms.size() == 1 &&
         !copy.terms.front().record.compared_with().empty();
}

// Where the values of one copy at least are not there: whether they are equal,
// and the least that they may differ by. Nothing if a sum is among them.
Result<std::optional<ErrorStats>> CompareDigests(const Instance& a,
                                                 const Instance& b) {
  if (a.terms.size() != 1 || b.terms.size() != 1) {
    return std::optional<ErrorStats>();
  }
  TTRACE_ASSIGN_OR_RETURN(const CopyDigest x, DigestOfCopy(a));
  TTRACE_ASSIGN_OR_RETURN(const CopyDigest y, DigestOfCopy(b));
  ErrorStats out;
  const Record& record = a.terms.front().record;
  out.count = record.layout().local_count();
  if (x.xxh3 == y.xxh3 && record.dtype() == b.terms.front().record.dtype()) {
    return std::optional<ErrorStats>(out);
  }
  out.mismatched = 1;
  out.sum_sq_ref = 1;
  if (x.against && y.against) {
    // |c - d| >= ||c - r| - |d - r||
    const double least =
        x.against->Stats().rel_err() - y.against->Stats().rel_err();
    out.sum_sq_err = least * least;
  }
  return std::optional<ErrorStats>(out);
}

// One copy and the first one.
struct CopyPair {
  const Instance* first = nullptr;
  const Instance* other = nullptr;
  const Layout* layout = nullptr;
  bool equal = false;
  std::optional<size_t> comparison;  // of the sweep; else by what was kept
};

CopyPair PlanPair(const Instance& a, const Instance& b, const Layout& layout,
                  const CompareOptions& options, Sweep* sweep) {
  CopyPair pair = {&a, &b, &layout, false, std::nullopt};
  if (ComparedInPlace(a) || ComparedInPlace(b) || HasSummaries(a) ||
      HasSummaries(b)) {
    return pair;
  }
  pair.equal = SameBytes(a, b) && IsVerified(a) && IsVerified(b);
  if (!pair.equal) {
    pair.comparison =
        sweep->Compare({{a, layout}}, {b, layout}, 0, options.tile_elements);
  }
  return pair;
}

// Nothing if it cannot be told: a sum has no digest, and its sketch says that
// it is another one only where it is so by more than the sketch's own rounding.
Result<std::optional<ErrorStats>> CompareCopies(const CopyPair& pair,
                                                Sweep* sweep) {
  const Instance& a = *pair.first;
  const Instance& b = *pair.other;
  if (pair.equal) {
    ErrorStats equal;
    equal.count = pair.layout->local_count();
    return std::optional<ErrorStats>(equal);
  }
  if (pair.comparison) {
    TTRACE_ASSIGN_OR_RETURN(const ErrorSums sums,
                            sweep->SumsOf(*pair.comparison));
    return std::optional<ErrorStats>(sums.Stats());
  }
  if (ComparedInPlace(a) || ComparedInPlace(b)) {
    TTRACE_ASSIGN_OR_RETURN(const auto stats, CompareDigests(a, b));
    if (!stats || stats->bitwise_equal()) return stats;
    const auto estimated = CompareSummaries({&a}, {&b});
    return estimated.ok() ? std::optional<ErrorStats>(estimated->stats) : stats;
  }
  TTRACE_ASSIGN_OR_RETURN(const SummaryComparison compared,
                          CompareSummaries({&a}, {&b}));
  const bool sums = a.terms.size() > 1 || b.terms.size() > 1;
  if (sums && !(compared.stats.AtLow().sum_sq_err > 0)) {
    return std::optional<ErrorStats>();
  }
  return std::optional<ErrorStats>(compared.stats);
}

}  // namespace

Result<ReplicaComparison> CompareReplicas(const TensorPieces& pieces,
                                          const CompareOptions& options) {
  TTRACE_ASSIGN_OR_RETURN(const SharedGroups groups,
                          GroupShared(pieces, options));
  Sweep sweep(options.cache);
  std::vector<CopyPair> pairs;
  ReplicaComparison result;
  for (const InstanceGroup& group : *groups) {
    if (group.layout.local_count() == 0) continue;
    const auto& instances = group.instances;
    // Sorted by micro-batch. Different micro-batches are not copies of one
    // thing even if no batch dimension tells them apart.
    for (size_t begin = 0; begin < instances.size();) {
      size_t end = begin + 1;
      while (end < instances.size() &&
             instances[end].micro_batch == instances[begin].micro_batch) {
        ++end;
      }
      if (end - begin > 1) ++result.groups;
      const Instance& first = instances[begin];
      for (size_t i = begin + 1; i < end; ++i) {
        pairs.push_back(
            PlanPair(first, instances[i], group.layout, options, &sweep));
      }
      begin = end;
    }
  }
  sweep.Run();
  std::set<int> ranks;
  std::set<GridDim> dims;
  for (const CopyPair& pair : pairs) {
    TTRACE_ASSIGN_OR_RETURN(const std::optional<ErrorStats> stats,
                            CompareCopies(pair, &sweep));
    if (!stats) continue;
    ++result.copies;
    if (stats->bitwise_equal()) continue;
    ++result.differing;
    const double rel_err = stats->nonfinite_differ != 0
                               ? std::numeric_limits<double>::infinity()
                               : stats->AtLow().rel_err();
    result.worst_rel_err = std::max(result.worst_rel_err, rel_err);
    ranks.insert(pair.first->ranks.begin(), pair.first->ranks.end());
    ranks.insert(pair.other->ranks.begin(), pair.other->ranks.end());
    AddDifferingDims(*pair.first, *pair.other, &dims);
  }
  result.differing_ranks.assign(ranks.begin(), ranks.end());
  for (const auto& [grid, d] : dims) {
    result.mesh_dims.push_back(pieces.trace->mesh(grid).dims[d].name);
  }
  return result;
}

}  // namespace ttrace
