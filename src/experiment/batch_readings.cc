#include "src/experiment/batch_readings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "src/compare/by_place.h"
#include "src/compare/compare_tensor.h"
#include "src/experiment/fed_dimensions.h"
#include "src/experiment/parameter_roles.h"
#include "src/experiment/row_order.h"
#include "src/experiment/uneven_calls.h"

namespace ttrace {
namespace {

constexpr std::array kPasses = {Pass::kForward, Pass::kRecompute,
                                Pass::kBackward};

// What one run says of its batch.
class Batch {
 public:
  explicit Batch(const Side& side) {
    for (const auto& [id, pieces] : side.real()) {
      // Of data and of what the model is given: other values are in question.
      for (const Record& piece : pieces.pieces) {
        FindSum(piece);
        if (!IsFed(id) || !piece.rows()) continue;
        rows_.try_emplace({piece.rank(), id.iteration, piece.micro_batch()},
                          *piece.rows());
      }
    }
    sum_.insert("mb");
  }

  const BatchRows* RowsOf(const Record& record) const {
    return Find(record.rank(), record.id().iteration, record.micro_batch());
  }
  const BatchRows* RowsOf(const RecordFields& record) const {
    return Find(record.rank, record.id.iteration, record.micro_batch);
  }
  // Dimensions over which terms of one micro-batch and rank are summed.
  const std::set<std::string>& sum() const { return sum_; }

 private:
  const BatchRows* Find(int rank, int iteration, int micro_batch) const {
    const auto found = rows_.find({rank, iteration, micro_batch});
    return found == rows_.end() ? nullptr : &found->second;
  }
  void FindSum(const Record& record) {
    if (!IsPartialOver(record.placements(), "mb")) return;
    for (const auto& [dim, placement] : record.placements()) {
      if (std::holds_alternative<Partial>(placement)) sum_.insert(dim);
    }
  }

  std::map<std::tuple<int, int, int>, BatchRows> rows_;
  std::set<std::string> sum_;
};

struct Reading {
  enum Kind : uint8_t {
    kAsRecorded,
    kSameForAllRows,
    kFlattened,
    kAsFed,
    kUnknown
  };
  Kind kind = kAsRecorded;
  int64_t elements_a_row = 1;  // kFlattened: of the first dimension
  ShapeReading shape = {};     // kAsFed
};

// The shape if the piece were the same for all rows.
Shape ShapeWithoutBatch(const Record& piece) {
  Shape shape = piece.layout().global_shape();
  if (piece.rows()) {
    shape[static_cast<size_t>(piece.rows()->dim)] = piece.rows()->count;
  }
  return shape;
}

template <typename Property>
bool AllHaveOne(const TensorPieces& pieces, const Property& property) {
  const auto first = property(pieces.pieces.front());
  return std::all_of(
      pieces.pieces.begin(), pieces.pieces.end(),
      [&](const Record& piece) { return property(piece) == first; });
}

// Whether pieces of one run do not agree in which dimension counts the rows, or
// whether one does.
bool Disagree(const TensorPieces& pieces) {
  return !AllHaveOne(pieces, [](const Record& piece) {
    return piece.layout().global_shape();
  });
}

// Whether all pieces of both runs are of one size if none is a part.
bool HaveOneShape(const TensorPieces& a, const TensorPieces& b) {
  return AllHaveOne(a, ShapeWithoutBatch) && AllHaveOne(b, ShapeWithoutBatch) &&
         ShapeWithoutBatch(a.pieces.front()) ==
             ShapeWithoutBatch(b.pieces.front());
}

bool OfOneShape(const TensorPieces& pieces) {
  return AllHaveOne(pieces,
                    [](const Record& piece) { return piece.local_shape(); });
}

bool OfOneValue(const TensorPieces& pieces) {
  return AllHaveOne(pieces,
                    [](const Record& piece) { return piece.extent().xxh3; });
}

// Between micro-batches. What is sharded is another matter: pieces of one
// layout are looked at. Of these some two of other micro-batches differ if
// neither all values nor all micro-batches are the same.
bool Varies(const TensorPieces& pieces) {
  struct Seen {
    std::optional<Record> first;
    bool values = false;         // other ones than the first's
    bool micro_batches = false;  // the same
  };
  std::map<Layout, Seen, ByPlace> layouts;
  for (const Record& piece : pieces.pieces) {
    Seen& seen = layouts[piece.layout()];
    if (!seen.first) seen.first = piece;
    seen.values |= piece.extent().xxh3 != seen.first->extent().xxh3;
    seen.micro_batches |= piece.micro_batch() != seen.first->micro_batch();
    if (seen.values && seen.micro_batches) return true;
  }
  return false;
}

// Elements of the first dimension for each row, the same in all pieces; 0: not
// so.
int64_t ElementsARow(const TensorPieces& pieces, const Batch& batch) {
  int64_t common = 0;
  for (const Record& piece : pieces.pieces) {
    const BatchRows* rows = batch.RowsOf(piece);
    if (rows == nullptr || rows->count <= 0 || piece.layout().dims.empty()) {
      return 0;
    }
    const DimLayout& first = piece.layout().dims.front();
    const bool own = piece.rows() && piece.rows()->dim == 0;
    const int64_t size = piece.local_shape().front();
    if ((!own && first.local_size() != first.global_size) ||
        size % rows->count != 0) {
      return 0;
    }
    const int64_t each = size / rows->count;
    if (each == 0 || (common != 0 && each != common)) return 0;
    common = each;
  }
  return common;
}

class Settler {
 public:
  Settler(Side* reference, Side* candidate, const RowAlignment& rows)
      : reference_(reference),
        candidate_(candidate),
        reference_batch_(*reference),
        candidate_batch_(*candidate),
        rows_(rows),
        fed_(*reference, *candidate, rows) {}

