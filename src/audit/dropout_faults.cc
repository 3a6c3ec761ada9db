#include "src/audit/dropout_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/audit/stated_fault.h"

namespace ttrace {
namespace {

// Of the digests and of the masks themselves; see the header.
constexpr double kBits = 64;
// Samples of two inputs of one place that are alike to this degree may be
// copies that round-off keeps apart: neither rule applies. Empirical: copies in
// bf16 correlate above 0.9999, hidden states of different tokens below 0.9.
constexpr double kNearCopy = 0.99;

double Bits(const DropoutMask& mask) {
  const double p = mask.p;
  return -static_cast<double>(mask.elements) *
         std::log2(p * p + (1 - p) * (1 - p));
}

// Whether the samples are of clearly different data.
bool FarApart(const DropoutMask& a, const DropoutMask& b) {
  if (a.sample.size() != b.sample.size()) return false;
  const auto n = static_cast<double>(a.sample.size());
  double mean_a = 0;
  double mean_b = 0;
  for (size_t i = 0; i < a.sample.size(); ++i) {
    mean_a += a.sample[i] / n;
    mean_b += b.sample[i] / n;
  }
  double aa = 0;
  double bb = 0;
  double ab = 0;
  for (size_t i = 0; i < a.sample.size(); ++i) {
    aa += (a.sample[i] - mean_a) * (a.sample[i] - mean_a);
    bb += (b.sample[i] - mean_b) * (b.sample[i] - mean_b);
    ab += (a.sample[i] - mean_a) * (b.sample[i] - mean_b);
  }
  // Constant samples tell nothing.
  return aa > 0 && bb > 0 && ab <= kNearCopy * std::sqrt(aa * bb);
}

// Whether the two dropped one value at one place.
bool AreCopies(const DropoutMask& a, const DropoutMask& b) {
  return a.iteration == b.iteration && a.fqn == b.fqn && a.call == b.call &&
         a.micro_batch == b.micro_batch && a.input == b.input;
}

// Whether the two dropped different data. Only what one place computes of one
// micro-batch can be there in copies; elsewhere values may be as alike as those
// of near uniform attention, and their masks still have to differ.
bool Different(const DropoutMask& a, const DropoutMask& b) {
  if (a.input == b.input) return false;
  const bool one_place = a.iteration == b.iteration && a.fqn == b.fqn &&
                         a.micro_batch == b.micro_batch;
  return !one_place || FarApart(a, b);
}

enum class Kind {
  kCopies,        // ranks that hold one value dropped different parts of it
  kRecompute,     // a repeated forward dropped other values
  kRanks,         // one mask for different data of several ranks
  kLayers,        // ... for several places in the model
  kMicroBatches,  // ... for several micro-batches of one rank
  kIterations,    // ... in several iterations
};

// Violations of one kind.
struct Found {
  DropoutMask first;
  DropoutMask second;
  int64_t count = 0;  // masks
  std::set<int> ranks;
  std::set<std::string> fqns;
};

class Audit {
 public:
  Audit(const DropoutFacts& run, const RanksInMesh& ranks, bool spoilt,
        const std::optional<IterationRange>& iterations)
      : ranks_(ranks), spoilt_(spoilt) {
    for (const DropoutMask& mask : run.masks) {
      if (iterations && !iterations->contains(mask.iteration)) continue;
      if (Bits(mask) >= kBits) masks_.push_back(&mask);
    }
    std::stable_sort(masks_.begin(), masks_.end(),
                     [](const DropoutMask* a, const DropoutMask* b) {
                       return std::tie(a->iteration, a->rank) <
                              std::tie(b->iteration, b->rank);
                     });
  }

  // By kind, and for ranks by the mesh dimensions that tell them apart.
  std::map<std::pair<Kind, std::set<std::string>>, Found> Run() {
    CompareRecomputed();
    CompareCopies();
    CompareOthers();
    return std::move(found_);
  }
  int64_t judged() const { return static_cast<int64_t>(masks_.size()); }
  // Modules with a mask that was judged.
  int64_t modules() const {
    std::set<std::string> fqns;
    for (const DropoutMask* m : masks_) fqns.insert(m->fqn);
    return static_cast<int64_t>(fqns.size());
  }

