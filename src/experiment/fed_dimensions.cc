#include "src/experiment/fed_dimensions.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ttrace {
namespace {

using Counts = RowSpace::Counts;

std::optional<int64_t> SizeAt(const Counts& counts, int micro_batch) {
  const auto found = counts.find(micro_batch);
  if (found == counts.end()) return std::nullopt;
  return found->second;
}

// Whether the dimension of each piece is as large as `size(micro_batch)`.
template <typename Size>
bool IsAsLarge(const TensorPieces& pieces, size_t dim, const Size& size) {
  return std::all_of(
      pieces.pieces.begin(), pieces.pieces.end(), [&](const Record& piece) {
        const std::optional<int64_t> wanted = size(piece.micro_batch());
        return wanted && piece.local_shape()[dim] == *wanted;
      });
}

// How many indices a row has, the same in all pieces; 0: not so.
int64_t MultipleOfUnit(const TensorPieces& pieces, size_t dim,
                       const Counts& counts) {
  int64_t common = 0;
  for (const Record& piece : pieces.pieces) {
    const auto count = SizeAt(counts, piece.micro_batch());
    const int64_t size = piece.local_shape()[dim];
    if (!count || *count <= 0 || size % *count != 0) return 0;
    const int64_t each = size / *count;
    if (each == 0 || (common != 0 && common != each)) return 0;
    common = each;
  }
  return common;
}

// Pieces that a mesh cuts lie where their placements say.
bool IsCutByMesh(const TensorPieces& pieces) {
  return std::any_of(
      pieces.pieces.begin(), pieces.pieces.end(), [](const Record& piece) {
        return piece.routed() || piece.box() ||
               std::any_of(
                   piece.placements().begin(), piece.placements().end(),
                   [](const auto& word) {
                     return !std::holds_alternative<Partial>(word.second) &&
                            !std::holds_alternative<Replicate>(word.second);
                   });
      });
}

size_t RankOf(const TensorPieces& pieces) {
  return pieces.pieces.front().local_shape().size();
}

bool HaveOneRank(const TensorPieces& pieces) {
  return std::all_of(pieces.pieces.begin(), pieces.pieces.end(),
                     [&](const Record& piece) {
                       return piece.local_shape().size() == RankOf(pieces);
                     });
}

}  // namespace

const RowsOfCall* FedDimensions::CallOf(const TensorPieces& candidate) const {
  if (candidate_.fed_rows().empty() || reference_.fed_rows().empty()) {
    return nullptr;
  }
  const Record& first = candidate.pieces.front();
  return rows_.Find(
      candidate_.fed_rows().CallOf(first.id(), first.micro_batch()));
}

bool FedDimensions::AreAsRecorded(const TensorPieces& reference,
                                  const TensorPieces& candidate) const {
  const RowsOfCall* call = CallOf(candidate);
  if (call == nullptr || call->spaces.empty()) return true;
  if (reference.global_shape() != candidate.global_shape()) return false;
  const RowSpace& rows = call->spaces.front();
  const auto fits = [&](const TensorPieces& pieces, const Counts& counts) {
    return std::all_of(
        pieces.pieces.begin(), pieces.pieces.end(), [&](const Record& piece) {
          const auto count = SizeAt(counts, piece.micro_batch());
          return piece.rows() && count && piece.rows()->count <= *count &&
                 piece.rows()->global == rows.total &&
                 piece.layout().global_shape() == pieces.global_shape();
        });
  };
  return fits(reference, rows.reference) && fits(candidate, rows.candidate);
}

std::optional<DimReading> FedDimensions::ReadDim(const RowsOfCall& call,
                                                 const TensorPieces& reference,
                                                 const TensorPieces& candidate,
                                                 size_t dim) const {
  const auto fit = [&](const auto& theirs, const auto& own) {
    return IsAsLarge(reference, dim, theirs) && IsAsLarge(candidate, dim, own);
  };
  const auto at = [](const Counts& counts) {
    return [&counts](int micro_batch) { return SizeAt(counts, micro_batch); };
  };
  for (const RowSpace& space : call.spaces) {
    if (fit(at(space.reference), at(space.candidate))) {
      return DimReading{&space, 1, nullptr};
    }
  }
  const int64_t size = reference.pieces.front().local_shape()[dim];
  const auto all = [&](int) { return std::optional(size); };
  for (const RowSpace& space : call.untold) {
    if (fit(at(space.reference), at(space.candidate)) && !fit(all, all)) {
      DimReading untold;
      untold.untold = true;
      return untold;
    }
  }
  for (const PaddedLength& length : call.lengths) {
    if (fit(at(length.reference), at(length.candidate))) {
      return DimReading{nullptr, 1, &length};
    }
  }
  if (fit(all, all)) return DimReading{};
  for (const PaddedLength& length : call.lengths) {
    for (const RowSpace& space : call.spaces) {
      const auto product = [](const Counts& counts, const Counts& lengths) {
        return [&](int micro_batch) -> std::optional<int64_t> {
          const auto a = SizeAt(counts, micro_batch);
          const auto b = SizeAt(lengths, micro_batch);
          if (!a || !b) return std::nullopt;
          return *a * *b;
        };
      };
      if (fit(product(space.reference, length.reference),
              product(space.candidate, length.candidate))) {
        return DimReading{&space, length.longest, &length};
      }
    }
  }
  for (const RowSpace& space : call.spaces) {
    const int64_t each = MultipleOfUnit(reference, dim, space.reference);
    if (each > 1 && each == MultipleOfUnit(candidate, dim, space.candidate)) {
      return DimReading{&space, each, nullptr};
    }
  }
  return std::nullopt;
}