  BatchReadings Run() {
    std::vector<std::pair<TensorId, Reading>> found;
    for (const auto& [id, pieces] : candidate_->real()) {
      if (id.role != Role::kInput && id.role != Role::kOutput &&
          id.role != Role::kData) {
        continue;
      }
      const TensorPieces* theirs = reference_->FindSameValue(kReal, id);
      if (theirs == nullptr) continue;
      Reading reading = Read(*theirs, pieces);
      if (reading.kind != Reading::kAsRecorded) {
        found.emplace_back(id, std::move(reading));
      }
    }
    BatchReadings out;
    LeaveOutRelative(&out.unknown);
    LeaveOutUnevenCalls(&out.unknown);
    for (const Side* side : {reference_, candidate_}) {
      for (const auto& [id, pieces] : side->real()) {
        if (IsListed(id, pieces)) out.listed.insert(id);
      }
    }
    for (const auto& entry : found) {
      const Reading& reading = entry.second;
      for (TensorId member : Family(entry.first)) {
        if (reading.kind == Reading::kUnknown) {
          out.unknown.insert(std::move(member));
          continue;
        }
        reference_->Reread(member, [&](RecordFields* record) {
          Apply(reading, reference_batch_, true, record);
        });
        candidate_->Reread(member, [&](RecordFields* record) {
          Apply(reading, candidate_batch_, false, record);
        });
        if (FedDimensions::IsPadded(reading.shape)) {
          out.padded.insert(std::move(member));
        }
      }
    }
    return out;
  }

 private:
  // Of what counts within the batch of a rank, other batches have other values.
  // A module may be given the very tensor: it is known by its bytes.
  void LeaveOutRelative(std::set<TensorId>* unknown) const {
    std::set<std::tuple<int, int, uint64_t>> relative;
    for (const auto& [id, pieces] : candidate_->real()) {
      if (!IsRelative(id, pieces)) continue;
      unknown->insert(id);
      for (const Record& piece : pieces.pieces) {
        relative.emplace(piece.rank(), id.iteration, piece.extent().xxh3);
      }
    }
    if (relative.empty()) return;
    for (const auto& [id, pieces] : candidate_->real()) {
      if (id.role != Role::kInput && id.role != Role::kOutput) continue;
      const Record& first = pieces.pieces.front();
      if (relative.contains(
              {first.rank(), id.iteration, first.extent().xxh3})) {
        unknown->insert(id);
      }
    }
  }

