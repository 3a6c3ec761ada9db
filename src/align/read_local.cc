#include "src/align/read_local.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "src/numeric/narrow.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

constexpr std::string_view kMicroBatchDim = "mb";

std::vector<int64_t> RowMajor(const Layout& layout) {
  std::vector<int64_t> strides(layout.dims.size(), 1);
  for (size_t d = strides.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * layout.dims[d].local_size();
  }
  return strides;
}

// Calls visit(offset in from, offset in to, length) for each run of elements
// that are consecutive in both local tensors.
template <typename Visit>
void ForEachSharedRun(const Layout& from, const Layout& to, Visit visit) {
  const size_t rank = from.dims.size();
  if (rank == 0) return visit(int64_t{0}, int64_t{0}, int64_t{1});
  const std::vector<int64_t> from_strides = RowMajor(from);
  const std::vector<int64_t> to_strides = RowMajor(to);
  // Offsets of each shared index of the outer dimensions.
  std::vector<std::vector<std::pair<int64_t, int64_t>>> outer(rank - 1);
  for (size_t d = 0; d + 1 < rank; ++d) {
    for (const SharedRun& run : Intersect(from.dims[d], to.dims[d])) {
      for (int64_t i = 0; i < run.size; ++i) {
        outer[d].emplace_back((run.a_local + i) * from_strides[d],
                              (run.b_local + i) * to_strides[d]);
      }
    }
    if (outer[d].empty()) return;
  }
  const auto inner = Intersect(from.dims.back(), to.dims.back());
  std::vector<size_t> index(outer.size(), 0);
  while (true) {
    int64_t a = 0;
    int64_t b = 0;
    for (size_t d = 0; d < outer.size(); ++d) {
      a += outer[d][index[d]].first;
      b += outer[d][index[d]].second;
    }
    for (const SharedRun& run : inner) {
      visit(a + run.a_local, b + run.b_local, run.size);
    }
    size_t d = outer.size();
    while (d > 0 && ++index[d - 1] == outer[d - 1].size()) index[--d] = 0;
    if (d == 0) return;
  }
}

bool Overlap(const Layout& a, const Layout& b) {
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (Intersect(a.dims[d], b.dims[d]).empty()) return false;
  }
  return true;
}

// Pieces whose sum are values: one piece, or one per term.
struct Instance {
  RecordList terms;
};

struct Reduction {
  int grid = 0;                // of the mesh dimensions
  std::set<size_t> mesh_dims;  // sizes above one only
  bool micro_batches = false;
  int64_t terms = 1;  // 0: unknown, as many as there are
};

Reduction FindReduction(const Trace& trace, const Record& record) {
  const DeviceMesh& mesh = trace.mesh(record.grid());
  Reduction reduction;
  reduction.grid = record.grid();
  for (const auto& [name, placement] : record.placements()) {
    if (!std::holds_alternative<Partial>(placement)) continue;
    if (name == kMicroBatchDim) {
      reduction.micro_batches = true;
      continue;
    }
    const int m = mesh.Find(name);
    if (m < 0) continue;
    const MeshDim& dim = mesh.dims[static_cast<size_t>(m)];
    if (dim.size == 1) continue;
    reduction.mesh_dims.insert(static_cast<size_t>(m));
    reduction.terms *= dim.size;
  }
  if (reduction.micro_batches) reduction.terms = 0;
  return reduction;
}

// Under RaggedShard a rank has several pieces, each with its own sum.
std::vector<int64_t> KeyOf(const std::optional<Box>& box) {
  std::vector<int64_t> key;
  if (!box) return key;
  for (const BoxDim& dim : *box) {
    key.push_back(dim.begin);
    key.push_back(dim.size);
  }
  return key;
}

// Groups pieces into instances, in the order of their first pieces. Incomplete
// ones are left out: half a sum is no value.
std::vector<Instance> FindInstances(const TensorPieces& pieces,
                                    const Reduction& reduction) {
  // (place, micro-batch, box) -> instance.
  std::map<std::tuple<Coordinate, int, std::vector<int64_t>>, size_t> known;
  std::vector<Instance> instances;
  std::vector<std::set<std::pair<int, int>>> seen;  // (rank, micro-batch)
  for (const Record& record : pieces.pieces) {
    Coordinate key = pieces.trace->coordinate(record.rank(), reduction.grid);
    for (const size_t m : reduction.mesh_dims) key[m] = 0;
    const int micro_batch = reduction.micro_batches ? -1 : record.micro_batch();
    const auto [it, is_new] = known.try_emplace(
        {std::move(key), micro_batch, KeyOf(record.box())}, instances.size());
    if (is_new) {
      instances.emplace_back();
      seen.emplace_back();
    }
    const size_t i = it->second;
    if (!seen[i].emplace(record.rank(), record.micro_batch()).second) continue;
    instances[i].terms.push_back(record);
  }
  std::erase_if(instances, [&](const Instance& instance) {
    return reduction.terms != 0 &&
           static_cast<int64_t>(instance.terms.size()) != reduction.terms;
  });
  return instances;
}

Error Incomparable(const Record& record, const std::string& message) {
  return Error(ErrorCode::kIncomparable,
               ToString(record.id()) + ": " + message);
}

class LocalReader {
 public:
  LocalReader(const TensorPieces& pieces, const Layout& want, DType dtype,
              Scale scale, std::span<std::byte> out)
      : trace_(*pieces.trace),
        want_(want),
        dtype_(dtype),
        scale_(scale),
        itemsize_(static_cast<size_t>(Info(dtype).itemsize)),
        out_(out),
        count_(want.local_count()),
        missing_(count_) {}

  int64_t missing() const { return missing_; }