 private:
  void CompareRecomputed() {
    std::map<std::tuple<int, int, std::string, int, int>, const DropoutMask*>
        forwards;
    const auto key = [](const DropoutMask& m) {
      return std::make_tuple(m.rank, m.iteration, m.fqn, m.call, m.micro_batch);
    };
    for (const DropoutMask* m : masks_) {
      if (!m->recompute) forwards.emplace(key(*m), m);
    }
    for (const DropoutMask* m : masks_) {
      if (!m->recompute) continue;
      const auto forward = forwards.find(key(*m));
      if (forward != forwards.end() && forward->second->input == m->input &&
          forward->second->mask != m->mask) {
        Add(Kind::kRecompute, {}, *forward->second, *m);
      }
    }
  }

  // Where inputs are equal bit by bit. Equal places without equal inputs are
  // shards.
  void CompareCopies() {
    std::map<std::tuple<int, std::string, int, int, std::string>,
             const DropoutMask*>
        first;
    for (const DropoutMask* m : masks_) {
      // What repeats within one rank may repeat on another by itself.
      if (m->recompute || m->repeats) continue;
      const auto [it, is_new] =
          first.emplace(std::make_tuple(m->iteration, m->fqn, m->call,
                                        m->micro_batch, m->input),
                        m);
      if (!is_new && it->second->mask != m->mask) {
        Add(Kind::kCopies, {}, *it->second, *m);
      }
    }
  }

  // Ranks that dropped one value by one mask.
  struct Holders {
    const DropoutMask* first = nullptr;
    std::vector<int> ranks;
  };

  // In the order of masks_, so that what is named is what came first.
  void CompareOthers() {
    // (mask, elements) -> those seen so far. A mask may be drawn many times
    // over: a few of them show that.
    constexpr size_t kKept = 64;
    std::map<std::pair<std::string, int64_t>, std::vector<Holders>> seen;
    for (const DropoutMask* m : masks_) {
      if (m->recompute) continue;
      auto& same = seen[{m->mask, m->elements}];
      Holders* own = nullptr;
      // The nearest of those that came before says most.
      const Holders* nearest = nullptr;
      for (Holders& other : same) {
        if (AreCopies(*other.first, *m)) own = &other;
        if (Different(*other.first, *m) &&
            (nearest == nullptr ||
             KindOf(*other.first, *m) < KindOf(*nearest->first, *m))) {
          nearest = &other;
        }
      }
      if (nearest != nullptr) AddSame(*nearest, *m);
      if (own != nullptr) {
        own->ranks.push_back(m->rank);
      } else if (same.size() < kKept) {
        same.push_back({m, {m->rank}});
      }
    }
  }

  void AddSame(const Holders& others, const DropoutMask& b) {
    DropoutMask a = *others.first;
    const Kind kind = KindOf(a, b);
    if (kind != Kind::kRanks) {
      Add(kind, {}, a, b);
    } else if (!spoilt_ || a.micro_batch != b.micro_batch) {
      // Where tp ranks hold copies, what differs along dp also differs along
      // both: the copy that is apart in the fewest dimensions tells which.
      std::set<std::string> apart = Apart(a, b);
      for (const int rank : others.ranks) {
        if (apart.size() <= 1) break;
        DropoutMask copy = a;
        copy.rank = rank;
        std::set<std::string> dims = Apart(copy, b);
        if (rank != b.rank && dims.size() < apart.size()) {
          apart = std::move(dims);
          a.rank = rank;
        }
      }
      Add(kind, apart, a, b);
    }
  }

  static Kind KindOf(const DropoutMask& a, const DropoutMask& b) {
    if (a.iteration != b.iteration) return Kind::kIterations;
    if (a.fqn != b.fqn || a.call != b.call) return Kind::kLayers;
    return a.rank == b.rank ? Kind::kMicroBatches : Kind::kRanks;
  }

  std::set<std::string> Apart(const DropoutMask& a,
                              const DropoutMask& b) const {
    std::set<std::string> out;
    const auto x = static_cast<size_t>(a.rank);
    const auto y = static_cast<size_t>(b.rank);
    if (std::max(x, y) >= ranks_.coordinates.size()) return out;
    const Coordinate& at = ranks_.coordinates[x];
    const Coordinate& to = ranks_.coordinates[y];
    for (size_t d = 0; d < std::min(at.size(), to.size()); ++d) {
      if (at[d] != to[d]) out.insert(ranks_.mesh.dims[d].name);
    }
    return out;
  }

