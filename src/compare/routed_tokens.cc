#include "src/compare/routed_tokens.h"

#include <string>

#include "src/compare/instances.h"
#include "src/compare/row_map.h"

namespace ttrace {
namespace {

std::string ExpertOf(const TensorPieces& pieces) {
  const auto& routed = pieces.pieces.front().routed();
  return routed ? "expert " + std::to_string(routed->expert) : "no expert";
}

}  // namespace

Result<std::optional<RoutedTokens>> JoinTokens(const TensorPieces& reference,
                                               const TensorPieces& candidate,
                                               const CompareOptions& options) {
  if (!reference.tokens && !candidate.tokens) {
    return std::optional<RoutedTokens>();
  }
  if (ExpertOf(reference) != ExpertOf(candidate)) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(reference) + ": rows of " +
                     ExpertOf(reference) + " in the reference and of " +
                     ExpertOf(candidate) + " in the candidate");
  }
  DimLayout own = *candidate.tokens;
  if (options.rows != nullptr) {
    TTRACE_RETURN_IF_ERROR(MapTokens(*options.rows, &own));
  }
  int64_t both = 0;
  for (const SharedRun& run : Intersect(*reference.tokens, own)) {
    both += run.size;
  }
  RoutedTokens out;
  out.reference = reference.tokens->local_size();
  out.candidate = own.local_size();
  out.only_reference = out.reference - both;
  out.only_candidate = out.candidate - both;
  return std::optional<RoutedTokens>(out);
}

int64_t ElementsOfAToken(const Shape& shape) {
  int64_t count = 1;
  for (size_t d = 1; d < shape.size(); ++d) count *= shape[d];
  return count;
}

}  // namespace ttrace
