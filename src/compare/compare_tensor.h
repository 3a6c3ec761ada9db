// Merging errors instead of tensors: a candidate's pieces are compared in
// place with the intersecting pieces of the reference, tile by tile, and only
// statistics are kept. Memory: a few tiles, whatever the tensor's size.
//
// Words: an *instance* is a set of pieces that together make values: one piece,
// or for Partial placements all pieces along the partial mesh dimensions, which
// are summed (in double, tile by tile) first. Instances with equal layouts are
// *replicas*; they are never averaged.
//
// Thread safety: pure functions of const inputs; many threads may call them.

#ifndef TTRACE_SRC_COMPARE_COMPARE_TENSOR_H_
#define TTRACE_SRC_COMPARE_COMPARE_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_options.h"
#include "src/compare/error_stats.h"
#include "src/compare/error_sums.h"
#include "ttrace/status.h"

namespace ttrace {

// One candidate instance against the reference, or some that measured alike
// (equal_copies.h).
struct InstanceStats {
  std::vector<int> ranks;  // of its pieces, sorted, each once
  int micro_batch = -1;
  ErrorStats stats;
  int region = 0;      // index into TensorComparison::regions
  int64_t copies = 1;  // instances that this stands for
};

// Of rows that a router chose: the tokens that it sent to this expert in each
// run, all ranks together. Those of one run only are no gaps of the other.
struct RoutedTokens {
  int64_t reference = 0;
  int64_t candidate = 0;
  int64_t only_reference = 0;
  int64_t only_candidate = 0;
  bool operator==(const RoutedTokens&) const = default;
};

// What a comparison stands on: the values, or what was kept instead of them on
// one side at least.
enum class Fidelity : uint8_t { kValues, kSketch, kDigest };
std::string_view ToString(Fidelity fidelity);  // "values", "sketch", "digest"
std::optional<Fidelity> ParseFidelity(std::string_view text);

struct TensorComparison {
  Fidelity fidelity = Fidelity::kValues;
  // Of digests that differ: the same elements are in other places.
  bool reordered = false;
  // Over the whole logical tensor. Where replicas differ, each region counts
  // with its worst replica: a good copy must not hide a bad one.
  ErrorStats total;
  // Of every instance, sorted by (micro_batch, ranks).
  std::vector<InstanceStats> instances;
  // The regions that the candidate's instances hold, replicas once, in the
  // reference's order of rows. They do not overlap if `complete()`.
  std::vector<Layout> regions;
  // Of routed rows. Only tokens of both are compared, and a gap is then what a
  // side was sent and does not hold.
  std::optional<RoutedTokens> routed;
  // Elements of the logical tensor that one side holds and the other does not,
  // or that distinct, partly overlapping instances of one side hold twice.
  int64_t candidate_gap = 0;  // reference has them, candidate does not
  int64_t reference_gap = 0;  // candidate has them, reference does not
  // Declared by the shape, and held by neither: not in complete(), because what
  // is held is the same on both sides.
  int64_t common_gap = 0;
  int64_t candidate_overlap = 0;
  int64_t reference_overlap = 0;
  bool complete() const {
    return candidate_gap == 0 && reference_gap == 0 && candidate_overlap == 0 &&
           reference_overlap == 0;
  }
};

// The ranks that hold an instance which is not bit for bit the reference's,
// sorted.
std::vector<int> DifferingRanks(const TensorComparison& compared);

// Fails with kIncomparable if the global shapes differ, a Partial instance
// lacks a term (a rank is missing), or rows are routed and have no place or are
// those of one expert here and not there; with the Error of Trace::Read
// otherwise. Both sides' declared scales are applied. The reference's instances
// cover the tensor by their first replica; its other replicas are not read.
//
// Of a candidate's piece that was compared with this reference where it ran,
// the statistics are those that were found there (compared_piece.h).
//
// Where a piece of either side has only a summary, or was compared with another
// reference and has a summary, summaries are made of all, and the tensor is one
// region (of a summary nothing can be said of parts): equal digests are equal
// bits; else the error is an estimate (ErrorStats::estimated), or, without
// sketches, anything. The ranks are one instance, or two: those whose pieces
// have the reference's digests, and the others (compare_as_whole.h).
// Fails with kIncomparable where summaries have no place: rows that are in
// another order, rows that a router chose.
Result<TensorComparison> CompareTensor(const TensorPieces& reference,
                                       const TensorPieces& candidate,
                                       const CompareOptions& options = {});

// The same for each of `regions` apart: `other` is usually a leg of the
// reference itself and `regions` are those of a candidate's comparison, so that
// what a rank holds is judged by what noise does to just that part. Blocks are
// cut as the candidate's are. Fails as CompareTensor.
// REQUIRES: the regions have the tensors' global shape.
Result<std::vector<ErrorStats>> CompareWithin(
    const TensorPieces& reference, const TensorPieces& other,
    const std::vector<Layout>& regions, const CompareOptions& options = {});

// Copies of one thing on several ranks (or in a recomputed forward), compared
// with the first of them, bit by bit where finite and by kind where not.
struct ReplicaComparison {
  int64_t groups = 0;                // regions that are held more than once
  int64_t copies = 0;                // comparisons made
  int64_t differing = 0;             // of these, not equal
  double worst_rel_err = 0;          // at least, where only sketches were kept
  std::vector<int> differing_ranks;  // sorted, the first copy's rank included
  // Mesh dimensions along which differing copies differ in coordinate.
  std::vector<std::string> mesh_dims;
};
Result<ReplicaComparison> CompareReplicas(const TensorPieces& pieces,
                                          const CompareOptions& options = {});

// Sum of squares over the merged logical tensor (first replica of each region,
// Partial summed, scale applied); NaN if an element is not finite.
struct SquareSum {
  double sum = 0;
  int64_t count = 0;  // of elements that are there, whatever shape is declared
};
// `cache`: CompareOptions.
Result<SquareSum> SumOfSquares(const TensorPieces& pieces,
                               RecordCache* cache = nullptr);

// The same of values that are there, before it is rounded: the sums of disjoint
// pieces of a tensor merge to the tensor's, bit by bit. Only counts and what is
// of the reference alone mean anything. Fails as SumOfSquares.
Result<ErrorSums> ExactSquares(const TensorPieces& pieces,
                               RecordCache* cache = nullptr);

// Copies the box [begin, begin + size) of the merged logical tensor as doubles,
// row-major. Regions nobody holds are NaN. Of `options`, sum_over, extra_scale
// and rows apply: a candidate is read in the reference's order of rows. For
// small boxes: diagnoses that look at values, and tests.
Result<std::vector<double>> ReadBox(const TensorPieces& pieces,
                                    const Shape& begin, const Shape& size,
                                    const CompareOptions& options = {});

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_COMPARE_TENSOR_H_
