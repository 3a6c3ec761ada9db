// X, W, S by slices: parts of the candidate that are wrong equal other parts of
// the reference.
//
// Every dimension is tried. What maps one to one onto itself is a permutation
// (X); what holds something twice is a wrong slice (W), or along the batch,
// where other rows are other micro-batches, a stale value (S). A fault may sit
// in one rank's part of one micro-batch alone, so slices are cut out of the
// piece that holds the worst element: its neighbours' values are right.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/instances.h"
#include "src/compare/sample.h"
#include "src/compare/summaries/kept_sample.h"
#include "src/diagnose/constants.h"
#include "src/diagnose/explained.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/slices.h"
#include "src/diagnose/suspect.h"
#include "src/diagnose/words.h"

namespace ttrace {
namespace {

// The dimension cut into slices: of one index each, or of `block` consecutive
// ones where single ones hold too little to be told apart.
struct Cut {
  size_t dim = 0;
  int64_t block = 1;
  int64_t slices = 0;
  int64_t width = 0;
  SampledBox box;
  // Of a sample: the index of each slice, which is not whole.
  std::vector<int64_t> indices;

  int64_t index(int64_t slice) const {
    return indices.empty() ? slice * block
                           : indices[static_cast<size_t>(slice)];
  }
};

// A box around `place` that is whole along `dim` and small otherwise, the last
// dimensions first, and within `part`.
Cut CutAlong(const Shape& shape, size_t dim, const Shape& place,
             const SampledBox& part) {
  Cut cut;
  cut.dim = dim;
  cut.slices = shape[dim];
  cut.width = 1;
  cut.box.begin = place;
  cut.box.size = Shape(shape.size(), 1);
  cut.box.begin[dim] = 0;
  cut.box.size[dim] = shape[dim];
  int64_t budget =
      std::min(kWidestSlice, kInMemory / std::max<int64_t>(1, shape[dim]));
  for (size_t d = shape.size(); d-- > 0;) {
    if (d == dim) continue;
    const int64_t size = std::clamp<int64_t>(budget, 1, part.size[d]);
    cut.box.size[d] = size;
    cut.box.begin[d] = std::clamp<int64_t>(place[d] - size / 2, part.begin[d],
                                           part.begin[d] + part.size[d] - size);
    cut.width *= size;
    budget /= size;
  }
  return cut;
}

// Values of a box, slice after slice.
std::vector<double> BySlice(const std::vector<double>& values, const Cut& cut) {
  int64_t inner = 1;
  for (size_t d = cut.dim + 1; d < cut.box.size.size(); ++d) {
    inner *= cut.box.size[d];
  }
  const int64_t n = cut.box.size[cut.dim];
  const int64_t outer = static_cast<int64_t>(values.size()) / (n * inner);
  std::vector<double> out;
  out.reserve(values.size());
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t o = 0; o < outer; ++o) {
      const auto from = values.begin() + (o * n + s) * inner;
      out.insert(out.end(), from, from + inner);
    }
  }
  return out;
}

// The length of the candidate's shards along a dimension, if it is one for all.
int64_t ShardLength(const TensorPieces& pieces, size_t dim) {
  int64_t length = 0;
  for (const Record& record : pieces.pieces) {
    for (const Segment& segment : record.layout().dims[dim].segments) {
      if (length != 0 && segment.size != length) return 0;
      length = segment.size;
    }
  }
  return length;
}

// The one rank whose shard of the candidate holds all of [begin, begin + size)
// along `dim`; -1: none, or several copies.
int OwnerOf(const TensorPieces& pieces, size_t dim, int64_t begin,
            int64_t size) {
  int owner = -1;
  for (const Record& record : pieces.pieces) {
    for (const Segment& segment : record.layout().dims[dim].segments) {
      if (begin < segment.begin ||
          begin + size > segment.begin + segment.size) {
        continue;
      }
      if (owner >= 0 && owner != record.rank()) return -1;
      owner = record.rank();
    }
  }
  return owner;
}

// The consecutive indices around `place`, along each dimension, that one piece
// holds.
Result<SampledBox> PartAround(const TensorPieces& candidate, const Shape& shape,
                              const Shape& place,
                              const CompareOptions& options) {
  SampledBox out{Shape(shape.size(), 0), shape};
  TTRACE_ASSIGN_OR_RETURN(const auto groups,
                          GroupInstances(candidate, options));
  for (const InstanceGroup& group : groups) {
    SampledBox part = out;
    bool holds = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto& segments = group.layout.dims[d].segments;
      const auto at = std::find_if(
          segments.begin(), segments.end(), [&](const Segment& segment) {
            return segment.begin <= place[d] &&
                   place[d] < segment.begin + segment.size;
          });
      holds = holds && at != segments.end();
      if (!holds) break;
      part.begin[d] = at->begin;
      part.size[d] = at->size;
    }
    if (holds) return part;
  }
  return out;
}