  Status Add(const Instance& instance) {
    const Record& first = instance.terms.front();
    if (!Overlap(first.layout(), want_)) return Done{};
    const bool exact = instance.terms.size() == 1 && first.dtype() == dtype_ &&
                       first.scale() == scale_;
    if (exact && missing_ == count_ && first.layout() == want_) {
      missing_ = 0;
      return trace_.Read(first, 0, out_);
    }
    covered_.resize(static_cast<size_t>(count_), 0);
    return exact ? Copy(first) : Sum(instance);
  }

 private:
  Status Copy(const Record& record) {
    TTRACE_RETURN_IF_ERROR(Load(record));
    ForEachSharedRun(
        record.layout(), want_, [&](int64_t from, int64_t to, int64_t size) {
          if (ClaimRun(to, size)) {
            std::memcpy(out_.data() + static_cast<size_t>(to) * itemsize_,
                        bytes_.data() + static_cast<size_t>(from) * itemsize_,
                        static_cast<size_t>(size) * itemsize_);
            return;
          }
          for (int64_t i = 0; i < size; ++i) {
            const auto target = static_cast<size_t>(to + i);
            if (!Claim(target)) continue;
            std::memcpy(
                out_.data() + target * itemsize_,
                bytes_.data() + static_cast<size_t>(from + i) * itemsize_,
                itemsize_);
          }
        });
    return Done{};
  }

  Status Sum(const Instance& instance) {
    const Record& first = instance.terms.front();
    std::vector<double> sum(covered_.size(), 0.0);
    for (const Record& term : instance.terms) {
      if (term.layout() != first.layout() || term.scale() != first.scale()) {
        return Incomparable(term, "the terms of a sum lie differently");
      }
      TTRACE_RETURN_IF_ERROR(Load(term));
      const auto itemsize = static_cast<size_t>(Info(term.dtype()).itemsize);
      ForEachSharedRun(
          term.layout(), want_, [&](int64_t from, int64_t to, int64_t size) {
            for (int64_t i = 0; i < size; ++i) {
              sum[static_cast<size_t>(to + i)] += WidenElement(
                  term.dtype(),
                  bytes_.data() + static_cast<size_t>(from + i) * itemsize);
            }
          });
    }
    const double numerator = static_cast<double>(first.scale().numerator) *
                             static_cast<double>(scale_.denominator);
    const double denominator = static_cast<double>(first.scale().denominator) *
                               static_cast<double>(scale_.numerator);
    ForEachSharedRun(first.layout(), want_,
                     [&](int64_t, int64_t to, int64_t size) {
                       for (int64_t i = 0; i < size; ++i) {
                         const auto target = static_cast<size_t>(to + i);
                         if (!Claim(target)) continue;
                         Narrow(dtype_, sum[target] * numerator / denominator,
                                out_.data() + target * itemsize_);
                       }
                     });
    return Done{};
  }

  Status Load(const Record& record) {
    bytes_.resize(static_cast<size_t>(record.extent().bytes));
    return trace_.Read(record, 0, bytes_);
  }

  // The first replica wins. Whether replicas agree is the check's question.
  bool Claim(size_t target) {
    if (covered_[target] != 0) return false;
    covered_[target] = 1;
    --missing_;
    return true;
  }

  // All of a run at once, if nothing of it has been claimed.
  bool ClaimRun(int64_t begin, int64_t size) {
    uint8_t* const run = covered_.data() + begin;
    if (std::memchr(run, 1, static_cast<size_t>(size)) != nullptr) return false;
    std::memset(run, 1, static_cast<size_t>(size));
    missing_ -= size;
    return true;
  }

  const Trace& trace_;
  const Layout& want_;
  const DType dtype_;
  const Scale scale_;
  const size_t itemsize_;
  const std::span<std::byte> out_;
  const int64_t count_;
  std::vector<uint8_t> covered_;  // one byte an element, 0 or 1
  int64_t missing_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Status ReadLocal(const TensorPieces& pieces, const Layout& want, DType dtype,
                 Scale scale, std::span<std::byte> out) {
  const Record& first = pieces.pieces.front();
  const int64_t itemsize = Info(dtype).itemsize;
  if (static_cast<int64_t>(out.size()) != want.local_count() * itemsize) {
    return Error(ErrorCode::kInvalidArgument,
                 ToString(first.id()) + ": the buffer does not fit the layout");
  }
  if (pieces.unplaced) return Incomparable(first, ToString(*pieces.unplaced));
  for (const Record& record : pieces.pieces) {
    if (record.layout().global_shape() != want.global_shape()) {
      return Incomparable(
          record,
          fmt::format("the whole tensor is [{}] in the trace, [{}] here",
                      fmt::join(record.layout().global_shape(), ", "),
                      fmt::join(want.global_shape(), ", ")));
    }
    for (const auto& [name, placement] : record.placements()) {
      const auto* partial = std::get_if<Partial>(&placement);
      // Nothing that is grafted is an average; a wrong sum would be worse.
      if (partial != nullptr && partial->op != ReduceOp::kSum) {
        return Error(ErrorCode::kUnsupported,
                     ToString(record.id()) + ": averages are not read back");
      }
    }
  }
  const Reduction reduction = FindReduction(*pieces.trace, first);
  const std::vector<Instance> instances = FindInstances(pieces, reduction);
  if (instances.empty()) {
    return Incomparable(first, "terms of a sum are missing");
  }
  LocalReader reader(pieces, want, dtype, scale, out);
  for (const Instance& instance : instances) {
    if (reader.missing() == 0) break;
    TTRACE_RETURN_IF_ERROR(reader.Add(instance));
  }
  if (reader.missing() != 0) {
    return Incomparable(first, "no rank holds " +
                                   std::to_string(reader.missing()) +
                                   " of the wanted elements");
  }
  return Done{};
}

}  // namespace ttrace