  // Where rows have lengths, a call in one micro-batch may be another one than
  // that of the same number elsewhere.
  void LeaveOutUnevenCalls(std::set<TensorId>* unknown) const {
    const std::set<ModuleOfIteration> uneven =
        UnevenCalls(*reference_, *candidate_);
    if (uneven.empty()) return;
    for (const auto& [id, pieces] : candidate_->real()) {
      if (IsActivation(id.role) && uneven.contains({id.fqn, id.iteration}) &&
          (fed_.HasLengths(pieces) || fed_.HasListedRows(pieces))) {
        unknown->insert(id);
      }
    }
  }

  bool IsListed(const TensorId& id, const TensorPieces& pieces) const {
    const RowsOfCall* call = CallOf(id, pieces);
    if (call == nullptr) return false;
    return std::any_of(
        call->spaces.begin(), call->spaces.end(), [&](const RowSpace& space) {
          return std::any_of(
              space.by.begin(), space.by.end(), [&](const FedName& name) {
                const auto& [list, dim] = name;
                if (dim != kListDim) return false;
                return list.empty()
                           ? !id.arg.empty() &&
                                 std::isdigit(static_cast<unsigned char>(
                                     id.arg.front())) != 0
                           : id.arg.starts_with(list + ".");
              });
        });
  }

  // Nothing but of data and of what the model itself is given.
  const RowsOfCall* CallOf(const TensorId& id,
                           const TensorPieces& pieces) const {
    if (id.role != Role::kData && !(id.role == Role::kInput && id.fqn.empty()))
      return nullptr;
    return CallAround(pieces);
  }

  // The call of the model that a tensor of the candidate is of.
  const RowsOfCall* CallAround(const TensorPieces& pieces) const {
    const Record& first = pieces.pieces.front();
    return rows_.Find(
        candidate_->fed_rows().CallOf(first.id(), first.micro_batch()));
  }

  bool IsRelative(const TensorId& id, const TensorPieces& pieces) const {
    const RowsOfCall* call = CallOf(id, pieces);
    return call != nullptr &&
           std::find(call->relative.begin(), call->relative.end(), id.arg) !=
               call->relative.end();
  }

  Reading Read(const TensorPieces& r, const TensorPieces& c) const {
    // Which tokens routed rows are is known, and that they are not all.
    if (r.pieces.front().routed() || c.pieces.front().routed()) return {};
    const RowsOfCall* call = CallAround(c);
    if (call != nullptr && call->in_excess) return {Reading::kUnknown};
    if (call != nullptr && call->shared) {
      return {HaveOneShape(r, c) ? Reading::kSameForAllRows
                                 : Reading::kUnknown};
    }
    const bool as_recorded = fed_.AreAsRecorded(r, c);
    const bool of_one_shape = OfOneShape(r) && OfOneShape(c);
    if (!as_recorded) {
      std::optional<ShapeReading> shape = fed_.Read(r, c);
      if (shape && FedDimensions::IsUntold(*shape)) return {Reading::kUnknown};
      if (shape && !FedDimensions::HasRows(*shape)) {
        if (!FedDimensions::IsPadded(*shape)) {
          shape.reset();  // the same for all rows, or made of all
        } else if (!of_one_shape) {
          // One of a few positions would lie over one of more: a causal mask
          // that is made for the longest row of a rank.
          return {Reading::kUnknown};
        }
      }
      if (shape) {
        const bool flat =
            std::any_of(shape->begin(), shape->end(),
                        [](const DimReading& dim) { return dim.each > 1; });
        Reading reading = {Reading::kAsFed, 1, *std::move(shape)};
        return flat && InAnotherOrder(r, c, reading)
                   ? Reading{Reading::kUnknown}
                   : reading;
      }
    }
    // Lengths made it what it is, as masks are that a library cuts to size.
    const bool cut = r.global_shape() != c.global_shape() || !of_one_shape;
    if (cut && !as_recorded && fed_.HasLengths(c)) {
      return {Reading::kUnknown};
    }
    if (c.pieces.front().id().role == Role::kData) {
      // Of what is in no row each micro-batch has its own.
      const bool told = as_recorded || CutAlike(r, c);
      return {told ? Reading::kAsRecorded : Reading::kUnknown};
    }
    const auto open = [](const Record& piece) {
      return !piece.rows() && piece.micro_batch() >= 0;
    };
    const bool left_open =
        std::any_of(r.pieces.begin(), r.pieces.end(), open) ||
        std::any_of(c.pieces.begin(), c.pieces.end(), open) ||
        RowDim(r) != RowDim(c);
    // Mostly nothing is, and what follows looks at every piece.
    if (!left_open) return {};
    const bool disagree = Disagree(r) || Disagree(c);
    const bool differ = disagree || r.global_shape() != c.global_shape();
    const bool varies = Varies(r);
    const bool cut_alike = CutAlike(r, c);
    if (!differ && !varies && (cut_alike || !Varies(c))) return {};
    const bool same = HaveOneShape(r, c);
    const int64_t theirs = ElementsARow(r, reference_batch_);
    const int64_t own = ElementsARow(c, candidate_batch_);
    if (own != 0 && own == theirs && (!same || varies)) {
      const Reading reading = {Reading::kFlattened, own};
      return InAnotherOrder(r, c, reading) ? Reading{Reading::kUnknown}
                                           : reading;
    }
    // Runs that cut the batch alike leave no doubt, whatever it is.
    if (cut_alike && !disagree) return {};
    if (disagree && !(OfOneValue(r) && OfOneValue(c))) {
      return {Reading::kUnknown};
    }
    // A mean or a sum over the rows of a micro-batch, as a loss.
    if (!differ || !same) return {Reading::kUnknown};
    return {Reading::kSameForAllRows};
  }

