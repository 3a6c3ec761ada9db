#include "src/experiment/rounding.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"

namespace ttrace {
namespace {

const double kFp32 = UnitRoundoff(DType::kF32);

bool IsForward(const TensorId& id) {
  return id.role == Role::kInput || id.role == Role::kOutput ||
         id.role == Role::kLoss;
}

// What a module computes with: what goes in and out of it, both ways.
bool TellsPrecision(Role role) {
  return role == Role::kInput || role == Role::kOutput ||
         role == Role::kGradInput || role == Role::kGradOutput;
}

int64_t CountOf(const std::map<TensorId, int64_t>& counts, const TensorId& id) {
  const auto found = counts.find(id);
  return found == counts.end() ? 1 : found->second;
}

double RoundoffOf(const TensorPieces& pieces) {
  return UnitRoundoff(pieces.pieces.front()->dtype);
}

// The variance of a low-precision sum over n ranks, in units of one rounding of
// its result: uncorrelated terms are rounded (1 in all), and each of the n - 1
// partial sums, of which the one of i terms has i / n of the result's variance.
double RoundingsOverRanks(int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  return 1 + (n - 1) * (n + 2) / (2 * n);
}

}  // namespace

// Low-precision kernels sum in fp32, so a result is rounded once, which is what
// a noise leg does, and the difference of two runs holds two such roundings.
// But what ranks sum they sum in the values' own precision, one after the other
// in a ring. In an fp32 leg the sum itself rounds at each of its K terms, too:
// the rounding errors of a random walk of partial sums add up to sqrt(K / 2)
// times that of one rounding. Any other order is better, and both runs may use
// any. Source: N. Higham, T. Mary, A new approach to probabilistic rounding
// error analysis, 2019 (errors of sums grow with sqrt(K)).
double SummationGrowth(const Rounding& rounding) {
  if (rounding.unit_roundoff > kFp32) {
    return std::sqrt((RoundingsOverRanks(rounding.reference_ranks) +
                      RoundingsOverRanks(rounding.candidate_ranks)) /
                     2);
  }
  return std::max(1.0,
                  std::sqrt(static_cast<double>(rounding.longest_sum) / 2));
}

// A value 2^e m is rounded by up to 2^e u, evenly: its square is 4^e u^2 / 3 on
// average. Over mantissas m whose logarithm is even, m^2 is 3 / (2 ln 2).
double PartialSumRounding(const Rounding& rounding) {
  if (rounding.unit_roundoff <= kFp32) return 0;
  const double one = 2 * std::numbers::ln2 / 9;
  const auto partial_sums = static_cast<double>(
      rounding.reference_ranks - 1 + rounding.candidate_ranks - 1 +
      rounding.reference_terms - 1 + rounding.candidate_terms - 1);
  return rounding.unit_roundoff * std::sqrt(one * partial_sums);
}

RoundingOfTensors::RoundingOfTensors(const Side& reference,
                                     const Side& candidate) {
  ReadPrecisions(reference);
  ReadDimensions(reference);
  reference_sums_ = SumsOf(reference, reference);
  candidate_sums_ = SumsOf(reference, candidate);
}

void RoundingOfTensors::ReadPrecisions(const Side& reference) {
  lowest_ = UnitRoundoff(reference.ComputeDType().value_or(DType::kF32));
  for (const auto& [id, pieces] : reference.real()) {
    if (!TellsPrecision(id.role)) continue;
    double& unit = modules_[id.fqn].unit_roundoff;
    unit = std::max(unit, RoundoffOf(pieces));
  }
  for (const auto& [module, dtype] : reference.precision_inside()) {
    double& unit = modules_[module].unit_roundoff;
    unit = std::max(unit, UnitRoundoff(dtype));
  }
}

void RoundingOfTensors::ReadDimensions(const Side& reference) {
  for (const auto& [id, pieces] : reference.real()) {
    const Shape shape = pieces.global_shape();
    if (id.role == Role::kParam || id.role == Role::kGradReduced) {
      if (shape.empty()) continue;
      const int64_t any = *std::max_element(shape.begin(), shape.end());
      inner_ = std::max(inner_, shape.back());
      any_ = std::max(any_, any);
      // Of the module, and of all that contain it.
      for (std::string name = ParentName(id.fqn);; name = ParentName(name)) {
        Module& module = modules_[name];
        module.inner = std::max(module.inner, shape.back());
        module.any = std::max(module.any, any);
        if (name.empty()) break;
      }
    } else if (id.fqn.empty() && id.role == Role::kInput) {
      // Token ids are [batch, sequence]; floating inputs carry features last.
      const bool tokens_only = !Info(pieces.pieces.front()->dtype).floating;
      const size_t dims =
          tokens_only || shape.size() < 2 ? shape.size() : shape.size() - 1;
      int64_t tokens = 1;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (d < dims) tokens *= std::max<int64_t>(1, shape[d]);
        sequence_ = std::max(sequence_, shape[d]);
      }
      // Masks and positions may be larger than what they belong to.
      if (tokens_only && shape.size() <= 2) tokens_ = std::max(tokens_, tokens);
      if (!tokens_only) tokens_ = std::max(tokens_, tokens);
    }
  }
}

