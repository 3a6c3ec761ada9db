#include "src/compare/instances.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

#include "src/compare/by_place.h"
#include "src/compare/row_map.h"

namespace ttrace {
namespace {

constexpr int kMicroBatchDim = -1;  // the "mb" pseudo-dimension

// What a piece has to be summed over.
struct Sum {
  int grid = 0;           // of the mesh
  std::vector<int> dims;  // indices into the mesh, kMicroBatchDim for "mb"
  int64_t terms = 1;      // product of the mesh dimensions' sizes
  double mean = 1;        // 1 / (sizes of the averaged dimensions)
  bool over_micro_batches = false;
  bool average_micro_batches = false;

  bool Has(int dim) const {
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  }
};

void AddMeshDim(const DeviceMesh& mesh, const std::string& name, ReduceOp op,
                Sum* sum) {
  const int dim = mesh.Find(name);
  // A dimension of one rank, or none, has nothing to sum.
  if (dim < 0 || sum->Has(dim)) return;
  const int size = mesh.dims[static_cast<size_t>(dim)].size;
  if (size <= 1) return;
  sum->dims.push_back(dim);
  sum->terms *= size;
  if (op == ReduceOp::kAvg) sum->mean /= size;
}

Sum SumOf(const Trace& trace, const Record& record,
          const std::vector<std::string>& sum_over) {
  const DeviceMesh& mesh = trace.mesh(record.grid());
  Sum sum;
  sum.grid = record.grid();
  for (const auto& [name, placement] : record.placements()) {
    const auto* partial = std::get_if<Partial>(&placement);
    if (partial == nullptr) continue;
    if (name == "mb") {
      sum.over_micro_batches = true;
      sum.average_micro_batches = partial->op == ReduceOp::kAvg;
      sum.dims.push_back(kMicroBatchDim);
    } else {
      AddMeshDim(mesh, name, partial->op, &sum);
    }
  }
  for (const std::string& name : sum_over) {
    AddMeshDim(mesh, name, ReduceOp::kSum, &sum);
  }
  std::sort(sum.dims.begin(), sum.dims.end());
  return sum;
}

// What pieces of one sum have in common. Two recordings of the same term (the
// same rank recorded twice) become two sums.
struct SumKey {
  int grid = 0;
  std::vector<int> dims;
  Coordinate elsewhere;  // with 0 along summed dimensions
  int micro_batch = -1;
  bool operator<(const SumKey& other) const {
    return std::tie(grid, dims, elsewhere, micro_batch) <
           std::tie(other.grid, other.dims, other.elsewhere, other.micro_batch);
  }
};

struct PendingSum {
  Sum sum;
  RecordList records;
  // (coordinate along the summed mesh dimensions, micro-batch) of the records.
  std::set<std::pair<Coordinate, int>> places;
};

using PendingSums = std::map<SumKey, std::vector<PendingSum>>;

// Pieces of one layout, in their order.
struct PendingGroup {
  Layout layout;
  RecordList records;
};

// "tp=1 dp=0", and the rank that sits there if the trace has it.
std::string DescribePlace(const Trace& trace, const PendingSum& pending,
                          const Coordinate& along, const Record& example) {
  const int grid = pending.sum.grid;
  Coordinate full = trace.coordinate(example.rank(), grid);
  std::string text;
  size_t i = 0;
  for (const int dim : pending.sum.dims) {
    if (dim == kMicroBatchDim) continue;
    const auto d = static_cast<size_t>(dim);
    full[d] = along[i++];
    if (!text.empty()) text += ' ';
    text += trace.mesh(grid).dims[d].name + '=' + std::to_string(full[d]);
  }
  for (const RankTrace& rank : trace.ranks()) {
    if (trace.coordinate(rank.meta.rank, grid) == full) {
      return "rank " + std::to_string(rank.meta.rank) + " (" + text + ")";
    }
  }
  return "the rank at " + text + " (absent from the trace)";
}

Status CheckTerms(const TensorPieces& pieces, const PendingSum& pending) {
  if (pending.sum.terms == 1) return Done{};
  std::map<int, std::set<Coordinate>> by_micro_batch;
  for (const auto& [along, micro_batch] : pending.places) {
    by_micro_batch[pending.sum.over_micro_batches ? micro_batch : 0].insert(
        along);
  }
  // Data-parallel ranks see different micro-batches, so a micro-batch need not
  // have a term at every coordinate; but over all micro-batches every
  // coordinate has one, and every micro-batch is on equally many ranks.
  std::set<Coordinate> all;
  size_t most = 0;
  for (const auto& [micro_batch, places] : by_micro_batch) {
    all.insert(places.begin(), places.end());
    most = std::max(most, places.size());
  }
  const Record& example = pending.records.front();
  if (static_cast<int64_t>(all.size()) != pending.sum.terms) {
    Coordinate along;
    for (const int dim : pending.sum.dims) {
      if (dim != kMicroBatchDim) along.push_back(0);
    }
    const DeviceMesh& mesh = pieces.trace->mesh(pending.sum.grid);
    // Counts through the grid, last dimension first, to the first hole.
    while (all.count(along) != 0) {
      size_t i = along.size();
      for (const int dim : std::vector<int>(pending.sum.dims.rbegin(),
                                            pending.sum.dims.rend())) {
        if (dim == kMicroBatchDim) continue;
        --i;
        if (++along[i] < mesh.dims[static_cast<size_t>(dim)].size) break;
        along[i] = 0;
      }
    }
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(pieces) + ": a sum over " +
                     std::to_string(pending.sum.terms) + " ranks has only " +
                     std::to_string(all.size()) + " terms; none from " +
                     DescribePlace(*pieces.trace, pending, along, example));
  }
  for (const auto& [micro_batch, places] : by_micro_batch) {
    if (places.size() == most) continue;
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(pieces) + ": micro-batch " +
                     std::to_string(micro_batch) + " has " +
                     std::to_string(places.size()) + " terms of a sum, " +
                     "others have " + std::to_string(most));
  }
  return Done{};
}

