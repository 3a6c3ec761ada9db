#include "src/in_place/element_scales.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "src/compare/cells/compare_cells.h"
#include "src/compare/layout_overlap.h"
#include "src/measure/packed.h"
#include "src/measure/sound_facts.h"

namespace ttrace {
namespace {

// Where what a rank holds of a tensor lies, with micro-batches, sorted.
using Places = std::vector<std::pair<Layout, int>>;

// A sum of squares, taken apart (ExactSum::Parts).
struct Squares {
  uint64_t tensor = 0;
  int places = 0;  // which of the message's
  bool finite = true;
  uint32_t first = 0;
  std::vector<uint32_t> digits;
};

template <typename A>
void VisitFields(A& field, Squares& s) {
  field("tensor", s.tensor);
  field("places", s.places);
  field("finite", s.finite);
  field("first", s.first);
  field("digits", s.digits);
}

struct Told {
  std::vector<Places> places;
  std::vector<Squares> tensors;
};

template <typename A>
void VisitFields(A& field, Told& t) {
  field("places", t.places);
  field("tensors", t.tensors);
}

using Answer = std::vector<std::pair<uint64_t, double>>;

template <typename T>
std::string Packed(const T& value) {
  Packer out;
  out.Add(value);
  return out.bytes();
}

// The same on all ranks.
uint64_t NumberOf(const Leg& leg, const TensorId& id) {
  Packer out;
  out.Add(leg.name());
  out.Add(id.fqn);
  out.Add(id.role);
  out.Add(id.iteration);
  out.Add(id.call);
  out.Add(id.arg);
  out.Add(id.pass);
  return XXH3_64bits(out.bytes().data(), out.bytes().size());
}

// The elements of a tensor of which these are all, each once. Nothing if they
// are not. REQUIRES: sound layouts
std::optional<int64_t> WholeOf(const std::vector<const Layout*>& parts) {
  const Shape shape = parts.front()->global_shape();
  int64_t count = 0;
  for (const Layout* part : parts) {
    if (part->global_shape() != shape) return std::nullopt;
    if (__builtin_add_overflow(count, part->local_count(), &count)) {
      return std::nullopt;
    }
  }
  if (count != parts.front()->global_count() ||
      MeasureOverlap(parts, {}).twice_a != 0) {
    return std::nullopt;
  }
  return count;
}

double ScaleOf(bool finite, const ExactSum& squares, int64_t count) {
  return ElementScaleOf(
      finite ? squares.Value() : std::numeric_limits<double>::quiet_NaN(),
      count);
}

Error Damaged(size_t rank) {
  return Error(ErrorCode::kCorrupt,
               "what rank " + std::to_string(rank) +
                   " says of its tensors' sizes cannot be read");
}

// Whether it can be a piece of a tensor: its elements can be counted.
bool IsPiece(const Layout& layout) {
  return !layout.dims.empty() && IsSound(layout) &&
         std::all_of(layout.dims.begin(), layout.dims.end(),
                     [](const DimLayout& dim) {
                       return dim.local_size() <= dim.global_size;
                     });
}

bool IsSound(const Told& told) {
  for (const Places& places : told.places) {
    if (places.empty()) return false;
    for (const auto& [layout, micro_batch] : places) {
      if (!IsPiece(layout)) return false;
    }
  }
  return std::all_of(
      told.tensors.begin(), told.tensors.end(), [&](const Squares& of) {
        return of.places >= 0 && std::cmp_less(of.places, told.places.size());
      });
}

// Adds up what ranks tell, one after the other.
class Adder {
 public:
  // False: these are no messages of ours.
  bool Add(std::string_view message) {
    Told told;
    Unpacker in(message);
    in.Take(&told);
    if (!in.done() || !IsSound(told)) return false;
    std::vector<int> numbers;
    for (const Places& places : told.places) {
      const auto [found, is_new] =
          known_.try_emplace(Packed(places), static_cast<int>(places_.size()));
      if (is_new) places_.push_back(places);
      numbers.push_back(found->second);
    }
    for (const Squares& of : told.tensors) {
      const auto sum = ExactSum::PutTogether({false, of.first, of.digits, 0});
      if (!sum) return false;
      Tensor& tensor = tensors_[of.tensor];
      const int places = numbers[static_cast<size_t>(of.places)];
      // A copy, of a lower rank.
      if (!tensor.places.insert(places).second) continue;
      tensor.squares.Merge(*sum);
      tensor.finite = tensor.finite && of.finite;
    }
    return true;
  }

