#include "src/judge/norm_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "src/experiment/module_names.h"

namespace ttrace {
namespace {

using Group = std::vector<const NormTerm*>;

class Search {
 public:
  Search(const ReportedNorm& norm, double bound) : norm_(norm), bound_(bound) {
    for (const NormTerm& term : norm.terms) {
      total_ += term.square;
      for (const auto& [dim, squares] : term.along)
        sizes_[dim] = squares.size();
    }
  }

  std::optional<NormExplanation> Find() {
    std::map<std::string, Group> names;
    for (const NormTerm& term : norm_.terms) {
      TryWeights(term.fqn, {&term});
      names[WithoutLayerNumbers(term.fqn)].push_back(&term);
    }
    for (const auto& [name, group] : names) TryWeights(name, group);
    for (const auto& [dim, size] : sizes_) TryDimension(dim, size);
    if (found_.size() != 1 || MayBeChance()) return std::nullopt;
    return found_.begin()->second;
  }

 private:
  void TryDimension(const std::string& dim, size_t size) {
    Group cut;
    Group whole;
    for (const NormTerm& term : norm_.terms) {
      (term.along.contains(dim) ? cut : whole).push_back(&term);
    }
    TryWeights("parameters that are cut along " + dim, cut);
    TryWeights("parameters that are not cut along " + dim, whole);
    for (size_t at = 0; at < size; ++at) {
      double change = 0;
      for (const NormTerm* term : cut) {
        const std::vector<double>& squares = term->along.at(dim);
        change += (at < squares.size() ? squares[at] : 0) - term->square;
      }
      Try(dim, cut, 1, static_cast<int>(at), change);
    }
  }

  void TryWeights(const std::string& whose, const Group& group) {
    std::set<double> weights = {0, 2};
    for (const auto& [dim, size] : sizes_) {
      weights.insert(static_cast<double>(size));
      weights.insert(1 / static_cast<double>(size));
    }
    double square = 0;
    for (const NormTerm* term : group) square += term->square;
    for (const double weight : weights) {
      Try(whose, group, weight, -1, (weight - 1) * square);
    }
  }

  // All parameters at once are a factor of the whole norm.
  void Try(const std::string& whose, const Group& group, double weight,
           int coordinate, double change) {
    const double expected = std::sqrt(std::fmax(0, total_ + change));
    if (group.empty()) return;
    const double moved = std::fabs(expected - std::sqrt(total_));
    const double off = std::fabs(norm_.reported - std::sqrt(total_));
    if (moved >= off / 2 && moved <= 2 * off) ++near_;
    if (!(std::fabs(norm_.reported - expected) <= bound_ * expected)) {
      return;
    }
    NormExplanation out;
    out.whose = whose;
    out.count = static_cast<int64_t>(group.size());
    out.weight = weight;
    out.coordinate = coordinate;
    // One group may have several names: the first is the shortest way to it.
    found_.try_emplace({std::set<const NormTerm*>(group.begin(), group.end()),
                        weight, coordinate},
                       std::move(out));
  }

  // What was tried moves the norm by many sizes. Those that move it by half to
  // twice of how far it is off lie in an interval of 1.5 times that; if they
  // lie there at random, one is within the bound by chance in so many cases:
  bool MayBeChance() const {
    constexpr double kRarely = 0.01;
    const double total = std::sqrt(total_);
    const double off = std::fabs(norm_.reported - total);
    return !(near_ * 2 * bound_ * total <= kRarely * 1.5 * off);
  }

  const ReportedNorm& norm_;
  double bound_;
  double total_ = 0;
  double near_ = 0;  // tried, of about the right size
  std::map<std::string, size_t> sizes_;
  std::map<std::tuple<std::set<const NormTerm*>, double, int>, NormExplanation>
      found_;
};

}  // namespace

std::optional<NormExplanation> ExplainNorm(const ReportedNorm& norm,
                                           double bound) {
  if (!std::isfinite(norm.reported)) return std::nullopt;
  return Search(norm, bound).Find();
}

}  // namespace ttrace
