#include "src/compare/sweep.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "src/base/for_each.h"
#include "src/compare/compare_views.h"

namespace ttrace {
namespace {

// Ranges end where the tiles of a tensor that is not cut end, and its cells:
// a range then needs no byte of the next.
constexpr int64_t kRangeStep = 1 << 16;
static_assert(kRangeStep % kCellTile == 0);
constexpr int64_t kAllElements = std::numeric_limits<int64_t>::max();
// More of them are left for the next range.
constexpr size_t kMostTiles = 4096;
// As many tiles as a thread is given at a time: much more work than handing
// them out.
constexpr size_t kTilesOfAPart = 64;
constexpr int64_t kElementsOfAPart = 1 << 16;
// Less is not worth the other threads.
constexpr int64_t kBytesForThreads = 1 << 20;
// More threads than this share a range of the memory of so many.
constexpr int64_t kThreadsOfARange = 4;

// The row-major index in the global tensor of a piece's element `at`.
int64_t LogicalIndex(const Layout& layout, int64_t at) {
  int64_t logical = 0;
  int64_t stride = 1;
  for (size_t d = layout.dims.size(); d-- > 0;) {
    const DimLayout& dim = layout.dims[d];
    int64_t held = 0;
    for (const Segment& segment : dim.segments) held += segment.size;
    int64_t local = at % held;
    at /= held;
    for (const Segment& segment : dim.segments) {
      if (local < segment.size) {
        logical += (segment.begin + local) * stride;
        break;
      }
      local -= segment.size;
    }
    stride *= dim.global_size;
  }
  return logical;
}

void WantBlock(const Instance& instance,
               const std::vector<CachedRecord*>& records,
               const LocalBlock& block) {
  for (size_t i = 0; i < records.size(); ++i) {
    const int64_t itemsize = Info(instance.terms[i].record.dtype()).itemsize;
    records[i]->Want(block.begin * itemsize,
                     (block.begin + block.span()) * itemsize,
                     block.count() * itemsize);
  }
}

}  // namespace

Sweep::Sweep(RecordCache* cache)
    : cache_(cache != nullptr ? *cache : own_cache_) {}

CachedRecord* Sweep::Cached(const Trace& trace, const Record& record) {
  CachedRecord* cached = cache_.Get(trace, record);
  records_.push_back(cached);
  return cached;
}

std::vector<CachedRecord*> Sweep::CachedOf(const Instance& instance) {
  std::vector<CachedRecord*> out;
  out.reserve(instance.terms.size());
  for (const Term& term : instance.terms) {
    out.push_back(Cached(*instance.trace, term.record));
  }
  return out;
}

size_t Sweep::Compare(const std::vector<PlacedInstance>& reference,
                      const PlacedInstance& candidate, double element_scale,
                      int64_t tile_elements, const Layout* within) {
  auto sums = std::make_unique<Sums>();
  sums->first_pair = pairs_.size();
  for (const PlacedInstance& one : reference) {
    TileCursor cursor(one.layout, candidate.layout,
                      std::max<int64_t>(1, tile_elements), within);
    if (cursor.done()) continue;
    auto pair = std::make_unique<Pair>(Pair{&one.instance,
                                            &candidate.instance,
                                            std::move(cursor),
                                            element_scale,
                                            sums_.size(),
                                            {},
                                            {},
                                            {},
                                            std::nullopt});
    pair->ref_records = CachedOf(one.instance);
    pair->cand_records = CachedOf(candidate.instance);
    pairs_.push_back(std::move(pair));
    global_count_ = candidate.layout.global_count();
  }
  sums->end_pair = pairs_.size();
  sums_.push_back(std::move(sums));
  return sums_.size() - 1;
}

bool Sweep::IsEmpty(size_t comparison) const {
  return sums_[comparison]->first_pair == sums_[comparison]->end_pair;
}

size_t Sweep::CompareCells(const Trace& trace, const Record& record,
                           const Trace& other_trace, const Record& other,
                           double element_scale) {
  const Layout layout = other.layout();
  cells_.push_back(std::make_unique<Cells>(Cells{
      record, other, layout, CellComparer(other.dtype(), layout, element_scale),
      Cached(trace, record), Cached(other_trace, other), layout.local_count(),
      0, 0, &trace, &other_trace, std::nullopt}));
  global_count_ = layout.global_count();
  return cells_.size() - 1;
}

int64_t Sweep::ElementsOfARange(int64_t bytes) const {
  const int64_t room =
      kRangeBytes * std::min<int64_t>(ThreadsForParts(), kThreadsOfARange);
  if (bytes <= room) return kAllElements;
  const auto share = static_cast<double>(room) / static_cast<double>(bytes);
  const auto elements =
      static_cast<int64_t>(static_cast<double>(global_count_) * share);
  return std::max(kRangeStep, elements / kRangeStep * kRangeStep);
}

// The first element of the global tensor that is still to be compared.
std::optional<int64_t> Sweep::NextElement() const {
  std::optional<int64_t> next;
  const auto lower = [&](int64_t element) {
    if (!next || element < *next) next = element;
  };
  for (const auto& pair : pairs_) {
    if (!pair->cursor.done()) lower(pair->cursor.tile().logical_begin);
  }
  for (const auto& cells : cells_) {
    if (cells->end < cells->total) {
      lower(LogicalIndex(cells->layout, cells->end));
    }
  }
  return next;
}

// What begins before `end`, and at most so many elements of each comparison.
void Sweep::Collect(int64_t end, int64_t most) {
  for (const auto& pair : pairs_) {
    pair->tiles.clear();
    TileCursor& cursor = pair->cursor;
    int64_t elements = 0;
    for (; !cursor.done() && cursor.tile().logical_begin < end &&
           elements < most && pair->tiles.size() < kMostTiles;
         cursor.Next()) {
      const Tile& tile = cursor.tile();
      WantBlock(*pair->ref, pair->ref_records, BlockInA(tile));
      if (pair->cand != pair->ref) {
        WantBlock(*pair->cand, pair->cand_records, BlockInB(tile));
      }
      elements += tile.count();
      pair->tiles.push_back(tile);
    }
  }
  for (const auto& cells : cells_) {
    cells->next = cells->end;
    while (cells->end < cells->total && cells->end - cells->next < most &&
           LogicalIndex(cells->layout, cells->end) < end) {
      cells->end = std::min(cells->total, cells->end + kCellTile);
    }
    if (cells->next == cells->end) continue;
    const int64_t itemsize = Info(cells->other.dtype()).itemsize;
    for (CachedRecord* cached : {cells->cached, cells->other_cached}) {
      cached->Want(cells->next * itemsize, cells->end * itemsize,
                   (cells->end - cells->next) * itemsize);
    }
  }
}

void Sweep::Load() {
  if (!on_threads_) {
    for (CachedRecord* record : records_) record->Load();
    return;
  }
  // What a record fails with it keeps.
  (void)ForEachPart(records_.size(), [&](size_t i) -> Status {
    records_[i]->Load();
    return Done{};
  });
}

void Sweep::Run() {
  std::sort(records_.begin(), records_.end());
  records_.erase(std::unique(records_.begin(), records_.end()), records_.end());
  int64_t bytes = 0;
  for (const CachedRecord* record : records_) bytes += record->bytes();
  on_threads_ = bytes >= kBytesForThreads && ThreadsForParts() > 1;
  const int64_t step = ElementsOfARange(bytes);
  while (const auto next = NextElement()) {
    Collect(
        *next < kAllElements - step ? (*next / step + 1) * step : kAllElements,
        step);
    Load();
    CompareRange();
  }
  for (const auto& pair : pairs_) {
    pair->tiles.clear();
    pair->tiles.shrink_to_fit();
  }
  idle_.clear();
  cache_.Trim();
}

void Sweep::CompareRange() {
  std::vector<Part> parts;
  // One thread's, so that they had better begin first.
  for (const auto& cells : cells_) {
    if (cells->next == cells->end) continue;
    parts.push_back({cells.get(), nullptr, 0, 0});
  }
  for (const auto& pair : pairs_) {
    int64_t in_part = kElementsOfAPart;
    for (size_t i = 0; i < pair->tiles.size(); ++i) {
      const int64_t count = pair->tiles[i].count();
      if (in_part >= kElementsOfAPart ||
          i - parts.back().begin == kTilesOfAPart) {
        parts.push_back({nullptr, pair.get(), i, i});
        in_part = 0;
      }
      in_part += count;
      parts.back().end = i + 1;
    }
  }
  if (!on_threads_) {
    for (const Part& part : parts) Do(part, true);
    return;
  }
  (void)ForEachPart(parts.size(), [&](size_t i) -> Status {
    Do(parts[i], false);
    return Done{};
  });
}

void Sweep::Do(const Part& part, bool alone) {
  if (part.cells != nullptr) {
    if (part.cells->error) return;
    const Status added = AddCells(part.cells);
    if (!added.ok()) part.cells->error = added.error();
    return;
  }
  Sums& total = *sums_[part.pair->sums];
  std::unique_ptr<Readers> readers = Borrow();
  ErrorSums* sums = alone ? &total.sums : &readers->sums;
  const Status status = CompareTiles(part, readers.get(), sums);
  if (!alone || !status.ok()) {
    const std::lock_guard<std::mutex> lock(total.mutex);
    if (!status.ok() && !part.pair->error) part.pair->error = status.error();
    if (!alone) total.sums.Merge(readers->sums);
  }
  readers->sums = {};
  GiveBack(std::move(readers));
}

Status Sweep::CompareTiles(const Part& part, Readers* readers,
                           ErrorSums* sums) {
  const Pair& pair = *part.pair;
  for (size_t i = part.begin; i < part.end; ++i) {
    const Tile& tile = pair.tiles[i];
    TTRACE_ASSIGN_OR_RETURN(
        const BlockView ref,
        readers->ref.Read(*pair.ref, BlockInA(tile), pair.ref_records));
    BlockView cand = ref;
    if (pair.cand != pair.ref) {
      TTRACE_ASSIGN_OR_RETURN(
          cand,
          readers->cand.Read(*pair.cand, BlockInB(tile), pair.cand_records));
    }
    CompareViews(tile, ref, cand, pair.element_scale, sums);
  }
  return Done{};
}

Status Sweep::AddCells(Cells* cells) {
  const int64_t itemsize = Info(cells->other.dtype()).itemsize;
  const int64_t begin = cells->next * itemsize;
  const int64_t end = cells->end * itemsize;
  std::vector<std::byte> own;
  std::vector<std::byte> others;
  const auto bytes_of =
      [&](const Trace& trace, const Record& record, const CachedRecord& cached,
          std::vector<std::byte>* copy) -> Result<const std::byte*> {
    if (const std::byte* found = cached.Find(begin, end)) return found;
    copy->resize(static_cast<size_t>(end - begin));
    TTRACE_RETURN_IF_ERROR(trace.Read(record, begin, *copy));
    return static_cast<const std::byte*>(copy->data());
  };
  TTRACE_ASSIGN_OR_RETURN(
      const std::byte* ref,
      bytes_of(*cells->trace, cells->record, *cells->cached, &own));
  TTRACE_ASSIGN_OR_RETURN(const std::byte* cand,
                          bytes_of(*cells->other_trace, cells->other,
                                   *cells->other_cached, &others));
  cells->comparer.Add(ref, cand, cells->end - cells->next);
  return Done{};
}

std::unique_ptr<Sweep::Readers> Sweep::Borrow() {
  const std::lock_guard<std::mutex> lock(idle_mutex_);
  if (idle_.empty()) return std::make_unique<Readers>();
  std::unique_ptr<Readers> readers = std::move(idle_.back());
  idle_.pop_back();
  return readers;
}

void Sweep::GiveBack(std::unique_ptr<Readers> readers) {
  const std::lock_guard<std::mutex> lock(idle_mutex_);
  idle_.push_back(std::move(readers));
}

Result<ErrorSums> Sweep::SumsOf(size_t comparison) {
  const Sums& sums = *sums_[comparison];
  for (size_t i = sums.first_pair; i < sums.end_pair; ++i) {
    Status first = Done{};
    for (const auto* records :
         {&pairs_[i]->ref_records, &pairs_[i]->cand_records}) {
      for (CachedRecord* record : *records) {
        const Status status = record->Confirm();
        if (first.ok()) first = status;
      }
    }
    TTRACE_RETURN_IF_ERROR(first);
    if (pairs_[i]->error) return *pairs_[i]->error;
  }
  return sums.sums;
}

Result<CellTable> Sweep::CellsOf(size_t comparison) {
  Cells& cells = *cells_[comparison];
  const Status own = cells.cached->Confirm();
  const Status others = cells.other_cached->Confirm();
  TTRACE_RETURN_IF_ERROR(own);
  TTRACE_RETURN_IF_ERROR(others);
  if (cells.error) return *cells.error;
  return cells.comparer.Take();
}

Result<ErrorSums> CompareInstances(const std::vector<PlacedInstance>& reference,
                                   const PlacedInstance& candidate,
                                   double element_scale, int64_t tile_elements,
                                   RecordCache* cache) {
  Sweep sweep(cache);
  const size_t sums =
      sweep.Compare(reference, candidate, element_scale, tile_elements);
  sweep.Run();
  return sweep.SumsOf(sums);
}

}  // namespace ttrace
