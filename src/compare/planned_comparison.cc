#include "src/compare/planned_comparison.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "src/compare/compare_as_whole.h"
#include "src/compare/compared_piece.h"
#include "src/compare/equal_copies.h"
#include "src/compare/layout_overlap.h"
#include "src/compare/overlap_index.h"
#include "src/compare/routed_tokens.h"
#include "src/compare/same_bytes.h"
#include "src/compare/summaries/compare_summaries.h"
#include "src/compare/worst_copy.h"

namespace ttrace {
namespace {

Error DifferentShapes(const TensorPieces& reference, const Shape& ref,
                      const Shape& cand) {
  const auto text = [](const Shape& shape) {
    std::string s = "[";
    for (size_t d = 0; d < shape.size(); ++d) {
      s += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
    }
    return s + "]";
  };
  return Error(ErrorCode::kIncomparable,
               DescribeTensor(reference) + ": global shape is " + text(ref) +
                   " in the reference and " + text(cand) + " in the candidate");
}

// How the reference is grouped: nothing is said about it.
CompareOptions AsRecorded(const CompareOptions& options) {
  CompareOptions out;
  out.grouped = options.grouped;
  return out;
}

PlannedSums PlanSums(const Result<FoundSums>& found,
                     const std::vector<PlacedInstance>& reference,
                     const PlacedInstance& candidate,
                     const CompareOptions& options, const Layout* within,
                     Sweep* sweep) {
  PlannedSums out;
  if (!found.ok()) {
    out.error = found.error();
  } else if (found->sums) {
    out.found = std::make_unique<ErrorSums>(*found->sums);
  } else if (!found->can_compare) {
    out.unknown = true;
  } else {
    out.comparison = sweep->Compare(reference, candidate, options.element_scale,
                                    options.tile_elements, within);
  }
  return out;
}

// REQUIRES: !planned.unknown
Result<ErrorSums> Take(const PlannedSums& planned, Sweep* sweep) {
  if (planned.error) return *planned.error;
  if (planned.found != nullptr) return *planned.found;
  return sweep->SumsOf(planned.comparison);
}

// To what was measured of the copy before it.
void AddCopy(const Instance& instance, InstanceStats* like) {
  ++like->copies;
  like->ranks.insert(like->ranks.end(), instance.ranks.begin(),
                     instance.ranks.end());
}

// Of several copies, what the worst has shown.
class WorstSums {
 public:
  const ErrorStats& Add(const ErrorSums& sums) {
    last_ = sums.Stats();
    if (!worst_stats_ || Worse(last_, *worst_stats_)) {
      worst_ = sums;
      worst_stats_ = last_;
    }
    return last_;
  }
  ErrorSums& sums() { return worst_; }