Instance MakeInstance(const Trace* trace, const PendingSum& pending,
                      double extra_scale) {
  Instance instance;
  instance.trace = trace;
  double mean = pending.sum.mean;
  if (pending.sum.average_micro_batches) {
    std::set<int> micro_batches;
    for (const Record& record : pending.records) {
      micro_batches.insert(record.micro_batch());
    }
    mean /= static_cast<double>(micro_batches.size());
  }
  std::vector<int> ranks;
  for (const Record& record : pending.records) {
    instance.terms.push_back(
        {record, record.scale().value() * mean * extra_scale});
    ranks.push_back(record.rank());
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  instance.ranks = SmallVector<int>(std::move(ranks));
  if (!pending.sum.over_micro_batches) {
    instance.micro_batch = pending.records.front().micro_batch();
  }
  for (const int dim : pending.sum.dims) {
    instance.summed.push_back(dim == kMicroBatchDim
                                  ? "mb"
                                  : trace->mesh(pending.sum.grid)
                                        .dims[static_cast<size_t>(dim)]
                                        .name);
  }
  return instance;
}

// Of a piece that is no term of a sum.
Instance WholeInstance(const Trace* trace, const Record& record,
                       double extra_scale) {
  Instance instance;
  instance.trace = trace;
  instance.terms = {{record, record.scale().value() * extra_scale}};
  instance.ranks = {record.rank()};
  instance.micro_batch = record.micro_batch();
  return instance;
}

bool IsBefore(const Instance& a, const Instance& b) {
  return std::tie(a.micro_batch, a.ranks) < std::tie(b.micro_batch, b.ranks);
}

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != 0) text += ", ";
    text += std::to_string(shape[d]);
  }
  return text + "]";
}

void AddPiece(const Trace& trace, const Record& record, const Sum& sum,
              PendingSums* all) {
  SumKey key;
  key.grid = sum.grid;
  key.dims = sum.dims;
  key.elsewhere = trace.coordinate(record.rank(), sum.grid);
  key.micro_batch = sum.over_micro_batches ? -1 : record.micro_batch();
  Coordinate along;
  for (const int dim : sum.dims) {
    if (dim == kMicroBatchDim) continue;
    int& coordinate = key.elsewhere[static_cast<size_t>(dim)];
    along.push_back(std::exchange(coordinate, 0));
  }
  const std::pair<Coordinate, int> place{along, record.micro_batch()};
  std::vector<PendingSum>& sums = (*all)[key];
  for (PendingSum& pending : sums) {
    if (pending.places.insert(place).second) {
      pending.records.push_back(record);
      return;
    }
  }
  sums.push_back({sum, {record}, {place}});
}

// What records have to be summed over, which their forms say: many have one.
class SumsByForm {
 public:
  SumsByForm(const Trace& trace, const std::vector<std::string>& sum_over)
      : trace_(trace), sum_over_(sum_over) {}

