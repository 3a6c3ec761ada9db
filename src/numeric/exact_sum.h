// ExactSum: a sum of doubles without rounding, hence without an order.
//
// A fixed-point number wide enough for every double: radix-2^32 digits kept in
// int64, bit 0 of digit 0 worth 2^-1074. An addend touches three digits and
// the spare 31 bits of a digit absorb carries, which are propagated only once
// in 2^30 additions. Two sums are merged by adding digits, so that any split of
// the work over threads, shards or files gives the same bits.
//
// Thread safety: as for a plain struct.

#ifndef TTRACE_SRC_NUMERIC_EXACT_SUM_H_
#define TTRACE_SRC_NUMERIC_EXACT_SUM_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ttrace {

class ExactSum {
 public:
  // NaN and Inf do not fit the fixed point. They are added beside it, where
  // IEEE arithmetic makes their sum independent of the order as well.
  void Add(double x) {
    const auto bits = std::bit_cast<uint64_t>(x);
    auto exponent = static_cast<uint32_t>((bits >> 52) & 0x7FF);
    uint64_t significand = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7FF) {
      nonfinite_ += x;
      return;
    }
    if (exponent == 0) {
      exponent = 1;
    } else {
      significand |= uint64_t{1} << 52;
    }
    const uint32_t position = exponent - 1;
    const size_t k = position / 32;
    const uint32_t shift = position % 32;
    const uint64_t low = significand << shift;
    // Two shifts: a shift by 64 - 0 would be undefined.
    const uint64_t high = (significand >> 1) >> (63 - shift);
    const auto d0 = static_cast<int64_t>(low & 0xFFFFFFFF);
    const auto d1 = static_cast<int64_t>(low >> 32);
    const auto d2 = static_cast<int64_t>(high);
    const int64_t sign = (bits >> 63) != 0 ? -1 : 1;
    digits_[k] += sign * d0;
    digits_[k + 1] += sign * d1;
    digits_[k + 2] += sign * d2;
    if (++pending_ == kMaxPending) Carry();
  }

  void Merge(const ExactSum& other) {
    Carry();
    ExactSum canonical = other;
    canonical.Carry();
    for (size_t i = 0; i < kDigits; ++i) digits_[i] += canonical.digits_[i];
    pending_ = 1;
    nonfinite_ += other.nonfinite_;
  }

  // The sum taken apart: sign and magnitude, of which the first digit is worth
  // 2^(32 first - 1074) and neither the first nor the last is zero.
  struct Parts {
    bool negative = false;
    uint32_t first = 0;
    std::vector<uint32_t> digits;
    double nonfinite = 0;  // the sum of what was no number; 0: there was none
  };
  Parts TakeApart() const {
    Parts out;
    ExactSum t = Magnitude(&out.negative);
    size_t end = kDigits;
    while (end > 0 && t.digits_[end - 1] == 0) --end;
    size_t first = 0;
    while (first < end && t.digits_[first] == 0) ++first;
    out.first = static_cast<uint32_t>(first);
    for (size_t i = first; i < end; ++i) {
      out.digits.push_back(static_cast<uint32_t>(t.digits_[i]));
    }
    out.nonfinite = nonfinite_;
    return out;
  }
  // The same sum again. Nothing if there is none of such parts.
  static std::optional<ExactSum> PutTogether(const Parts& parts) {
    if (parts.first > kDigits || parts.digits.size() > kDigits - parts.first) {
      return std::nullopt;
    }
    ExactSum out;
    for (size_t i = 0; i < parts.digits.size(); ++i) {
      const int64_t digit = parts.digits[i];
      out.digits_[parts.first + i] = parts.negative ? -digit : digit;
    }
    out.Carry();
    out.nonfinite_ = parts.nonfinite;
    return out;
  }

  // The sum, rounded once to nearest even.
  double Value() const {
    bool negative = false;
    const ExactSum t = Magnitude(&negative);
    size_t top = kDigits - 1;
    while (top > 0 && t.digits_[top] == 0) --top;
    // Three digits hold at least 65 significant bits, more than a double needs;
    // the rest only matters as "not zero", in the last bit.
    unsigned __int128 head = 0;
    int exponent = -1074;
    size_t below = 0;
    if (top >= 2) {
      below = top - 2;
      exponent += static_cast<int>(below) * 32;
    }
    for (size_t i = top + 1; i-- > below;) {
      head = (head << 32) | static_cast<uint64_t>(t.digits_[i]);
    }
    bool rest = false;
    for (size_t i = 0; i < below; ++i) rest = rest || t.digits_[i] != 0;
    if (rest) head |= 1;
    // ldexp is exact here: below the normal range the sum is a multiple of
    // 2^-1074 already.
    const double magnitude = std::ldexp(static_cast<double>(head), exponent);
    return (negative ? -magnitude : magnitude) + nonfinite_;
  }

 private:
  // The largest double ends in digit 65; two more leave room for more sums than
  // anybody will add.
  static constexpr size_t kDigits = 68;
  static constexpr uint32_t kMaxPending = uint32_t{1} << 30;

  // Digits in [0, 2^32).
  ExactSum Magnitude(bool* negative) const {
    ExactSum t = *this;
    t.Carry();
    // After a carry all digits but the last are in [0, 2^32), so the last one
    // has the sign of the whole.
    *negative = t.digits_[kDigits - 1] < 0;
    if (*negative) {
      for (int64_t& digit : t.digits_) digit = -digit;
      t.Carry();
    }
    return t;
  }

  void Carry() {
    pending_ = 0;
    for (size_t i = 0; i + 1 < kDigits; ++i) {
      const int64_t carry = digits_[i] >> 32;  // floor
      digits_[i] -= carry * (int64_t{1} << 32);
      digits_[i + 1] += carry;
    }
  }

  std::array<int64_t, kDigits> digits_ = {};
  uint32_t pending_ = 0;
  double nonfinite_ = 0;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_NUMERIC_EXACT_SUM_H_
