// Comparisons of tensors in two halves: what is to be compared is said before a
// sweep (sweep.h), and what was found is put together after it. So all legs of
// a tensor can be compared in one pass over their bytes.
//
// What has no values to be swept (summaries, pieces that were compared in
// place) is read by itself, when one asks.
//
// Thread safety: one thread, that of the sweep.

#ifndef TTRACE_SRC_COMPARE_PLANNED_COMPARISON_H_
#define TTRACE_SRC_COMPARE_PLANNED_COMPARISON_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "src/compare/compare_tensor.h"
#include "src/compare/error_sums.h"
#include "src/compare/grouped_once.h"
#include "src/compare/instances.h"
#include "src/compare/reference_instances.h"
#include "src/compare/sweep.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// One instance against what stands opposite: compared by the sweep, or known.
struct PlannedSums {
  std::optional<Error> error;
  std::unique_ptr<ErrorSums> found;
  bool unknown = false;  // it was compared with something else, and is not here
  size_t comparison = 0;
};

// CompareTensor. The tensors, and the sweep, have to stay until Finish.
class PlannedComparison {
 public:
  PlannedComparison(const TensorPieces& reference,
                    const TensorPieces& candidate,
                    const CompareOptions& options, Sweep* sweep);

  PlannedComparison(const PlannedComparison&) = delete;
  PlannedComparison& operator=(const PlannedComparison&) = delete;

  // TensorComparison::regions, if Finish gives any.
  const std::vector<Layout>& regions() const { return regions_; }
  // What Finish will fail with, if it is known.
  const Status& status() const { return status_; }

  // After the sweep, once.
  Result<TensorComparison> Finish();

 private:
  // An instance whose bytes are those of one before, opposite to the same ones:
  // these are to be what their checksums say.
  struct Copy {
    size_t of = 0;
    std::vector<const Instance*> same;
  };
  struct Planned {
    const Instance* instance = nullptr;
    size_t group = 0;
    std::vector<const Instance*> opposite;
    PlannedSums sums;
    bool empty = false;
    std::optional<Copy> copy;
  };

  Status Plan(const CompareOptions& options);
  Status PlanInstances(const CompareOptions& options);
  std::optional<Copy> CopyOf(size_t of, const Planned& planned) const;
  Result<bool> Merge(TensorComparison* out);

  const TensorPieces& reference_;
  const TensorPieces& candidate_;
  Sweep& sweep_;
  std::optional<ReferenceInstances> refs_;
  SharedGroups cands_;
  bool join_copies_;
  TensorComparison comparison_;  // all but what bytes tell
  std::vector<Layout> regions_;
  std::vector<Planned> planned_;  // in the order of cands_
  bool whole_ = false;            // by summaries
  Status status_ = Done{};
};

// CompareWithin. `regions` have to stay as well.
class PlannedWithin {
 public:
  PlannedWithin(const TensorPieces& reference, const TensorPieces& other,
                const std::vector<Layout>& regions,
                const CompareOptions& options, Sweep* sweep);

  PlannedWithin(const PlannedWithin&) = delete;
  PlannedWithin& operator=(const PlannedWithin&) = delete;

  Result<std::vector<ErrorStats>> Finish();

 private:
  // The copies of one place in a region.
  struct Place {
    size_t region = 0;
    std::vector<PlannedSums> copies;
  };

  Status Plan(const CompareOptions& options);
  Result<std::optional<std::vector<ErrorStats>>> Merge();

  const TensorPieces& reference_;
  const TensorPieces& other_;
  const std::vector<Layout>& regions_;
  Sweep& sweep_;
  std::optional<ReferenceInstances> refs_;
  SharedGroups others_;
  std::vector<Place> places_;
  bool whole_ = false;
  Status status_ = Done{};
};

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_PLANNED_COMPARISON_H_
