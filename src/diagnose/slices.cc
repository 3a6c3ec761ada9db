#include "src/diagnose/slices.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>

#include "src/diagnose/constants.h"
#include "src/numeric/noise.h"

namespace ttrace {
namespace {

class Slices {
 public:
  Slices(const std::vector<double>& values, int64_t slices, int64_t width)
      : values_(values), width_(static_cast<size_t>(width)) {
    const NoiseKey key = MakeNoiseKey(0, "slices");
    double norm = 0;
    for (size_t i = 0; i < width_; ++i) {
      direction_.push_back(UniformAt(key, i));
      norm += direction_.back() * direction_.back();
    }
    for (double& d : direction_) d /= std::sqrt(norm);
    for (int64_t s = 0; s < slices; ++s) {
      double square = 0;
      double signature = 0;
      for (size_t i = 0; i < width_; ++i) {
        square += row(s)[i] * row(s)[i];
        signature += row(s)[i] * direction_[i];
      }
      square_.push_back(square);
      signature_.push_back(signature);
    }
  }
  const double* row(int64_t s) const {
    return values_.data() + static_cast<size_t>(s) * width_;
  }
  double square(int64_t s) const { return square_[static_cast<size_t>(s)]; }
  double signature(int64_t s) const {
    return signature_[static_cast<size_t>(s)];
  }
  // Squared distance, or anything above `limit` once it is above.
  double Distance(int64_t s, const Slices& other, int64_t t,
                  double limit) const {
    double sum = 0;
    const double* a = row(s);
    const double* b = other.row(t);
    for (size_t i = 0; i < width_; ++i) {
      sum += (a[i] - b[i]) * (a[i] - b[i]);
      if (sum > limit) return sum;
    }
    return sum;
  }

