#include "src/judge/judgement.h"

namespace ttrace {

std::string_view ToString(TensorVerdict verdict) {
  switch (verdict) {
    case TensorVerdict::kBitwiseEqual:
      return "bitwise_equal";
    case TensorVerdict::kWithin:
      return "within";
    case TensorVerdict::kSuspect:
      return "suspect";
    case TensorVerdict::kDiverged:
      return "diverged";
    case TensorVerdict::kNotCheckable:
      return "not_checkable";
    case TensorVerdict::kUnmatched:
      return "unmatched";
  }
  return "unknown";
}

std::string_view ToString(Statistic statistic) {
  switch (statistic) {
    case Statistic::kNorm:
      return "norm";
    case Statistic::kElement:
      return "element";
    case Statistic::kBlock:
      return "block";
  }
  return "?";
}

}  // namespace ttrace
