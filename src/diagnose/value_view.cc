#include "src/diagnose/value_view.h"

#include <utility>

#include "src/base/check.h"
#include "src/diagnose/constants.h"

namespace ttrace {

ValueView::ValueView(const Evidence& evidence) : evidence_(evidence) {
  TTRACE_CHECK(IsPossible(evidence), "both sides are there");
}

const SampledPair* ValueView::sample() const {
  return sample_.Get([&]() -> std::optional<SampledPair> {
    auto pair = SamplePair(reference(), candidate(), kSampledElements,
                           evidence_.compare);
    if (!pair.ok()) return std::nullopt;
    return *std::move(pair);
  });
}

const std::vector<size_t>& ValueView::wrong() const {
  return *wrong_.Get([&]() -> std::optional<std::vector<size_t>> {
    const SampledPair* pair = sample();
    if (pair == nullptr) return std::vector<size_t>();
    return WrongElements(*pair, bound());
  });
}

const Suspect* ValueView::suspect() const {
  return suspect_.Get([&] { return FindSuspect(*this); });
}

const RowPairs* ValueView::rows() const {
  return rows_.Get([&] { return RowPairs::Of(*this); });
}

const ScaledParts* ValueView::factors() const {
  return factors_.Get([&] { return FindScaledParts(*this); });
}

}  // namespace ttrace
