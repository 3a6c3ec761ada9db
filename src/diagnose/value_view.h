// Both sides of a culprit's tensor: what rules about values look at. What more
// than one of them reads is read once, when the first asks for it.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_DIAGNOSE_VALUE_VIEW_H_
#define TTRACE_SRC_DIAGNOSE_VALUE_VIEW_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/evidence.h"
#include "src/diagnose/row_pairs.h"
#include "src/diagnose/scaled_parts.h"
#include "src/diagnose/suspect.h"

namespace ttrace {

class ValueView {
 public:
  // There is a leg to look at, and both sides have the tensor.
  static bool IsPossible(const Evidence& evidence) {
    return evidence.leg != nullptr && evidence.reference != nullptr &&
           evidence.candidate != nullptr;
  }

  // REQUIRES: IsPossible(evidence), which has to outlive it.
  explicit ValueView(const Evidence& evidence);
  ValueView(const ValueView&) = delete;
  ValueView& operator=(const ValueView&) = delete;

  const Evidence& evidence() const { return evidence_; }
  const TensorId& id() const { return evidence_.judgement->id; }
  const LegJudgement& leg() const { return *evidence_.leg; }
  double bound() const { return evidence_.leg->bound; }
  const TensorPieces& reference() const { return *evidence_.reference; }
  const TensorPieces& candidate() const { return *evidence_.candidate; }
  // Both sides' values, or samples of them, can be read only in these places;
  // null: not at all. Up to 2^18 elements, whatever the copies.
  const SampledPair* sample() const;
  // The elements of sample() that are out of bounds.
  const std::vector<size_t>& wrong() const;
  // Of copies the worst; null: as sample(), or nothing is wrong in it.
  const Suspect* suspect() const;
  // Of the suspect; null: it has no rows that can be looked at.
  const RowPairs* rows() const;
  // Null: its parts are not a constant times the reference's.
  const ScaledParts* factors() const;

 private:
  template <typename T>
  class Once {
   public:
    template <typename Make>
    const T* Get(const Make& make) {
      if (!made_) value_ = make();
      made_ = true;
      return value_ ? &*value_ : nullptr;
    }

   private:
    bool made_ = false;
    std::optional<T> value_;
  };

  const Evidence& evidence_;
  mutable Once<SampledPair> sample_;
  mutable Once<std::vector<size_t>> wrong_;
  mutable Once<Suspect> suspect_;
  mutable Once<RowPairs> rows_;
  mutable Once<ScaledParts> factors_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_VALUE_VIEW_H_