  // The dimension that is said to count the rows: one of that size, which may
  // be another one in runs of other micro-batches, or -1.
  static int RowDim(const TensorPieces& pieces) {
    const auto& rows = pieces.pieces.front().rows();
    return rows ? rows->dim : -1;
  }

  // Whether what both runs flattened is the same, but in an order of its own:
  // tokens that a mixture of experts sorted by expert, among those that this
  // rank has.
  bool InAnotherOrder(const TensorPieces& r, const TensorPieces& c,
                      const Reading& reading) const {
    if (!r.MayBeWhole() || !c.MayBeWhole()) return false;
    const auto theirs = RowsOf(r, reading, reference_batch_, true);
    const auto own = RowsOf(c, reading, candidate_batch_, false);
    return theirs && own && theirs->width == own->width &&
           SameRowsInAnotherOrder(theirs->values, own->values, own->width);
  }

  struct Rows {
    std::vector<double> values;
    size_t width = 0;
  };

  // The first values of each row of the first dimension, read so. Nothing if
  // they cannot be read: who compares them will say why.
  std::optional<Rows> RowsOf(const TensorPieces& pieces, const Reading& reading,
                             const Batch& batch, bool of_reference) const {
    constexpr int64_t kColumns = 16;
    RecordTable records;
    TensorPieces read = pieces;
    read.pieces.clear();
    for (const Record& piece : pieces.pieces) {
      RecordFields fields = piece.fields();
      Apply(reading, batch, of_reference, &fields);
      read.pieces.push_back(records.Append(fields));
    }
    Shape size = read.global_shape();
    for (size_t d = 1; d < size.size(); ++d) {
      size[d] = std::min(size[d], d + 1 == size.size() ? kColumns : 1);
    }
    CompareOptions options;
    if (!of_reference) {
      options = rows_.OptionsFor(*candidate_, read.pieces.front().id(), read);
    }
    auto values = ReadBox(read, Shape(size.size(), 0), size, options);
    if (!values.ok()) return std::nullopt;
    const auto width =
        size.size() < 2 ? size_t{1} : static_cast<size_t>(size.back());
    return Rows{std::move(*values), width};
  }

  // Whether no row of a call was dealt to a micro-batch of another number.
  bool RowsStay(const TensorPieces& c) const {
    const RowsOfCall* call = CallAround(c);
    if (call == nullptr || call->spaces.empty()) return true;
    const RowSpace& rows = call->spaces.front();
    if (!rows.map) return true;
    const auto micro_batches = [](const RowSpace::Counts& counts) {
      std::vector<int> of_row;
      for (const auto& [micro_batch, count] : counts) {
        of_row.insert(of_row.end(), static_cast<size_t>(count), micro_batch);
      }
      return of_row;
    };
    const std::vector<int> theirs = micro_batches(rows.reference);
    const std::vector<int> own = micro_batches(rows.candidate);
    const std::vector<int64_t>& map = rows.map->to_reference;
    for (size_t r = 0; r < map.size() && r < own.size(); ++r) {
      if (theirs[static_cast<size_t>(map[r])] != own[r]) return false;
    }
    return true;
  }

