#include "src/diagnose/find_pattern.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/value_view.h"
#include "src/region/box_words.h"

namespace ttrace {
namespace {

// As many as a picture of a hand's width shows.
constexpr int64_t kBlocksAlong = 32;
constexpr int64_t kElementsOfRowBlock = int64_t{1} << 17;
constexpr int64_t kElementsOfRow = int64_t{1} << 22;
constexpr size_t kMostPieces = 64;

std::vector<int64_t> BlocksOf(int64_t size) {
  const int64_t blocks = std::min(size, kBlocksAlong);
  std::vector<int64_t> begins;
  for (int64_t k = 0; k <= blocks; ++k) {
    begins.push_back((size / blocks) * k + (size % blocks) * k / blocks);
  }
  return begins;
}

// Columns are the last dimension, whose elements lie side by side, rows the
// largest of the others.
void ChooseDims(const Shape& shape, ErrorPattern* out) {
  out->column_dim = static_cast<int>(shape.size()) - 1;
  out->columns = BlocksOf(shape.back());
  out->rows = {0, 1};
  const auto row = std::max_element(shape.begin(), shape.end() - 1);
  if (row == shape.end() - 1) return;
  out->row_dim = static_cast<int>(row - shape.begin());
  out->rows = BlocksOf(*row);
}

struct BlockSum {
  double squares = 0;
  int64_t count = 0;
};

// Squares of errors by block, and of the reference.
class Picture {
 public:
  explicit Picture(ErrorPattern* out) : out_(*out) {
    blocks_.resize((out_.rows.size() - 1) * (out_.columns.size() - 1));
  }

  // Elements of the rows of block `row`, row-major, whole columns.
  void Add(size_t row, const std::vector<double>& reference,
           const std::vector<double>& candidate) {
    const auto width = static_cast<size_t>(out_.columns.back());
    BlockSum* blocks = blocks_.data() + row * (out_.columns.size() - 1);
    for (size_t begin = 0; begin < reference.size(); begin += width) {
      for (size_t c = 0; c + 1 < out_.columns.size(); ++c) {
        for (auto i = static_cast<size_t>(out_.columns[c]);
             i < static_cast<size_t>(out_.columns[c + 1]); ++i) {
          AddElement(reference[begin + i], candidate[begin + i], &blocks[c]);
        }
      }
    }
  }

  void Finish() {
    const double rms = Root(reference_);
    for (const BlockSum& block : blocks_) {
      const double error = Root(block);
      out_.errors.push_back(error == 0 ? 0
                            : rms == 0 ? std::numeric_limits<double>::infinity()
                                       : error / rms);
    }
  }

 private:
  static double Root(const BlockSum& sum) {
    return sum.count == 0
               ? 0
               : std::sqrt(sum.squares / static_cast<double>(sum.count));
  }
  // What neither has, or has no number, says nothing.
  void AddElement(double reference, double candidate, BlockSum* block) {
    if (!std::isfinite(reference)) return;
    reference_.squares += reference * reference;
    ++reference_.count;
    ++block->count;
    block->squares += std::isfinite(candidate)
                          ? (candidate - reference) * (candidate - reference)
                          : std::numeric_limits<double>::infinity();
  }

  ErrorPattern& out_;
  std::vector<BlockSum> blocks_;
  BlockSum reference_;
};

// Of one index of the dimension that rows are of.
int64_t ElementsOfRow(const Shape& shape, int row_dim) {
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int>(d) != row_dim) count *= shape[d];
  }
  return count;
}

Status Draw(const TensorPieces& reference, const TensorPieces& candidate,
            const CompareOptions& options, ErrorPattern* out) {
  const Shape shape = reference.global_shape();
  ChooseDims(shape, out);
  const int64_t of_one = ElementsOfRow(shape, out->row_dim);
  if (of_one > kElementsOfRow) {
    return Error(ErrorCode::kUnsupported, "a row is too long for a picture");
  }
  Picture picture(out);
  for (size_t row = 0; row + 1 < out->rows.size(); ++row) {
    Shape begin(shape.size(), 0);
    Shape size = shape;
    if (out->row_dim >= 0) {
      const auto dim = static_cast<size_t>(out->row_dim);
      const int64_t rows = out->rows[row + 1] - out->rows[row];
      begin[dim] = out->rows[row];
      size[dim] = std::clamp<int64_t>(kElementsOfRowBlock / of_one, 1, rows);
      out->sampled = out->sampled || size[dim] < rows;
    }
    TTRACE_ASSIGN_OR_RETURN(const std::vector<double> theirs,
                            ReadBox(reference, begin, size));
    TTRACE_ASSIGN_OR_RETURN(const std::vector<double> own,
                            ReadBox(candidate, begin, size, options));
    picture.Add(row, theirs, own);
  }
  picture.Finish();
  return Done{};
}

// Elements of a piece by whose error a reader tells good ranks from bad ones.
void ListPieces(const Evidence& evidence, ErrorPattern* out) {
  for (const InstanceStats& instance : evidence.instances) {
    ErrorPattern::Piece& piece = out->pieces.emplace_back();
    piece.ranks = instance.ranks;
    piece.micro_batch = instance.micro_batch;
    piece.box =
        BoxWords(evidence.regions[static_cast<size_t>(instance.region)]);
    piece.err = instance.stats.rel_err();
    piece.mismatched = instance.stats.mismatched;
    piece.elements = instance.stats.count;
  }
  out->pieces_of = static_cast<int64_t>(out->pieces.size());
  if (out->pieces.size() <= kMostPieces) return;
  const auto worse = [](const ErrorPattern::Piece& a,
                        const ErrorPattern::Piece& b) {
    const auto of = [](double err) {
      return std::isnan(err) ? std::numeric_limits<double>::infinity() : err;
    };
    return of(a.err) > of(b.err);
  };
  std::stable_sort(out->pieces.begin(), out->pieces.end(), worse);
  out->pieces.resize(kMostPieces);
  std::sort(out->pieces.begin(), out->pieces.end(),
            [](const ErrorPattern::Piece& a, const ErrorPattern::Piece& b) {
              return std::tie(a.micro_batch, a.ranks) <
                     std::tie(b.micro_batch, b.ranks);
            });
}

bool CanBeDrawn(const Evidence& evidence) {
  if (!ValueView::IsPossible(evidence)) return false;
  const Shape shape = evidence.reference->global_shape();
  if (shape.empty() || shape != evidence.candidate->global_shape() ||
      std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return false;
  }
  // A shape that nobody holds is not read.
  return evidence.reference->MayBeWhole() && evidence.candidate->MayBeWhole() &&
         GivesValues(*evidence.reference) && GivesValues(*evidence.candidate);
}

}  // namespace

std::optional<ErrorPattern> FindPattern(const Evidence& evidence) {
  if (!CanBeDrawn(evidence)) return std::nullopt;
  ErrorPattern out;
  out.leg = evidence.leg->leg;
  const ValueView view(evidence);
  const TensorPieces& candidate =
      view.suspect() != nullptr ? view.suspect()->pieces : *evidence.candidate;
  if (!Draw(*evidence.reference, candidate, evidence.compare, &out).ok()) {
    return std::nullopt;
  }
  ListPieces(evidence, &out);
  return out;
}

}  // namespace ttrace
