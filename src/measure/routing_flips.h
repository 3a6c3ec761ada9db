// Tokens that a router sent to other experts in the two runs, and how close the
// choice was.
//
// A router takes the experts of the largest scores. Where one was dropped and
// another added, the two scores are what the choice hung on: the closer they
// are in the reference, the less it takes to turn it.
//
// Thread safety: pure functions of const inputs.

#ifndef TTRACE_SRC_MEASURE_ROUTING_FLIPS_H_
#define TTRACE_SRC_MEASURE_ROUTING_FLIPS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/compare_tensor.h"
#include "ttrace/status.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// The output of a router that holds the scores of which the largest are taken,
// shaped as its map: [sequence, batch, experts].
inline constexpr std::string_view kScoresArg = "scores";

struct FlippedToken {
  int64_t token = 0;  // its number: row * sequence + place
  // The largest |d - a| / (|d| + |a| + 2 c) of the reference's scores d of a
  // dropped and a of an added expert, c being the rms of all scores: what
  // ErrorStats::max_elem of the scores has to be for the choice to turn.
  // Infinite if as many were not added as dropped.
  double margin = 0;
};

struct RoutingFlips {
  int64_t tokens = 0;
  std::vector<FlippedToken> flipped;  // by token
};

// Whether `id` may be a routing map: a module's output of booleans of three
// dimensions.
bool MayBeRoutingMap(const TensorId& id, const TensorPieces& pieces);

// `scores`: the reference's. Of `options`, rows apply. Tokens that a side does
// not hold are left out. Memory: a few slices of the sequence.
//
// Fails with kIncomparable if the shapes differ, a map is not whole or terms
// are missing, with the Error of Trace::Read otherwise.
Result<RoutingFlips> MeasureFlips(const TensorPieces& reference,
                                  const TensorPieces& candidate,
                                  const TensorPieces& scores,
                                  const CompareOptions& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_ROUTING_FLIPS_H_