RoundingOfTensors::Sums RoundingOfTensors::SumsOf(const Side& reference,
                                                  const Side& side) const {
  Sums out;
  const int64_t micro_batches = side.MicroBatchesPerRank();
  std::map<std::string, int64_t> uses;  // of a module in one micro-batch
  for (const auto& [id, pieces] : side.real()) {
    if (id.role != Role::kOutput || id.pass != Pass::kForward) continue;
    int64_t& calls = uses[id.fqn];
    calls = std::max<int64_t>(calls, id.call + 1);
  }
  for (const auto& [id, pieces] : side.real()) {
    if (IsParameterGradient(id.role)) {
      // Uses in one micro-batch are added in the precision of the module, which
      // may work on a copy of the parameter.
      const Module* module = ModuleOf(id);
      const bool low = RoundoffOf(pieces) > kFp32;
      const bool low_inside =
          module != nullptr && module->unit_roundoff > kFp32;
      int64_t& terms = out.terms[id];
      terms = low ? micro_batches : 1;
      if (low || low_inside) {
        terms *= std::max<int64_t>(1, uses[ParentName(id.fqn)]);
      }
    }
    const TensorPieces* same = reference.FindSameValue("real", id);
    if (same == nullptr || RoundoffOf(*same) <= kFp32) continue;
    int64_t ranks = 1;
    const Record& first = *pieces.pieces.front();
    const DeviceMesh& mesh = side.trace().mesh(first.grid);
    for (const std::string& name : first.reduced_over) {
      const int dim = mesh.Find(name);
      if (dim >= 0) ranks *= mesh.dims[static_cast<size_t>(dim)].size;
    }
    if (ranks <= 1) continue;
    out.own[id] = ranks;
    if (IsParameterGradient(id.role)) continue;
    int64_t& longest = IsForward(id) ? out.forward : out.backward;
    longest = std::max(longest, ranks);
  }
  out.backward = std::max(out.backward, out.forward);
  return out;
}

const RoundingOfTensors::Module* RoundingOfTensors::ModuleOf(
    const TensorId& id) const {
  // A loss is made of what the model returns.
  if (id.role == Role::kLoss) {
    const auto root = modules_.find("");
    return root == modules_.end() ? nullptr : &root->second;
  }
  std::string name = IsParameterGradient(id.role) ? ParentName(id.fqn) : id.fqn;
  const auto found = modules_.find(name);
  return found == modules_.end() ? nullptr : &found->second;
}

int64_t RoundingOfTensors::LongestSum(const TensorId& id, bool isolated) const {
  const int64_t forward = std::max(inner_, sequence_);
  const int64_t backward = std::max(any_, forward);
  if (id.role == Role::kLoss) return std::max(backward, tokens_);
  if (IsParameterGradient(id.role)) {
    return isolated ? std::max(tokens_, sequence_)
                    : std::max(tokens_, backward);
  }
  if (isolated && !IsEdge(id.role)) {
    const Module* module = ModuleOf(id);
    if (module != nullptr && module->any > 0) {
      // Attention has a sum over the sequence beside those over dimensions.
      return std::max(IsForward(id) ? module->inner : module->any, sequence_);
    }
  }
  return IsForward(id) ? forward : backward;
}

int64_t RoundingOfTensors::SummedRanks(const Sums& sums, const TensorId& id) {
  return std::max(CountOf(sums.own, id),
                  IsForward(id) ? sums.forward : sums.backward);
}

Rounding RoundingOfTensors::Of(const TensorId& id, bool isolated,
                               bool fp32) const {
  Rounding out;
  const Module* module = ModuleOf(id);
  out.unit_roundoff = fp32 ? kFp32
                      : module != nullptr && module->unit_roundoff > 0
                          ? module->unit_roundoff
                          : lowest_;
  out.longest_sum = LongestSum(id, isolated);
  if (out.unit_roundoff > kFp32) {
    out.reference_ranks = SummedRanks(reference_sums_, id);
    out.candidate_ranks = SummedRanks(candidate_sums_, id);
    out.reference_terms = CountOf(reference_sums_.terms, id);
    out.candidate_terms = CountOf(candidate_sums_.terms, id);
  }
  return out;
}

}  // namespace ttrace