 private:
  ErrorSums worst_;
  std::optional<ErrorStats> worst_stats_;
  ErrorStats last_;
};

}  // namespace

PlannedComparison::PlannedComparison(const TensorPieces& reference,
                                     const TensorPieces& candidate,
                                     const CompareOptions& options,
                                     Sweep* sweep)
    : reference_(reference),
      candidate_(candidate),
      sweep_(*sweep),
      join_copies_(options.join_copies) {
  status_ = Plan(options);
}

Status PlannedComparison::Plan(const CompareOptions& options) {
  auto refs = GroupShared(reference_, AsRecorded(options));
  if (!refs.ok()) return refs.error().WithContext("reference");
  auto cands = GroupShared(candidate_, options);
  if (!cands.ok()) return cands.error().WithContext("candidate");
  refs_.emplace(*std::move(refs));
  cands_ = *std::move(cands);
  const Layout& layout = refs_->groups().front().layout;
  const Shape shape = layout.global_shape();
  const Shape cand_shape = cands_->front().layout.global_shape();
  if (shape != cand_shape) {
    return DifferentShapes(reference_, shape, cand_shape);
  }
  const LayoutOverlap coverage =
      MeasureOverlap(LayoutsOf(refs_->groups()), LayoutsOf(*cands_));
  TensorComparison& out = comparison_;
  TTRACE_ASSIGN_OR_RETURN(out.routed,
                          JoinTokens(reference_, candidate_, options));
  if (out.routed) {
    const int64_t width = ElementsOfAToken(shape);
    out.candidate_gap =
        out.routed->candidate * width - coverage.both - coverage.only_b;
    out.reference_gap =
        out.routed->reference * width - coverage.both - coverage.only_a;
  } else {
    out.candidate_gap = coverage.only_a;
    out.reference_gap = coverage.only_b;
    out.common_gap = layout.global_count() - coverage.both - coverage.only_a -
                     coverage.only_b;
  }
  out.reference_overlap = coverage.twice_a;
  out.candidate_overlap = coverage.twice_b;
  whole_ = HasSummaries(reference_) || HasSummaries(candidate_) ||
           WasComparedInPlace(reference_);
  if (!whole_) TTRACE_RETURN_IF_ERROR(PlanInstances(options));
  if (!whole_) return Done{};
  regions_ = {WholeLayout(shape)};
  return Done{};
}

std::optional<PlannedComparison::Copy> PlannedComparison::CopyOf(
    size_t of, const Planned& planned) const {
  const Planned& last = planned_[of];
  // Of what has nothing opposite, nothing was read.
  if (last.empty || last.group != planned.group ||
      last.opposite.size() != planned.opposite.size() ||
      !SameBytes(*last.instance, *planned.instance)) {
    return std::nullopt;
  }
  Copy copy;
  copy.of = of;
  for (size_t i = 0; i < planned.opposite.size(); ++i) {
    if (last.opposite[i] == planned.opposite[i]) continue;
    if (!SameBytes(*last.opposite[i], *planned.opposite[i])) {
      return std::nullopt;
    }
    copy.same.push_back(planned.opposite[i]);
  }
  copy.same.push_back(planned.instance);
  return copy;
}

Status PlannedComparison::PlanInstances(const CompareOptions& options) {
  std::optional<size_t> last;  // that is no copy: the next mostly is one of it
  for (size_t g = 0; g < cands_->size(); ++g) {
    const InstanceGroup& group = (*cands_)[g];
    regions_.push_back(group.layout);
    const std::vector<size_t> near = refs_->Near(group.layout);
    for (const Instance& instance : group.instances) {
      const auto opposite = refs_->Opposite(instance, near);
      Planned planned;
      planned.instance = &instance;
      planned.group = g;
      for (const PlacedInstance& one : opposite) {
        planned.opposite.push_back(&one.instance);
      }
      if (last) planned.copy = CopyOf(*last, planned);
      if (!planned.copy) {
        const PlacedInstance placed = {instance, group.layout};
        planned.sums =
            PlanSums(FindCompared(opposite, placed, options.element_scale),
                     opposite, placed, options, nullptr, &sweep_);
        const PlannedSums& sums = planned.sums;
        planned.empty =
            sums.error || sums.unknown ||
            (sums.found != nullptr ? sums.found->count == 0
                                   : sweep_.IsEmpty(sums.comparison));
        last = planned_.size();
        if (sums.unknown) whole_ = true;
      }
      planned_.push_back(std::move(planned));
      if (whole_) return Done{};
    }
  }
  return Done{};
}

// What the candidate's instances differ by from the reference. False: one was
// compared in place, but not with this.
Result<bool> PlannedComparison::Merge(TensorComparison* out) {
  std::vector<ErrorStats> stats(planned_.size());
  ErrorSums total;
  size_t i = 0;
  for (size_t g = 0; g < cands_->size(); ++g) {
    WorstSums worst;
    double max_elem = 0;
    double max_block_sq_err = 0;
    for (; i < planned_.size() && planned_[i].group == g; ++i) {
      const Planned& planned = planned_[i];
      if (planned.sums.unknown) return false;
      if (planned.copy) {
        for (const Instance* same : planned.copy->same) {
          const Term& term = same->terms.front();
          TTRACE_RETURN_IF_ERROR(
              NamedPiece(same->trace->Verify(term.record), term.record));
        }
        stats[i] = stats[planned.copy->of];
      } else {
        TTRACE_ASSIGN_OR_RETURN(const ErrorSums sums,
                                Take(planned.sums, &sweep_));
        stats[i] = worst.Add(sums);
        max_elem = std::max(max_elem, stats[i].max_elem);
        max_block_sq_err =
            std::max(max_block_sq_err, stats[i].max_block_sq_err);
      }
      const Instance& instance = *planned.instance;
      if (join_copies_ && planned.copy &&
          out->instances.back().micro_batch == instance.micro_batch) {
        AddCopy(instance, &out->instances.back());
        continue;
      }
      out->instances.push_back({instance.ranks.ToVector(), instance.micro_batch,
                                stats[i], static_cast<int>(g)});
    }
    // The replica of the worst norm need not have the worst element.
    worst.sums().max_elem = max_elem;
    worst.sums().max_block_sq_err = max_block_sq_err;
    total.Merge(worst.sums());
  }
  out->total = total.Stats();
  if (join_copies_) {
    JoinEqualCopies(out);
    return true;
  }
  std::stable_sort(out->instances.begin(), out->instances.end(),
                   [](const InstanceStats& a, const InstanceStats& b) {
                     return std::tie(a.micro_batch, a.ranks) <
                            std::tie(b.micro_batch, b.ranks);
                   });
  return true;
}

Result<TensorComparison> PlannedComparison::Finish() {
  TTRACE_RETURN_IF_ERROR(status_);
  TensorComparison out = comparison_;
  if (!planned_.empty()) {
    TTRACE_ASSIGN_OR_RETURN(const bool done, Merge(&out));
    if (done) {
      out.regions = regions_;
      return out;
    }
    out.instances.clear();
  }
  if (!whole_) {
    out.regions = regions_;
    return out;
  }
  if (out.routed || !out.complete()) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(reference_) +
                     ": only a summary was kept of it, and the two sides do "
                     "not hold the same elements once each");
  }
  TTRACE_RETURN_IF_ERROR(
      CompareAsWhole(reference_, refs_->groups(), candidate_, *cands_, &out));
  return out;
}

