// Sweep: many comparisons of one tensor, all of them in one pass over its
// bytes.
//
// Who compares says first what with what, of all legs, and takes what was found
// afterwards. Between these the sweep goes through the tensor, a range of its
// elements at a time: what the comparisons need of that range is read, each
// byte once for all of them (record_cache.h), then all of them go on with their
// tiles or cells in it. So a record is read once, whatever number of legs,
// copies and regions it is compared with.
//
// Inside a ForEach (src/base/for_each.h) all its threads read records of a
// range, and then compare tiles of it: one tensor may be as large as all
// others. Sums are exact and the rest are maxima and counts, so that neither
// threads nor ranges nor tiles can be seen in them; cells are added up by one
// thread after another, in their order.
//
// Bytes are verified while they pass, and nothing that was found is given out
// before: it is then that a damaged record is named, in the order in which one
// asks, which does not depend on threads.
//
// Memory: a range of all records, kRangeBytes for each of up to four threads.
//
// Thread safety: one thread, which may be one of a ForEach.

#ifndef TTRACE_SRC_COMPARE_SWEEP_H_
#define TTRACE_SRC_COMPARE_SWEEP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/compare/cells/cell_comparer.h"
#include "src/compare/error_sums.h"
#include "src/compare/instances.h"
#include "src/compare/record_cache.h"
#include "src/compare/tile.h"
#include "src/compare/tile_reader.h"
#include "ttrace/status.h"

namespace ttrace {

class Sweep {
 public:
  static constexpr int64_t kRangeBytes = 2 << 20;

  // `cache`: what was read for an earlier sweep, and is kept for the next.
  // Null: none.
  explicit Sweep(RecordCache* cache = nullptr);

  // Plans to compare what `candidate` shares with each of `reference`. Of one
  // instance on both sides the bytes are looked at once. `within`: TileCursor;
  // it and both sides have to stay until Run. `element_scale`,
  // `tile_elements`: CompareOptions.
  // REQUIRES: equal global shapes.
  size_t Compare(const std::vector<PlacedInstance>& reference,
                 const PlacedInstance& candidate, double element_scale,
                 int64_t tile_elements, const Layout* within = nullptr);
  // Whether there is nothing to be compared in this comparison.
  bool IsEmpty(size_t comparison) const;

  // Plans to compare two records of one layout, cell by cell.
  // REQUIRES: CellComparer::Takes them.
  size_t CompareCells(const Trace& trace, const Record& record,
                      const Trace& other_trace, const Record& other,
                      double element_scale);

  // Does what was planned. What it fails with is said where one asks.
  void Run();

  // What was found. Of what cannot be read, the first Error in the order of the
  // comparison's pieces, as Trace::Read gives it; all of them are verified.
  // REQUIRES: after Run, of what Compare or CompareCells gave
  Result<ErrorSums> SumsOf(size_t comparison);
  Result<CellTable> CellsOf(size_t comparison);

 private:
  // One instance of the reference and one of the candidate.
  struct Pair {
    const Instance* ref = nullptr;
    const Instance* cand = nullptr;
    TileCursor cursor;
    double element_scale = 0;
    size_t sums = 0;
    std::vector<CachedRecord*> ref_records;  // by term
    std::vector<CachedRecord*> cand_records;
    std::vector<Tile> tiles;  // of the range
    std::optional<Error> error;
  };
  struct Sums {
    size_t first_pair = 0;
    size_t end_pair = 0;
    std::mutex mutex;
    ErrorSums sums;
  };
  struct Cells {
    Record record;
    Record other;
    Layout layout;
    CellComparer comparer;
    CachedRecord* cached = nullptr;
    CachedRecord* other_cached = nullptr;
    int64_t total = 0;
    int64_t next = 0;  // element of the record, as `end`
    int64_t end = 0;   // of the range
    const Trace* trace = nullptr;
    const Trace* other_trace = nullptr;
    std::optional<Error> error;
  };
  // What one thread does at a time.
  struct Part {
    Cells* cells = nullptr;  // or
    Pair* pair = nullptr;
    size_t begin = 0;  // tiles
    size_t end = 0;
  };
  // What one thread needs.
  struct Readers {
    TileReader ref;
    TileReader cand;
    ErrorSums sums;
  };

  std::vector<CachedRecord*> CachedOf(const Instance& instance);
  CachedRecord* Cached(const Trace& trace, const Record& record);
  int64_t ElementsOfARange(int64_t bytes) const;
  std::optional<int64_t> NextElement() const;
  void Collect(int64_t end, int64_t most);
  void Load();
  void CompareRange();
  void Do(const Part& part, bool alone);
  Status CompareTiles(const Part& part, Readers* readers, ErrorSums* sums);
  Status AddCells(Cells* cells);
  std::unique_ptr<Readers> Borrow();
  void GiveBack(std::unique_ptr<Readers> readers);

  RecordCache own_cache_;
  RecordCache& cache_;
  std::vector<CachedRecord*> records_;  // of all comparisons, each once
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<std::unique_ptr<Sums>> sums_;
  std::vector<std::unique_ptr<Cells>> cells_;
  int64_t global_count_ = 0;
  bool on_threads_ = false;
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Readers>> idle_;
};

// A comparison that is planned by `Planned` (planned_comparison.h), in a sweep
// of its own.
template <typename Planned, typename... Args>
auto CompareAlone(RecordCache* cache, const Args&... args) {
  Sweep sweep(cache);
  Planned planned(args..., &sweep);
  sweep.Run();
  return planned.Finish();
}

// Compares what one pass is enough for.
Result<ErrorSums> CompareInstances(const std::vector<PlacedInstance>& reference,
                                   const PlacedInstance& candidate,
                                   double element_scale, int64_t tile_elements,
                                   RecordCache* cache = nullptr);

}  // namespace ttrace

#endif  // TTRACE_SRC_COMPARE_SWEEP_H_
