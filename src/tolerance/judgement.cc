#include "src/tolerance/judgement.h"

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

}  // namespace ttrace