PlannedWithin::PlannedWithin(const TensorPieces& reference,
                             const TensorPieces& other,
                             const std::vector<Layout>& regions,
                             const CompareOptions& options, Sweep* sweep)
    : reference_(reference), other_(other), regions_(regions), sweep_(*sweep) {
  status_ = Plan(options);
}

Status PlannedWithin::Plan(const CompareOptions& options) {
  TTRACE_ASSIGN_OR_RETURN(SharedGroups grouped,
                          GroupShared(reference_, AsRecorded(options)));
  refs_.emplace(std::move(grouped));
  TTRACE_ASSIGN_OR_RETURN(others_, GroupShared(other_, options));
  const Shape shape = refs_->groups().front().layout.global_shape();
  const Shape other_shape = others_->front().layout.global_shape();
  if (shape != other_shape) {
    return DifferentShapes(reference_, shape, other_shape);
  }
  whole_ = HasSummaries(reference_) || HasSummaries(other_) ||
           WasComparedInPlace(reference_);
  if (whole_) return Done{};
  const OverlapIndex index(LayoutsOf(*others_));
  for (size_t r = 0; r < regions_.size(); ++r) {
    const Layout& region = regions_[r];
    const std::vector<size_t> near = refs_->Near(region);
    for (const size_t at : index.Near(region)) {
      const InstanceGroup& group = (*others_)[at];
      Place& place = places_.emplace_back();
      place.region = r;
      for (const Instance& instance : group.instances) {
        const auto opposite = refs_->Opposite(instance, near);
        const PlacedInstance placed = {instance, group.layout};
        place.copies.push_back(PlanSums(
            FindComparedWithin(opposite, placed, region, options.element_scale),
            opposite, placed, options, &region, &sweep_));
        // As a whole then, if at all.
        if (place.copies.back().unknown) return Done{};
      }
    }
  }
  return Done{};
}

// For each of the regions apart. Nothing: one instance was compared in place,
// but not with this.
Result<std::optional<std::vector<ErrorStats>>> PlannedWithin::Merge() {
  using Found = std::optional<std::vector<ErrorStats>>;
  std::vector<ErrorStats> out(regions_.size());
  size_t i = 0;
  for (size_t r = 0; r < regions_.size(); ++r) {
    ErrorSums total;
    for (; i < places_.size() && places_[i].region == r; ++i) {
      WorstSums worst;
      for (const PlannedSums& copy : places_[i].copies) {
        if (copy.unknown) return Found();
        TTRACE_ASSIGN_OR_RETURN(const ErrorSums sums, Take(copy, &sweep_));
        worst.Add(sums);
      }
      total.Merge(worst.sums());
    }
    out[r] = total.Stats();
  }
  return Found(std::move(out));
}

Result<std::vector<ErrorStats>> PlannedWithin::Finish() {
  TTRACE_RETURN_IF_ERROR(status_);
  if (!whole_) {
    TTRACE_ASSIGN_OR_RETURN(auto found, Merge());
    if (found) return *std::move(found);
  }
  const Shape shape = refs_->groups().front().layout.global_shape();
  if (regions_.size() != 1 || regions_.front() != WholeLayout(shape)) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(reference_) +
                     ": only a summary was kept of it, of no part apart");
  }
  TensorComparison whole;
  TTRACE_RETURN_IF_ERROR(
      CompareAsWhole(reference_, refs_->groups(), other_, *others_, &whole));
  return std::vector<ErrorStats>{whole.total};
}

}  // namespace ttrace