std::string RunWords(const MovedRun& run, const Cut& cut,
                     const TensorPieces& candidate, bool batch) {
  const int64_t to = cut.index(run.to);
  const int64_t from = cut.index(run.from);
  // What lies between two slices of a sample was not looked at.
  const int64_t length = cut.indices.empty() ? run.length * cut.block : 1;
  const auto range = [&](int64_t begin) {
    return length == 1 ? fmt::format("{}", begin)
                       : fmt::format("{}-{}", begin, begin + length - 1);
  };
  std::string out =
      fmt::format("{} {} {} the reference's {}", batch ? "row" : "index",
                  range(to), length == 1 ? "holds" : "hold", range(from));
  const int there = OwnerOf(candidate, cut.dim, to, length);
  const int origin = OwnerOf(candidate, cut.dim, from, length);
  if (there >= 0 && origin >= 0 && there != origin && !batch) {
    out += fmt::format(" (rank {} holds rank {}'s part)", there, origin);
  }
  return out;
}

std::optional<Diagnosis> MovedAlong(const Cut& cut, const SliceMatch& match,
                                    const ValueView& view) {
  if (!IsEnough(match.explained())) return std::nullopt;
  const Record& piece = view.candidate().pieces.front();
  const bool batch =
      piece.rows() && static_cast<size_t>(piece.rows()->dim) == cut.dim;
  const std::vector<MovedRun> runs = MovedRuns(match);
  std::string moved;
  for (size_t i = 0; i < runs.size() && i < 2; ++i) {
    if (i > 0) moved += ", ";
    moved += RunWords(runs[i], cut, view.candidate(), batch);
  }
  if (runs.size() > 2) moved += ", ...";
  Diagnosis out{match.bijection ? BugClass::kPermutation
                : batch         ? BugClass::kStaleValue
                                : BugClass::kWrongSlice,
                "", static_cast<double>(match.matched)};
  out.evidence = fmt::format(
      "along {} (dimension {}), {} of {} slices are wrong and {} of these "
      "equal "
      "other slices of the reference within the bound: {}",
      batch ? "the batch" : "one axis", cut.dim, match.wrong.size(),
      match.slices, match.matched, moved);
  out.evidence += match.bijection
                      ? "; one to one: the right values in the wrong places"
                      : "; some are there twice and others not at all";
  return out;
}

// Of the share of slices that are explained, the largest.
class BestCut {
 public:
  void Try(const Cut& cut, const SliceMatch& match, const ValueView& view) {
    const double share =
        static_cast<double>(match.matched) /
        static_cast<double>(std::max<size_t>(1, match.wrong.size()));
    if (share <= matched_) return;
    if (auto found = MovedAlong(cut, match, view)) {
      best_ = std::move(found);
      matched_ = share;
    }
  }
  std::optional<Diagnosis> Take() && { return std::move(best_); }

 private:
  std::optional<Diagnosis> best_;
  double matched_ = 0;
};

// Slices of what was kept: their elements lie at the same places of each.
std::optional<Diagnosis> MovedInSample(const ValueView& view,
                                       const SampledPair& pair) {
  BestCut best;
  const size_t dims = pair.indices.size();
  for (size_t dim = 0; dim < dims; ++dim) {
    Cut cut;
    cut.dim = dim;
    cut.box.begin = Shape(dims, 0);
    cut.indices = pair.indices[dim];
    for (const auto& indices : pair.indices) {
      cut.box.size.push_back(static_cast<int64_t>(indices.size()));
    }
    cut.slices = cut.box.size[dim];
    cut.width = static_cast<int64_t>(pair.reference.size()) / cut.slices;
    if (cut.slices < 2 || cut.width < kNarrowestSlice) continue;
    best.Try(
        cut,
        MatchSlices(BySlice(pair.reference, cut), BySlice(pair.candidate, cut),
                    cut.slices, cut.width, view.bound()),
        view);
  }
  auto found = std::move(best).Take();
  if (found) found->evidence += SampleWords(pair);
  return found;
}

}  // namespace

std::optional<Diagnosis> MovedSlices(const ValueView& view) {
  const Suspect* suspect = view.suspect();
  if (suspect == nullptr) return std::nullopt;
  const Shape shape = view.reference().global_shape();
  if (!GivesValues(view.reference()) || !GivesValues(suspect->pieces)) {
    return MovedInSample(view, suspect->pair);
  }
  const auto part = PartAround(suspect->pieces, shape, suspect->place,
                               view.evidence().compare);
  if (!part.ok()) return std::nullopt;

  BestCut best;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 2 || shape[dim] > kInMemory / kNarrowestSlice) continue;
    Cut cut = CutAlong(shape, dim, suspect->place, *part);
    if (cut.width < kNarrowestSlice) {
      // Too little in one index: whole shards, if there are several.
      const int64_t shard = ShardLength(view.candidate(), dim);
      if (shard * cut.width < kNarrowestSlice || shape[dim] % shard != 0)
        continue;
      cut.block = shard;
    }
    const auto reference =
        ReadBox(view.reference(), cut.box.begin, cut.box.size);
    const auto candidate = ReadBox(suspect->pieces, cut.box.begin, cut.box.size,
                                   view.evidence().compare);
    if (!reference.ok() || !candidate.ok()) return std::nullopt;
    const SliceMatch match = MatchSlices(
        BySlice(*reference, cut), BySlice(*candidate, cut),
        cut.slices / cut.block, cut.width * cut.block, view.bound());
    best.Try(cut, match, view);
  }
  return std::move(best).Take();
}

}  // namespace ttrace
