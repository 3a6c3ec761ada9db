// Rows of a culprit's tensor (its last dimension), whole and side by side.
//
// Thread safety: pure function of const inputs.

#ifndef TTRACE_SRC_DIAGNOSE_ROW_PAIRS_H_
#define TTRACE_SRC_DIAGNOSE_ROW_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/diagnose/explained.h"

namespace ttrace {

class ValueView;

class RowPairs {
 public:
  // Up to 2^18 elements around the one that is furthest off, of rows of 2 to
  // 4,096 elements; nothing if the tensor has no such rows or cannot be read.
  // Of copies the worst is looked at. Where a side has no values, the samples
  // that were kept of them: 2 or more elements of each row.
  static std::optional<RowPairs> Of(const ValueView& view);

  // Elements of the tensor that were looked at, if these are no whole rows but
  // what was kept of some; else 0.
  size_t sampled() const { return sampled_; }
  size_t rows() const { return right_.size(); }
  int64_t width() const { return width_; }
  std::span<const double> reference(size_t row) const {
    return Row(reference_, row);
  }
  std::span<const double> candidate(size_t row) const {
    return Row(candidate_, row);
  }
  // No element of it is further off than limit().
  bool right(size_t row) const { return right_[row]; }
  // What an element may be off: 4 x bound x the root mean square of the
  // reference's. Of a clean tensor's elements not 1 in 16 is further off
  // (docs/diagnosis.md).
  double limit() const { return limit_; }

  // Of the wrong rows those that a rule explains, which it is asked of one by
  // one: it returns how unlikely what it sees is by chance, in bits, or nothing
  // (an optional).
  template <typename Rule>
  Explained ExplainedBy(const Rule& bits_of) const {
    Explained out;
    for (size_t row = 0; row < rows(); ++row) {
      if (right(row)) continue;
      ++out.wrong;
      const std::optional<double> bits = bits_of(row);
      if (!bits) continue;
      ++out.explained;
      out.bits += *bits;
    }
    return out;
  }

 private:
  std::span<const double> Row(const std::vector<double>& values,
                              size_t row) const {
    const auto width = static_cast<size_t>(width_);
    return {values.data() + row * width, width};
  }

  size_t sampled_ = 0;  // elements
  int64_t width_ = 0;
  double limit_ = 0;
  std::vector<double> reference_;
  std::vector<double> candidate_;
  std::vector<bool> right_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_ROW_PAIRS_H_