 private:
  const std::vector<double>& values_;
  size_t width_;
  std::vector<double> direction_;
  std::vector<double> square_;
  std::vector<double> signature_;
};

// Stands for every slice within noise of zero.
constexpr int64_t kZero = -1;

// Indices of reference slices or kZero, each counted as the first slice that
// equals it, so that equal slices of the reference may stand for each other.
bool SameMultiset(const Slices& reference, std::vector<int64_t> a,
                  std::vector<int64_t> b, double tolerance_sq, double mean_sq) {
  std::vector<int64_t> all;
  for (std::vector<int64_t>* indices : {&a, &b}) {
    for (int64_t& s : *indices) {
      if (s != kZero && reference.square(s) <= tolerance_sq * mean_sq) {
        s = kZero;
      }
      if (s != kZero) all.push_back(s);
    }
  }
  std::sort(all.begin(), all.end(), [&](int64_t x, int64_t y) {
    return reference.signature(x) < reference.signature(y);
  });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::map<int64_t, int64_t> first = {{kZero, kZero}};
  for (size_t i = 0; i < all.size(); ++i) {
    const double limit =
        tolerance_sq * std::max(reference.square(all[i]), mean_sq);
    for (size_t j = i; j-- > 0;) {
      const double apart =
          reference.signature(all[i]) - reference.signature(all[j]);
      if (apart * apart > limit) break;
      if (reference.Distance(all[i], reference, all[j], limit) <= limit) {
        first[all[i]] = first[all[j]];
        break;
      }
    }
    first.try_emplace(all[i], all[i]);
  }
  std::map<int64_t, int64_t> balance;
  for (const int64_t s : a) ++balance[first[s]];
  for (const int64_t s : b) --balance[first[s]];
  return std::all_of(balance.begin(), balance.end(),
                     [](const auto& entry) { return entry.second == 0; });
}

// The slice of the reference that slice `s` equals and is closest to; -1: none
// is close enough, or all are about as far as its own, which is at a squared
// distance of `own`. `order`: of the reference's slices, by signature.
int64_t FindSource(const Slices& ref, const std::vector<int64_t>& order,
                   const Slices& cand, int64_t s, double own, double tolerance,
                   double mean_sq) {
  double best = own / (kSeparation * kSeparation);
  int64_t source = -1;
  // By Cauchy-Schwarz, signatures differ by no more than the slices do; the
  // reference slice's norm is within the tolerance of the candidate's.
  const double window =
      tolerance *
      std::sqrt(std::max(cand.square(s) / ((1 - tolerance) * (1 - tolerance)),
                         mean_sq));
  auto at = std::lower_bound(
      order.begin(), order.end(), cand.signature(s) - window,
      [&](int64_t a, double value) { return ref.signature(a) < value; });
  for (; at != order.end() && ref.signature(*at) <= cand.signature(s) + window;
       ++at) {
    if (*at == s) continue;
    const double limit = std::min(
        tolerance * tolerance * std::max(ref.square(*at), mean_sq), best);
    const double distance = cand.Distance(s, ref, *at, limit);
    if (distance > limit || (distance == best && source >= 0)) continue;
    best = distance;
    source = *at;
  }
  return source;
}

}  // namespace

double MatchTolerance(double bound) {
  return std::min(kSlack * bound, kWidestMatch);
}

SliceMatch MatchSlices(const std::vector<double>& reference,
                       const std::vector<double>& candidate, int64_t slices,
                       int64_t width, double bound) {
  SliceMatch out;
  out.slices = slices;
  if (width < 1 || slices < 2 || !(bound >= 0)) return out;
  const double tolerance = MatchTolerance(bound);
  if (BitsOfMatch(tolerance, width, 1) < kFewestBitsOfSlice) return out;
  const Slices ref(reference, slices, width);
  const Slices cand(candidate, slices, width);
  double mean_sq = 0;
  for (int64_t s = 0; s < slices; ++s) {
    if (std::isfinite(ref.square(s))) mean_sq += ref.square(s);
  }
  mean_sq /= static_cast<double>(slices);
  const double tolerance_sq = tolerance * tolerance;
  const auto limit_of = [&](int64_t s) {
    return tolerance_sq * std::max(ref.square(s), mean_sq);
  };

  std::vector<int64_t> order;
  for (int64_t s = 0; s < slices; ++s) {
    if (std::isfinite(ref.square(s))) order.push_back(s);
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return ref.signature(a) < ref.signature(b);
  });

  std::vector<int64_t> destinations;
  std::vector<int64_t> sources;
  for (int64_t s = 0; s < slices; ++s) {
    if (!std::isfinite(cand.square(s)) || !std::isfinite(ref.square(s))) {
      continue;
    }
    const double own = cand.Distance(s, ref, s, HUGE_VAL);
    if (own <= limit_of(s)) continue;
    // A slice within noise of zero equals every such slice: no match by itself,
    // but what was there may be elsewhere.
    if (cand.square(s) <= tolerance_sq * mean_sq) {
      destinations.push_back(s);
      sources.push_back(kZero);
      continue;
    }
    const int64_t source =
        FindSource(ref, order, cand, s, own, tolerance, mean_sq);
    out.wrong.push_back(s);
    out.source.push_back(source);
    if (source < 0) continue;
    ++out.matched;
    destinations.push_back(s);
    sources.push_back(source);
  }
  out.bits =
      static_cast<double>(out.matched) * BitsOfMatch(tolerance, width, slices);
  out.bijection = out.matched > 0 && SameMultiset(ref, destinations, sources,
                                                  tolerance_sq, mean_sq);
  return out;
}

std::vector<MovedRun> MovedRuns(const SliceMatch& match) {
  std::vector<MovedRun> runs;
  for (size_t i = 0; i < match.wrong.size(); ++i) {
    if (match.source[i] < 0) continue;
    if (!runs.empty() &&
        runs.back().to + runs.back().length == match.wrong[i] &&
        runs.back().from + runs.back().length == match.source[i]) {
      ++runs.back().length;
    } else {
      runs.push_back({match.wrong[i], match.source[i], 1});
    }
  }
  return runs;
}

}  // namespace ttrace
