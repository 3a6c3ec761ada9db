// Facts: what was measured of one logical tensor, without any opinion on it.
//
// Statistics are kept for each region that an instance of the candidate holds;
// those of the whole are their sum, taken in the order of regions.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_MEASURE_FACTS_H_
#define TTRACE_SRC_MEASURE_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/align/routed_rows.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/error_stats.h"
#include "src/measure/padding_gradient.h"
#include "src/measure/repeated_parts.h"
#include "src/measure/routing_flips.h"
#include "src/measure/skipped_update.h"
#include "ttrace/status.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// Errors that are facts about the traces, not failures to read them.
inline bool IsFact(const Error& error) {
  return error.code() == ErrorCode::kIncomparable ||
         error.code() == ErrorCode::kUnsupported ||
         error.code() == ErrorCode::kInvalidArgument;
}

// One leg of the reference against another one.
struct PairFacts {
  ErrorStats total;
  std::vector<ErrorStats> regions;  // parallel to TensorComparison::regions
};

// Of each leg, what it is over all regions.
inline std::vector<ErrorStats> Totals(const std::vector<PairFacts>& legs) {
  std::vector<ErrorStats> out;
  out.reserve(legs.size());
  for (const PairFacts& leg : legs) out.push_back(leg.total);
  return out;
}

// One planned comparison (experiment/leg_plan.h) of one tensor.
struct LegFacts {
  size_t plan = 0;             // index into the plans
  TensorComparison candidate;  // against the reference's leg
  std::vector<PairFacts> noise;
  // The reference's replay against its real leg; in the real leg, if it was
  // replayed and differs.
  std::optional<PairFacts> repeat;
  // Against the reference's fp32 leg.
  std::optional<PairFacts> candidate_fp32;
  std::optional<PairFacts> reference_fp32;
  // Copies in the candidate's isolated leg, where those of its real leg differ.
  std::optional<ReplicaComparison> replicas;
  // Of a routing map whose scores the reference has.
  std::optional<RoutingFlips> flips;
  bool usable = false;  // false: only `trouble` says something
  std::string trouble;  // why the comparison is not whole, or not possible
};

// A replay of a leg against the leg.
struct RepeatFacts {
  ErrorStats total;

  bool bitwise() const { return total.bitwise_equal(); }
  double err() const { return bitwise() ? 0 : total.rel_err(); }
};

struct TensorFacts {
  TensorId id;
  int64_t order = 0;  // place in the order of execution
  bool in_reference = true;
  bool exact = false;   // integers or booleans
  bool vector = false;  // of at most one dimension
  // Gradient of a table: each row is a sum over the tokens that looked it up.
  bool lookup = false;
  // It depends on the batch in a way that is not known: what is missing and
  // what is there twice cannot be told.
  bool batch_unknown = false;
  // Its rows are padded to other lengths in the two runs: what one of them
  // alone holds is padding.
  bool padded = false;
  PaddingGradient padding_gradient;
  // An item of a list whose items are rows: it was found by what it holds.
  bool listed = false;
  // Of a data item: it holds the reference's rows, or counts within the batch
  // of its rank, so that nothing was put in its place.
  bool own_rows = false;
  bool complete = true;  // its iteration ended on all ranks, in both runs
  DType dtype = DType::kF32;
  Shape reference_shape;
  Shape candidate_shape;
  std::optional<RepeatFacts> candidate_repeat;
  std::optional<RepeatFacts> reference_repeat;
  ReplicaComparison replicas;  // of the candidate's real leg
  std::vector<LegFacts> legs;  // in the order of the plans
  // Without a reference: the candidate against itself, for finite values.
  std::optional<TensorComparison> own;
  std::optional<SkippedUpdate> update;
  std::optional<RepeatedParts> foreign_parts;
  // Why routed rows of the real legs have no place.
  std::optional<RoutingTrouble> unplaced;
  std::optional<RoutingTrouble> reference_unplaced;
  std::string damage;   // bytes of it could not be trusted: rank, file, tensor
  std::string trouble;  // no leg could be compared, and why
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_FACTS_H_