std::optional<ShapeReading> FedDimensions::Read(
    const TensorPieces& reference, const TensorPieces& candidate) const {
  const RowsOfCall* call = CallOf(candidate);
  if (call == nullptr || call->spaces.empty() ||
      RankOf(reference) != RankOf(candidate) || !HaveOneRank(reference) ||
      !HaveOneRank(candidate) || IsCutByMesh(reference) ||
      IsCutByMesh(candidate)) {
    return std::nullopt;
  }
  ShapeReading out;
  bool has_rows = false;
  for (size_t d = 0; d < RankOf(reference); ++d) {
    auto dim = ReadDim(*call, reference, candidate, d);
    if (!dim) return std::nullopt;
    // A second one of that size is that large by chance, or is a matrix of rows
    // by rows, which moves with them in no way that a layout can say.
    if (dim->space != nullptr && has_rows) {
      if (dim->space->reference.size() > 1 || dim->space->candidate.size() > 1)
        return std::nullopt;
      *dim = DimReading{};
    }
    has_rows = has_rows || dim->space != nullptr;
    out.push_back(*dim);
  }
  return out;
}

bool FedDimensions::HasListedRows(const TensorPieces& candidate) const {
  const RowsOfCall* call = CallOf(candidate);
  if (call == nullptr) return false;
  return std::any_of(
      call->spaces.begin(), call->spaces.end(), [](const RowSpace& space) {
        return std::any_of(
            space.by.begin(), space.by.end(),
            [](const FedName& name) { return name.second == kListDim; });
      });
}

bool FedDimensions::IsUntold(const ShapeReading& shape) {
  return std::any_of(shape.begin(), shape.end(),
                     [](const DimReading& dim) { return dim.untold; });
}

bool FedDimensions::IsPadded(const ShapeReading& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const DimReading& dim) {
    return dim.length != nullptr;
  });
}

bool FedDimensions::HasRows(const ShapeReading& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const DimReading& dim) {
    return dim.space != nullptr;
  });
}

void FedDimensions::Apply(const ShapeReading& shape, bool of_reference,
                          RecordFields* record) {
  record->rows.reset();
  const int micro_batch = record->micro_batch;
  for (size_t d = 0; d < shape.size(); ++d) {
    const DimReading& read = shape[d];
    DimLayout& dim = record->layout.dims[d];
    const int64_t size = record->local_shape[d];
    dim = DimLayout{{{0, size}}, size};
    int64_t pad = 0;
    int64_t held = size;  // of a row
    if (read.length != nullptr) {
      const Counts& lengths =
          of_reference ? read.length->reference : read.length->candidate;
      held = lengths.at(micro_batch);
      if (read.length->at_begin) pad = read.length->longest - held;
      dim = DimLayout{{{pad, held}}, read.length->longest};
    }
    if (read.space == nullptr) continue;
    const Counts& counts =
        of_reference ? read.space->reference : read.space->candidate;
    int64_t begin = 0;
    for (auto it = counts.begin(); it->first != micro_batch; ++it) {
      begin += it->second;
    }
    const int64_t count = counts.at(micro_batch);
    dim.global_size = read.space->total * read.each;
    dim.segments.clear();
    if (read.length == nullptr || held == read.each) {
      dim.segments.push_back({begin * read.each, count * read.each});
    } else {
      for (int64_t r = begin; r < begin + count; ++r) {
        dim.segments.push_back({r * read.each + pad, held});
      }
    }
    record->rows = BatchRows{static_cast<int>(d), begin * read.each,
                             count * read.each, dim.global_size};
  }
}

}  // namespace ttrace
