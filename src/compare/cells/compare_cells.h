// A rerun against the run that it repeats, by cells: pieces of one rank, one
// micro-batch and one layout, which the other run's regions need not follow.
//
// Thread safety: pure functions of const inputs; of what is planned, the
// sweep's.

#ifndef TTRACE_SRC_COMPARE_CELLS_COMPARE_CELLS_H_
#define TTRACE_SRC_COMPARE_CELLS_COMPARE_CELLS_H_

#include <optional>
#include <vector>

#include "src/align/catalog.h"
#include "src/compare/cells/cell_sums.h"
#include "src/compare/compare_tensor.h"
#include "src/compare/error_stats.h"
#include "src/compare/instances.h"
#include "src/compare/planned_comparison.h"
#include "src/compare/sweep.h"
#include "ttrace/layout.h"
#include "ttrace/status.h"

namespace ttrace {

// c of ErrorStats::max_elem for a tensor of this sum of squares: its rms, to 8
// bits, so that whoever adds the squares up, in whatever order, finds the same.
// 0 if there is none.
double ElementScaleOf(double sum_of_squares, int64_t count);

// The piece of `run` in the place of `rerun`: of the same rank, micro-batch,
// dtype and layout. Null: there is none.
std::optional<Record> CounterpartOf(const TensorPieces& run,
                                    const Record& rerun);

// As CompareWithin, for `rerun` that holds what `run` holds, piece by piece. A
// table that was made in place of a value (Record::measured) is read as it is,
// one of stored values is made here.
//
// A region that cuts a cell counts with its share of the cell's elements, and
// with the cell's largest error; a block counts whole, wherever regions cut it.
// Nothing if the two are to be compared otherwise: pieces that have no
// counterpart, that are terms of sums, too small or of a dtype without cells.
// Fails with kIncomparable if `rerun` was measured against something else.
// REQUIRES: the regions have the tensors' global shape.
Result<std::optional<std::vector<ErrorStats>>> CompareCellsWithin(
    const TensorPieces& run, const TensorPieces& rerun,
    const std::vector<Layout>& regions, double element_scale);

// The same, compared otherwise where it has to be: element by element.
Result<std::vector<ErrorStats>> CompareRerunWithin(
    const TensorPieces& run, const TensorPieces& rerun,
    const std::vector<Layout>& regions, double element_scale);

// These in two halves (planned_comparison.h). All they are given has to stay
// until Finish.
class PlannedCells {
 public:
  PlannedCells(const TensorPieces& run, const TensorPieces& rerun,
               const std::vector<Layout>& regions, double element_scale,
               Sweep* sweep);

  // Whether the two are to be compared by cells; else Finish gives nothing.
  bool applies() const { return !status_.ok() || !places_.empty(); }

  Result<std::optional<std::vector<ErrorStats>>> Finish();

 private:
  // A copy of what a region of the rerun holds, and the same of the run.
  struct Copy {
    Record run;
    Record rerun;
    std::optional<size_t> comparison;  // of the sweep; else it was measured
  };
  struct Place {
    const Layout* layout = nullptr;
    std::vector<Copy> copies;
  };

  Status Plan(Sweep* sweep);
  bool PairUp();

  const TensorPieces& run_;
  const TensorPieces& rerun_;
  const std::vector<Layout>& regions_;
  const double element_scale_;
  Sweep& sweep_;
  std::vector<InstanceGroup> groups_;
  std::vector<Place> places_;
  Status status_ = Done{};
};

class PlannedRerun {
 public:
  PlannedRerun(const TensorPieces& run, const TensorPieces& rerun,
               const std::vector<Layout>& regions, double element_scale,
               Sweep* sweep);

  Result<std::vector<ErrorStats>> Finish();

 private:
  PlannedCells cells_;
  std::optional<PlannedWithin> within_;
};

// c of ErrorStats::max_elem for `run`, of whose values `rerun` was measured:
// whoever did it had all of them. Nothing if no piece says so.
// Fails with kCorrupt if a piece holds no table of its cells.
Result<std::optional<double>> ElementScaleMeasured(const TensorPieces& run,
                                                   const TensorPieces& rerun);

// What the values of `record` differ by, all cells together.
// Fails with kCorrupt if it holds no table of its piece's cells.
// REQUIRES: record.measured
Result<ErrorStats> DifferenceOf(const Trace& trace, const Record& record);

// All cells of a piece as one, without errors of single elements: of `rerun`,
// measured or not, against the piece of `run` in its place, which another trace
// may hold. Nothing if they are not compared by cells.
Result<std::optional<CellTable>> CompareAsOneCell(const Trace& of_run,
                                                  const Record& run,
                                                  const Trace& of_rerun,
                                                  const Record& rerun);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_CELLS_COMPARE_CELLS_H_