  // Whether a micro-batch of one run is that of the same number in the other.
  bool CutAlike(const TensorPieces& r, const TensorPieces& c) const {
    if (!RowsStay(c)) return false;
    std::set<std::tuple<int, int64_t, int64_t>> reference;
    std::set<std::tuple<int, int64_t, int64_t>> candidate;
    const auto cuts = [](const TensorPieces& pieces, const Batch& batch,
                         auto* out) {
      for (const Record& piece : pieces.pieces) {
        const BatchRows* rows = batch.RowsOf(piece);
        if (rows == nullptr) return false;
        out->emplace(piece.micro_batch(), rows->begin, rows->count);
      }
      return true;
    };
    return cuts(r, reference_batch_, &reference) &&
           cuts(c, candidate_batch_, &candidate) && reference == candidate;
  }

  static std::vector<TensorId> Family(const TensorId& id) {
    std::vector<TensorId> out;
    const Role gradient =
        id.role == Role::kOutput ? Role::kGradOutput : Role::kGradInput;
    for (const Role role : {id.role, gradient}) {
      for (const Pass pass : kPasses) {
        TensorId member = id;
        member.role = role;
        member.pass = pass;
        out.push_back(std::move(member));
      }
    }
    return out;
  }

  static void Apply(const Reading& reading, const Batch& batch,
                    bool of_reference, RecordFields* record) {
    switch (reading.kind) {
      case Reading::kFlattened:
        return Flatten(reading.elements_a_row, batch, record);
      case Reading::kSameForAllRows:
        return Share(batch, record);
      case Reading::kAsFed: {
        FedDimensions::Apply(reading.shape, of_reference, record);
        return FedDimensions::HasRows(reading.shape) ? ForgetSums(batch, record)
                                                     : Share(batch, record);
      }
      case Reading::kAsRecorded:
      case Reading::kUnknown:
        return;
    }
  }

  // The rows of the first dimension are those of the batch, each `elements`
  // times.
  static void Flatten(int64_t elements, const Batch& batch,
                      RecordFields* record) {
    const BatchRows* rows = batch.RowsOf(*record);
    if (rows == nullptr || record->layout.dims.empty()) return;
    ForgetRows(record);
    record->rows = BatchRows{0, elements * rows->begin, elements * rows->count,
                             elements * rows->global};
    DimLayout& first = record->layout.dims.front();
    first.segments = {{record->rows->begin, record->rows->count}};
    first.global_size = record->rows->global;
    ForgetSums(batch, record);
  }

  // Of what has rows each micro-batch holds its own, not terms of a sum.
  static void ForgetSums(const Batch& batch, RecordFields* record) {
    std::erase_if(record->placements, [&](const auto& word) {
      return batch.sum().contains(word.first) &&
             std::holds_alternative<Partial>(word.second);
    });
  }

  static void ForgetRows(RecordFields* record) {
    if (!record->rows) return;
    DimLayout& dim =
        record->layout.dims[static_cast<size_t>(record->rows->dim)];
    dim.segments = {{0, record->rows->count}};
    dim.global_size = record->rows->count;
    record->rows.reset();
  }

  // The same for all rows: its gradient is a sum over them.
  static void Share(const Batch& batch, RecordFields* record) {
    ForgetRows(record);
    if (record->id.role != Role::kGradOutput &&
        record->id.role != Role::kGradInput) {
      return;
    }
    for (const std::string& name : batch.sum()) {
      const bool placed =
          std::any_of(record->placements.begin(), record->placements.end(),
                      [&](const auto& word) { return word.first == name; });
      if (!placed) record->placements.emplace_back(name, Partial{});
    }
  }

  Side* reference_;
  Side* candidate_;
  Batch reference_batch_;
  Batch candidate_batch_;
  const RowAlignment& rows_;
  FedDimensions fed_;
};

}  // namespace

BatchReadings ResolveBatchDim(Side* reference, Side* candidate,
                              const RowAlignment& rows) {
  return Settler(reference, candidate, rows).Run();
}

}  // namespace ttrace