  Answer Take() {
    Answer out;
    for (const auto& [number, tensor] : tensors_) {
      const std::optional<int64_t> count = CountOf(tensor.places);
      if (!count) continue;
      out.emplace_back(number, ScaleOf(tensor.finite, tensor.squares, *count));
    }
    return out;
  }

 private:
  struct Tensor {
    std::set<int> places;
    ExactSum squares;
    bool finite = true;
  };

  // Elements of the whole that these make; nothing if they make none.
  std::optional<int64_t> CountOf(const std::set<int>& places) {
    const auto [found, is_new] = counts_.try_emplace(places);
    if (is_new) {
      std::vector<const Layout*> parts;
      for (const int number : places) {
        for (const auto& [layout, micro_batch] :
             places_[static_cast<size_t>(number)]) {
          parts.push_back(&layout);
        }
      }
      found->second = WholeOf(parts);
    }
    return found->second;
  }

  std::map<std::string, int> known_;  // packed: a number
  std::vector<Places> places_;
  std::map<uint64_t, Tensor> tensors_;
  std::map<std::set<int>, std::optional<int64_t>> counts_;
};

}  // namespace

void ElementScales::Add(const RecordFields& piece, const ErrorSums& squares,
                        bool alone) {
  const std::lock_guard lock(mutex_);
  if (piece.id.iteration != iteration_) {
    held_.clear();
    learned_.clear();
    iteration_ = piece.id.iteration;
  }
  Held& held = held_[{piece.leg, piece.id}];
  held.usable = held.usable && !held.told;  // what others know must not change
  if (!held.usable) return;
  held.pieces.emplace_back(piece.layout, piece.micro_batch);
  held.squares.Merge(squares.sum_sq_ref);
  held.finite = held.finite && squares.nonfinite_ref == 0;
  held.alone = held.alone || alone;
}

bool ElementScales::MeansSomething(const Held& held) {
  return held.usable && !(held.alone && held.pieces.size() > 1);
}

bool ElementScales::IsWhole(const Held& held) {
  std::vector<const Layout*> parts;
  for (const auto& [layout, micro_batch] : held.pieces) {
    parts.push_back(&layout);
  }
  return WholeOf(parts).has_value();
}

std::optional<double> ElementScales::Find(const Leg& leg, const TensorId& id) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find({leg, id});
  if (found == held_.end() || !MeansSomething(found->second)) {
    return std::nullopt;
  }
  const Held& held = found->second;
  if (IsWhole(held)) {
    return ScaleOf(held.finite, held.squares,
                   held.pieces.front().first.global_count());
  }
  const auto learned = learned_.find(NumberOf(leg, id));
  return learned == learned_.end() ? std::nullopt
                                   : std::optional(learned->second);
}

std::string ElementScales::Message() {
  const std::lock_guard lock(mutex_);
  Told told;
  std::map<std::string, int> known;
  for (auto& [key, held] : held_) {
    if (std::exchange(held.told, true)) continue;
    if (!MeansSomething(held) || IsWhole(held)) continue;
    // Ranks need not have met their micro-batches in one order.
    std::sort(held.pieces.begin(), held.pieces.end(),
              [](const auto& a, const auto& b) {
                return a.second != b.second ? a.second < b.second
                                            : Packed(a.first) < Packed(b.first);
              });
    const auto [place, is_new] = known.try_emplace(
        Packed(held.pieces), static_cast<int>(told.places.size()));
    if (is_new) told.places.push_back(held.pieces);
    const ExactSum::Parts parts = held.squares.TakeApart();
    told.tensors.push_back({NumberOf(key.first, key.second), place->second,
                            held.finite, parts.first, parts.digits});
  }
  return Packed(told);
}

Status ElementScales::Learn(std::string_view answer) {
  Answer scales;
  Unpacker in(answer);
  in.Take(&scales);
  const bool good =
      in.done() &&
      std::all_of(scales.begin(), scales.end(), [](const auto& of) {
        return std::isfinite(of.second) && of.second >= 0;
      });
  if (!good) {
    return Error(ErrorCode::kCorrupt,
                 "what was found of the tensors' sizes cannot be read");
  }
  const std::lock_guard lock(mutex_);
  learned_.insert(scales.begin(), scales.end());
  return Done{};
}

Result<std::string> AddUpScales(const std::vector<std::string>& messages) {
  Adder adder;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (!adder.Add(messages[rank])) return Damaged(rank);
  }
  return Packed(adder.Take());
}

}  // namespace ttrace