  const Sum& Of(const Record& record) {
    const auto [found, is_new] = sums_.try_emplace(record.form_number());
    if (is_new) found->second = SumOf(trace_, record, sum_over_);
    return found->second;
  }
  // Nothing is summed, and the pieces speak of one grid.
  bool AreWhole(const RecordList& records) {
    const int grid = records.front().grid();
    return std::all_of(records.begin(), records.end(), [&](const Record& r) {
      return r.grid() == grid && Of(r).dims.empty();
    });
  }

 private:
  const Trace& trace_;
  const std::vector<std::string>& sum_over_;
  std::map<uint32_t, Sum> sums_;
};

// Pieces to groups of one layout each.
class Grouping {
 public:
  Grouping(const TensorPieces& pieces, const RowMap* rows)
      : pieces_(pieces), rows_(rows), shape_(pieces.global_shape()) {}

  Status Add(const Record& record) {
    // Pieces of one place refer to one layout: it is looked at once.
    const Layout* as_recorded = &record.layout();
    const bool moves = rows_ != nullptr && (record.rows() || record.routed());
    const auto known = moves ? known_.end() : known_.find(as_recorded);
    if (known != known_.end()) {
      groups_[known->second].records.push_back(record);
      return Done{};
    }
    if (as_recorded->global_shape() != shape_) {
      return Error(ErrorCode::kIncomparable,
                   DescribeTensor(pieces_) + ": rank " +
                       std::to_string(record.rank()) + " has global shape " +
                       ShapeText(as_recorded->global_shape()) + ", rank " +
                       std::to_string(pieces_.pieces.front().rank()) + " " +
                       ShapeText(shape_));
    }
    Layout layout = *as_recorded;
    if (rows_ != nullptr && record.rows().has_value()) {
      TTRACE_RETURN_IF_ERROR(MapRows(*rows_, record.rows()->dim, &layout));
    }
    if (rows_ != nullptr && record.routed().has_value()) {
      TTRACE_RETURN_IF_ERROR(MapTokens(*rows_, &layout.dims.front()));
    }
    const auto [found, inserted] = index_.emplace(layout, groups_.size());
    if (inserted) groups_.push_back({std::move(layout), {}});
    if (!moves) known_.emplace(as_recorded, found->second);
    groups_[found->second].records.push_back(record);
    return Done{};
  }

  std::vector<PendingGroup> Take() && { return std::move(groups_); }

 private:
  const TensorPieces& pieces_;
  const RowMap* rows_;
  const Shape shape_;
  std::vector<PendingGroup> groups_;
  std::map<Layout, size_t, ByPlace> index_;
  std::unordered_map<const Layout*, size_t> known_;
};

}  // namespace

bool IsTerm(const Record& record) {
  return std::any_of(record.placements().begin(), record.placements().end(),
                     [](const auto& placed) {
                       return std::holds_alternative<Partial>(placed.second);
                     });
}

std::string DescribeTensor(const TensorPieces& pieces) {
  return ToString(pieces.pieces.front().id());
}

Result<std::vector<InstanceGroup>> GroupInstances(
    const TensorPieces& pieces, const CompareOptions& options) {
  if (pieces.unplaced) {
    return Error(ErrorCode::kIncomparable,
                 DescribeTensor(pieces) + ": " + ToString(*pieces.unplaced));
  }
  Grouping grouping(pieces, options.rows);
  for (const Record& record : pieces.pieces) {
    TTRACE_RETURN_IF_ERROR(grouping.Add(record));
  }
  SumsByForm sums_by_form(*pieces.trace, options.sum_over);
  std::vector<InstanceGroup> groups;
  for (PendingGroup& group : std::move(grouping).Take()) {
    InstanceGroup& out = groups.emplace_back();
    out.layout = std::move(group.layout);
    out.instances.reserve(group.records.size());
    if (sums_by_form.AreWhole(group.records)) {
      for (const Record& record : group.records) {
        out.instances.push_back(
            WholeInstance(pieces.trace, record, options.extra_scale));
      }
    } else {
      PendingSums all;
      for (const Record& record : group.records) {
        AddPiece(*pieces.trace, record, sums_by_form.Of(record), &all);
      }
      for (const auto& [key, sums] : all) {
        for (const PendingSum& sum : sums) {
          TTRACE_RETURN_IF_ERROR(CheckTerms(pieces, sum));
          out.instances.push_back(
              MakeInstance(pieces.trace, sum, options.extra_scale));
        }
      }
    }
    // Pieces come by rank, so that those of one micro-batch mostly are.
    if (!std::is_sorted(out.instances.begin(), out.instances.end(), IsBefore)) {
      std::stable_sort(out.instances.begin(), out.instances.end(), IsBefore);
    }
  }
  return groups;
}

}  // namespace ttrace