  void Add(Kind kind, const std::set<std::string>& dims, const DropoutMask& a,
           const DropoutMask& b) {
    const auto [it, is_new] =
        found_.emplace(std::make_pair(kind, dims), Found{});
    Found& found = it->second;
    if (is_new) {
      found.first = a;
      found.second = b;
    }
    ++found.count;
    found.ranks.insert({a.rank, b.rank});
    found.fqns.insert({a.fqn, b.fqn});
  }

  const RanksInMesh& ranks_;
  bool spoilt_;
  std::vector<const DropoutMask*> masks_;
  std::map<std::pair<Kind, std::set<std::string>>, Found> found_;
};

std::string Name(const std::string& fqn) {
  return fqn.empty() ? "the model" : fqn;
}

std::string Words(Kind kind, const std::set<std::string>& dims,
                  const Found& found) {
  const DropoutMask& a = found.first;
  const DropoutMask& b = found.second;
  switch (kind) {
    case Kind::kCopies:
      return fmt::format(
          "ranks {} and {} hold the same input of a dropout in {} and drop "
          "different parts of it",
          a.rank, b.rank, Name(a.fqn));
    case Kind::kRecompute:
      return fmt::format(
          "the recomputed forward of {} drops other values than the forward "
          "itself (rank {})",
          Name(a.fqn), a.rank);
    case Kind::kRanks:
      return fmt::format(
          "ranks {} and {}{} have different inputs of a dropout in {} and the "
          "same mask",
          a.rank, b.rank,
          dims.empty() ? ""
                       : fmt::format(" (apart in {})", fmt::join(dims, ", ")),
          Name(a.fqn));
    case Kind::kLayers:
      return fmt::format(
          "dropout {} in {} and dropout {} in {} have the same mask (ranks {} "
          "and {})",
          a.call, Name(a.fqn), b.call, Name(b.fqn), a.rank, b.rank);
    case Kind::kMicroBatches:
      return fmt::format(
          "micro-batches {} and {} of rank {} have the same mask in {}",
          a.micro_batch, b.micro_batch, a.rank, Name(a.fqn));
    case Kind::kIterations:
      return fmt::format("iterations {} and {} have the same mask in {}",
                         a.iteration, b.iteration, Name(b.fqn));
  }
  return "";
}

std::string ProbabilityWords(double p, double wanted) {
  if (p == 0) {
    return fmt::format(
        "dropout drops nothing (its probability is 0, or it is in evaluation "
        "mode) where the reference drops with probability {}",
        wanted);
  }
  if (wanted == 0) {
    return fmt::format(
        "dropout drops with probability {} where the reference drops nothing "
        "(its probability is 0, or it is in evaluation mode)",
        p);
  }
  return fmt::format(
      "dropout drops with probability {} where the reference has {}", p,
      wanted);
}

Culprit Describe(Kind kind, const std::set<std::string>& dims,
                 const Found& found, int64_t judged, int64_t modules) {
  StatedFault fault;
  fault.tensor = {found.first.fqn,
                  Role::kOutput,
                  found.second.iteration,
                  0,
                  "0",
                  kind == Kind::kRecompute ? Pass::kRecompute : Pass::kForward};
  fault.ranks = found.ranks;
  fault.fqns.assign(found.fqns.begin(), found.fqns.end());
  fault.of = modules;
  fault.where = "read from the masks that the untouched run drew";
  fault.found_by = "masks";
  fault.diagnosis = {BugClass::kDropoutMasks,
                     fmt::format("{}: {} of {} masks (p {:.3g}; {} values)",
                                 Words(kind, dims, found), found.count, judged,
                                 found.first.p, found.first.elements)};
  return CulpritOf(fault);
}

}  // namespace

RanksInMesh RanksOf(const Trace& trace) {
  RanksInMesh out;
  out.mesh = trace.mesh();
  for (const RankTrace& rank : trace.ranks()) {
    const auto index = static_cast<size_t>(rank.meta.rank);
    if (out.coordinates.size() <= index) out.coordinates.resize(index + 1);
    out.coordinates[index] = rank.meta.coordinate;
  }
  return out;
}

DropoutFaults FindDropoutFaults(
    const DropoutFacts& run, const RanksInMesh& ranks, bool spoilt,
    const std::optional<IterationRange>& iterations) {
  DropoutFaults out;
  Audit audit(run, ranks, spoilt, iterations);
  for (const auto& [what, found] : audit.Run()) {
    const auto& [kind, dims] = what;
    const bool known = kind == Kind::kRanks && !dims.empty() &&
                       std::includes(run.alike.begin(), run.alike.end(),
                                     dims.begin(), dims.end());
    if (known) {
      out.notes.push_back(fmt::format("{}: {} of {} masks; {}",
                                      Words(kind, dims, found), found.count,
                                      audit.judged(), run.alike_why));
    } else {
      out.culprits.push_back(
          Describe(kind, dims, found, audit.judged(), audit.modules()));
    }
  }
  std::stable_sort(out.culprits.begin(), out.culprits.end(),
                   [](const Culprit& a, const Culprit& b) {
                     return a.iteration < b.iteration;
                   });
  if (run.malformed > 0) {
    out.notes.push_back(
        fmt::format("{} notes about dropout cannot be read and were ignored",
                    run.malformed));
  }
  return out;
}

DropoutFaults CompareProbabilities(
    const DropoutFacts& reference, const DropoutFacts& candidate,
    const std::optional<IterationRange>& iterations) {
  using Place = std::tuple<int, std::string, int>;  // iteration, module, call
  const auto at = [](const DropoutMask& mask) {
    return Place{mask.iteration, mask.fqn, mask.call};
  };
  std::map<Place, std::set<double>> wanted;
  for (const DropoutMask& mask : reference.masks) {
    wanted[at(mask)].insert(mask.p);
  }
  std::set<std::string> compared;
  std::set<std::string> others;
  std::set<int> ranks;
  const DropoutMask* first = nullptr;
  double first_wanted = 0;
  for (const DropoutMask& mask : candidate.masks) {
    if (iterations && !iterations->contains(mask.iteration)) continue;
    const auto found = wanted.find(at(mask));
    if (found == wanted.end()) continue;
    compared.insert(mask.fqn);
    if (found->second.contains(mask.p)) continue;
    others.insert(mask.fqn);
    ranks.insert(mask.rank);
    if (first == nullptr || mask.iteration < first->iteration) {
      first = &mask;
      first_wanted = *found->second.begin();
    }
  }
  DropoutFaults out;
  if (first == nullptr) return out;
  StatedFault fault;
  fault.tensor = {first->fqn, Role::kOutput, first->iteration,
                  0,          "0",           Pass::kForward};
  fault.ranks = std::move(ranks);
  fault.fqns.assign(others.begin(), others.end());
  fault.of = static_cast<int64_t>(compared.size());
  fault.where = "read from the call";
  fault.found_by = "masks";
  fault.diagnosis = {
      BugClass::kOtherHyperparameters,
      fmt::format("{}, in {} of {} modules (iteration {})",
                  ProbabilityWords(first->p, first_wanted), others.size(),
                  compared.size(), first->iteration)};
  out.culprits.push_back(CulpritOf(fault));
  return out;
}

std::string DropoutPreventsComparison(const DropoutFacts& reference,
                                      const DropoutFacts& candidate) {
  const bool of_reference = reference.active && !reference.off;
  const bool of_candidate = candidate.active && !candidate.off;
  if (!of_reference && !of_candidate) return "";
  const std::string p =
      fmt::format("{:.3g}", std::max(of_reference ? reference.p_max : 0,
                                     of_candidate ? candidate.p_max : 0));
  return fmt::format(
      "{} ran with dropout (p {}), whose masks differ between topologies: "
      "record {} with --dropout off",
      of_reference && of_candidate ? "both sides"
      : of_reference               ? "the reference"
                                   : "the candidate",
      p,
      of_reference && of_candidate ? "both"
      : of_reference               ? "it again"
                                   : "it");
}

std::string DropoutIsOff(const DropoutFacts& run) {
  if (!run.active || !run.off) return "";
  const auto drawn =
      std::count_if(run.masks.begin(), run.masks.end(),
                    [](const DropoutMask& mask) { return mask.p > 0; });
  return fmt::format(
      "dropout (p up to {:.3g}) was switched off, so that the runs can be "
      "compared; {} masks of the run's own were audited",
      run.p_max, drawn);
}

}  // namespace ttrace
