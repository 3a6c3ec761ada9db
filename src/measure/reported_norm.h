// The gradient norm that an optimizer reports, and what it is the norm of.
//
// A framework's own primitive does not give the exact norm: torch's fp32 norm
// of one CPU thread is low by 2e-4 for 8e6 elements and by 4e-3 for 5e7, and by
// other amounts for other shards. A bound that admits that would hide a missing
// shard. So capture asks the primitive for the norm of each gradient as it lies
// on its rank (note gradient_norms), and the reported norm is compared with
// what these add up to. Of gradients of low precision there are two such sums:
// capture asks for the norm of their values in fp32 and of them as they are.
//
// Gradients are read one by one, by whoever measures them anyway; what is left
// is a number of each.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_MEASURE_REPORTED_NORM_H_
#define TTRACE_SRC_MEASURE_REPORTED_NORM_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/experiment/side.h"
#include "ttrace/dtype.h"
#include "ttrace/status.h"

namespace ttrace {

// What one parameter's gradient adds to the square of the norm.
struct NormTerm {
  std::string fqn;
  double square = 0;
  // Of dimensions of the mesh along which ranks hold other parts of it: what
  // those at each coordinate add.
  std::map<std::string, std::vector<double>> along;
};

struct ReportedNorm {
  double reported = 0;
  DType dtype = DType::kF32;  // of the reported value
  // Of the recorded gradients, added up exactly.
  double exact = 0;
  // The same from what the primitive gave for each part; nothing if a part has
  // none.
  std::optional<double> primitive;
  // And from what it gave for parts of low precision as they are, which is
  // rounded to that: what a loop takes of its gradients. An optimizer that
  // copies them to fp32 takes the other.
  std::optional<double> rounded;
  std::vector<NormTerm> terms;  // by name
  int64_t parts = 0;            // gradients on ranks, copies once
  int64_t largest_part = 0;     // elements
  // Of gradients whose terms ranks hold, of which no primitive said anything:
  // above are their exact norms. Elements.
  int64_t largest_sum = 0;
  std::string
      unknown;  // a parameter whose gradient is not recorded; empty: none
};

// Of one gradient the sum of squares, or why there is none.
struct GradientSquare {
  double sum = 0;
  std::optional<std::pair<ErrorCode, std::string>> failure;
};
using GradientSquares = std::map<TensorId, GradientSquare>;

// Iterations of `side` that report a norm which can be measured: the value is a
// scalar, and each rank ended the iteration, so that no gradient is missing.
std::set<int> IterationsWithNorm(const Side& side);

// Fails if the operating system does not give the bytes.
Result<GradientSquare> SquareOf(const TensorPieces& gradient);

// Of one iteration of `side`, the norm called `id`, from the squares of all its
// reduced gradients. Nothing if no gradient is recorded or the iteration is not
// one with a norm. Fails with the first gradient's Error whose bytes are
// damaged, or if the norm itself cannot be read.
Result<std::optional<ReportedNorm>> MeasureReportedNorm(
    const Side& side, const TensorId& id, const GradientSquares& squares);

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_REPORTED_NORM_H_
