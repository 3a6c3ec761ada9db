#include "src/experiment/rounding_of_tensors.h"

#include <algorithm>
#include <utility>

#include "src/experiment/gradient_parts.h"
#include "src/experiment/models_beside.h"
#include "src/experiment/module_names.h"
#include "src/experiment/parameter_roles.h"
#include "src/numeric/round_to.h"

namespace ttrace {
namespace {

bool IsForward(const TensorId& id) {
  return id.role == Role::kInput || id.role == Role::kOutput ||
         id.role == Role::kLoss;
}

// The value of `key`, or `otherwise`.
template <class Map, class Key, class Value>
Value ValueOr(const Map& map, const Key& key, Value otherwise) {
  const auto found = map.find(key);
  return found == map.end() ? otherwise : found->second;
}

// Rows of features: all dimensions of a piece but the last.
int64_t TokensOf(const Record& piece) {
  int64_t tokens = 1;
  for (size_t d = 0; d + 1 < piece.layout().dims.size(); ++d) {
    tokens *= piece.layout().dims[d].local_size();
  }
  return tokens;
}

// Terms of a sum that was not made: of how many the value is, over ranks and,
// where a parameter's gradient does not collect them, micro-batches.
int64_t TermsOf(const Record& piece, const DeviceMesh& mesh,
                int64_t micro_batches) {
  int64_t terms = 1;
  for (const auto& dim : mesh.dims) {
    if (IsPartialOver(piece.placements(), dim.name)) terms *= dim.size;
  }
  const bool collects = IsParameterGradient(piece.id().role);
  if (!collects && IsPartialOver(piece.placements(), "mb")) {
    terms *= micro_batches;
  }
  return terms;
}

// The lower precision of the two.
void Lower(DType dtype, std::optional<DType>* lowest) {
  if (!*lowest || UnitRoundoff(dtype) > UnitRoundoff(**lowest)) {
    *lowest = dtype;
  }
}

double RoundoffOf(const TensorPieces& pieces) {
  return UnitRoundoff(pieces.pieces.front().dtype());
}

// Modules whose forward was seen. Others are containers of parameters that who
// holds them multiplies with.
std::set<std::string> CalledModules(const Side& side) {
  std::set<std::string> out;
  for (const auto& [id, pieces] : side.real()) {
    if (id.role == Role::kOutput && id.pass == Pass::kForward) {
      out.insert(id.fqn);
    }
  }
  return out;
}

// Products of activations with one another that a module makes by itself:
// scores, and what they weigh.
int64_t ProductsOfActivations(const std::string& kind) {
  return kind.find("MultiheadAttention") == std::string::npos ? 0 : 2;
}

// The longest sums that are made with a parameter, of what goes into its module
// and of any of its dimensions. A kernel of a convolution, (out, in,
// places...), is summed over all places of all channels.
struct SumsWith {
  int64_t inner = 1;
  int64_t any = 1;
};
SumsWith SumsWithParameter(const Shape& shape, const std::string& kind) {
  SumsWith out = {shape.back(), *std::max_element(shape.begin(), shape.end())};
  if (shape.size() < 3 || kind.find("Conv") == std::string::npos) return out;
  int64_t places = 1;
  for (size_t d = 2; d < shape.size(); ++d) places *= shape[d];
  out.inner = shape[1] * places;
  out.any = std::max(shape[0], shape[1]) * places;
  return out;
}

// Of a parameter's gradient, before its reduction.
TensorId OfLocalGradient(TensorId id) {
  id.role = Role::kGradLocal;
  return id;
}

// What a run's own reduction of a gradient rounds beside its computation.
SentRounding RoundingOfHook(const std::optional<ReductionHook>& hook,
                            TensorId id) {
  if (!hook || !hook->sends || id.role != Role::kGradReduced) return {};
  const auto terms = hook->terms.find(OfLocalGradient(std::move(id)));
  if (terms == hook->terms.end()) return {};
  return RoundingOfSent(*hook->sends, hook->ranks, hook->times, terms->second);
}

}  // namespace

RoundingOfTensors::RoundingOfTensors(const Side& reference,
                                     const Side& candidate) {
  ReadPrecisions(reference);
  ReadDimensions(reference);
  for (const auto& [name, module] : modules_) {
    products_ = std::max(products_, module.products);
    sum_of_feature_ = std::max(sum_of_feature_, module.SumOfFeature());
  }
  models_beside_ = ModelsBeside(reference, candidate);
  reference_sums_ = SumsOf(reference, reference);
  candidate_sums_ = SumsOf(reference, candidate);
  const auto parts = [](const Side& side) {
    return int64_t{side.trace().world_size()} * side.MicroBatchesPerRank();
  };
  reference_parts_ = parts(reference);
  candidate_parts_ = parts(candidate);
  reference_hook_ = reference.facts().reduction_hook;
  candidate_hook_ = candidate.facts().reduction_hook;
}

void RoundingOfTensors::ReadPrecisions(const Side& reference) {
  lowest_ = reference.ComputeDType().value_or(DType::kF32);
  for (const auto& [id, pieces] : reference.real()) {
    const DType dtype = pieces.pieces.front().dtype();
    if (id.role == Role::kBuffer && Info(dtype).floating) {
      buffers_.emplace(id.fqn, dtype);
    }
    if (!IsActivation(id.role) || !Info(dtype).floating) continue;
    Lower(dtype, &modules_[id.fqn].dtype);
    if (IsEdge(id.role)) {
      edges_[{id.fqn, id.role}].insert(pieces.global_shape());
    }
    if (id.role == Role::kInput) {
      int64_t& given = modules_[id.fqn].given;
      given = std::max(given, pieces.pieces.front().layout().global_count());
    }
  }
  for (const auto& [module, dtype] : reference.facts().precision_inside) {
    Lower(dtype, &modules_[module].dtype);
  }
}

void RoundingOfTensors::ReadDimensions(const Side& reference) {
  const std::set<std::string> called = CalledModules(reference);
  const auto user_of = [&](const std::string& parameter) {
    std::string name = ParentName(parameter);
    while (!name.empty() && !called.contains(name)) name = ParentName(name);
    return name;
  };
  for (const std::string& name : called) {
    modules_[name].products =
        ProductsOfActivations(reference.facts().ClassOf(name));
  }
  std::set<std::string> matrices;
  for (const auto& [id, pieces] : reference.real()) {
    const Shape shape = pieces.global_shape();
    if (id.role == Role::kParam || id.role == Role::kGradReduced) {
      if (shape.empty()) continue;
      const std::string kind = reference.facts().ClassOf(ParentName(id.fqn));
      const SumsWith sums = SumsWithParameter(shape, kind);
      Module& owner = modules_[ParentName(id.fqn)];
      const std::string& user =
          users_.try_emplace(id.fqn, user_of(id.fqn)).first->second;
      if (shape.size() > 1 && matrices.insert(id.fqn).second) {
        ++owner.matrices;
        ++modules_[user].products;
      }
      if (shape.size() == 1) owner.vector = std::max(owner.vector, sums.any);
      owner.is_norm_of_features = kind.find("LayerNorm") != std::string::npos ||
                                  kind.find("RMSNorm") != std::string::npos;
      inner_ = std::max(inner_, sums.inner);
      any_ = std::max(any_, sums.any);
      // Of the module, and of all that contain it.
      for (std::string name = ParentName(id.fqn);; name = ParentName(name)) {
        Module& module = modules_[name];
        module.inner = std::max(module.inner, sums.inner);
        module.any = std::max(module.any, sums.any);
        if (name.empty()) break;
      }
    } else if (id.role == Role::kInput && reference.facts().IsRoot(id.fqn)) {
      // Token ids are [batch, sequence]; floating inputs carry features last.
      const bool tokens_only = !Info(pieces.pieces.front().dtype()).floating;
      const size_t dims =
          tokens_only || shape.size() < 2 ? shape.size() : shape.size() - 1;
      int64_t tokens = 1;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (d < dims) tokens *= std::max<int64_t>(1, shape[d]);
        sequence_ = std::max(sequence_, shape[d]);
      }
      // Channels stand first or last in images; their places are summed over.
      if (!tokens_only && shape.size() > 3) {
        tokens = std::max<int64_t>(
            tokens, pieces.pieces.front().layout().global_count() /
                        std::max<int64_t>(1, std::min(shape[1], shape.back())));
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
  out.parts = PartsOfGradients(side);
  const int64_t micro_batches = side.MicroBatchesPerRank();
  std::map<std::string, int64_t> uses;  // of a module in one micro-batch
  for (const auto& [id, pieces] : side.real()) {
    if (id.role != Role::kOutput || id.pass != Pass::kForward) continue;
    int64_t& calls = uses[id.fqn];
    calls = std::max<int64_t>(calls, id.call + 1);
    int64_t& tokens = out.tokens[id.fqn];
    for (const auto& piece : pieces.pieces) {
      tokens = std::max(tokens, TokensOf(piece));
    }
  }
  for (const auto& [id, pieces] : side.real()) {
    if (IsParameterGradient(id.role)) {
      // Uses in one micro-batch are added in the precision of the module, which
      // may work on a copy of the parameter.
      const Module* module = ModuleOf(id);
      const bool low = RoundoffOf(pieces) > kFp32Roundoff;
      const bool low_inside = module != nullptr && module->dtype &&
                              UnitRoundoff(*module->dtype) > kFp32Roundoff;
      const int64_t calls = std::max<int64_t>(1, uses[ParentName(id.fqn)]);
      int64_t& terms = out.terms[id];
      terms = low ? micro_batches : 1;
      if (low || low_inside) terms *= calls;
      out.summands[id] = micro_batches * calls;
    }
    const Record& first = pieces.pieces.front();
    if (first.scale().value() != 1) out.scales[id] = first.scale().value();
    int64_t ranks = 1;
    const DeviceMesh& mesh = side.trace().mesh(first.grid());
    const int64_t terms = TermsOf(first, mesh, micro_batches);
    if (terms > 1) {
      out.summands[id] = ValueOr(out.summands, id, int64_t{1}) * terms;
    }
    for (const std::string& name : first.reduced_over()) {
      const int dim = mesh.Find(name);
      if (dim >= 0) ranks *= mesh.dims[static_cast<size_t>(dim)].size;
    }
    if (ranks <= 1) continue;
    out.summands[id] = ValueOr(out.summands, id, int64_t{1}) * ranks;
    const TensorPieces* same = reference.FindSameValue(kReal, id);
    if (same == nullptr || RoundoffOf(*same) <= kFp32Roundoff) continue;
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
  const bool owned = IsParameterGradient(id.role) || id.role == Role::kBuffer;
  const std::string name = owned ? ParentName(id.fqn) : id.fqn;
  const auto found = modules_.find(name);
  return found == modules_.end() ? nullptr : &found->second;
}

const RoundingOfTensors::Module* RoundingOfTensors::UserOf(
    const TensorId& id) const {
  const auto user = users_.find(id.fqn);
  if (user == users_.end()) return ModuleOf(id);
  const auto found = modules_.find(user->second);
  return found == modules_.end() ? nullptr : &found->second;
}

std::optional<DType> RoundingOfTensors::PrecisionOfMaker(
    const TensorId& id) const {
  std::optional<DType> lowest;
  const auto own = edges_.find({id.fqn, id.role});
  if (own == edges_.end()) return lowest;
  for (std::string name = id.fqn; !name.empty();) {
    name = ParentName(name);
    const auto found = modules_.find(name);
    if (found == modules_.end() || !found->second.dtype) continue;
    Lower(*found->second.dtype, &lowest);
    const auto around = edges_.find({name, id.role});
    if (around == edges_.end()) break;
    const bool may_hand_on = std::any_of(
        own->second.begin(), own->second.end(),
        [&](const Shape& shape) { return around->second.contains(shape); });
    if (!may_hand_on) break;
  }
  return lowest;
}

int64_t RoundingOfTensors::LongestSum(const TensorId& id, bool isolated) const {
  const int64_t forward = std::max(inner_, sequence_);
  const int64_t backward = std::max(any_, forward);
  // A statistic is a sum over tokens of what forwards make.
  if (id.role == Role::kLoss || id.role == Role::kBuffer) {
    return std::max(backward, tokens_);
  }
  if (IsParameterGradient(id.role)) {
    if (!isolated) return std::max(tokens_, backward);
    const int64_t rows = std::max(tokens_, sequence_);
    // What arrives at it, another product of the same module made.
    const Module* user = UserOf(id);
    return user != nullptr && user->products > 1 ? std::max(rows, user->any)
                                                 : rows;
  }
  if (isolated && !IsEdge(id.role)) {
    const Module* module = ModuleOf(id);
    if (module != nullptr && module->any > 0) {
      if (const int64_t terms = module->SumOfFeature(); terms > 0) {
        return std::max(terms, sequence_);
      }
      // Attention has a sum over the sequence beside those over dimensions.
      return std::max(IsForward(id) ? module->inner : module->any, sequence_);
    }
  }
  const int64_t any = IsForward(id) ? forward : backward;
  // What arrives at an edge any other module may have made.
  return isolated ? std::max(any, sum_of_feature_) : any;
}

int64_t RoundingOfTensors::SummedRanks(const Sums& sums, const TensorId& id) {
  return std::max(ValueOr(sums.own, id, int64_t{1}),
                  IsForward(id) ? sums.forward : sums.backward);
}

Rounding RoundingOfTensors::Of(const TensorId& id, bool isolated,
                               bool fp32) const {
  Rounding out;
  const Module* module = ModuleOf(id);
  const DType dtype = fp32                                 ? DType::kF32
                      : module != nullptr && module->dtype ? *module->dtype
                                                           : lowest_;
  out.unit_roundoff = UnitRoundoff(dtype);
  out.longest_sum = LongestSum(id, isolated);
  if (isolated && IsEdge(id.role)) {
    out.products = products_;
  } else if (isolated) {
    const Module* user = IsParameterGradient(id.role) ? UserOf(id) : module;
    if (user != nullptr) out.products = std::max<int64_t>(1, user->products);
  }
  const bool after_loss = id.role == Role::kLoss || IsGradient(id.role);
  if (!isolated && after_loss) out.models_beside = models_beside_;
  out.reference_summands = ValueOr(reference_sums_.summands, id, int64_t{1});
  out.candidate_summands = ValueOr(candidate_sums_.summands, id, int64_t{1});
  if (IsParameterGradient(id.role)) {
    const TensorId local = OfLocalGradient(id);
    out.reference_parts =
        ValueOr(reference_sums_.parts, local, GradientParts());
    out.candidate_parts =
        ValueOr(candidate_sums_.parts, local, GradientParts());
  }
  if (id.role == Role::kBuffer) {
    out.reference_summands = reference_parts_;
    out.candidate_summands = candidate_parts_;
    out.maker_roundoff = UnitRoundoff(ValueOr(buffers_, id.fqn, DType::kF32));
  }
  if (!fp32 && IsEdge(id.role)) {
    const std::optional<DType> maker = PrecisionOfMaker(id);
    if (maker) out.maker_roundoff = UnitRoundoff(*maker);
  }
  // Whatever the leg computes in.
  out.reference_sent = RoundingOfHook(reference_hook_, id);
  out.candidate_sent = RoundingOfHook(candidate_hook_, id);
  if (out.unit_roundoff > kFp32Roundoff) {
    const double spacing = RangeOf(dtype).step;
    out.reference_spacing = spacing * ValueOr(reference_sums_.scales, id, 1.0);
    out.candidate_spacing = spacing * ValueOr(candidate_sums_.scales, id, 1.0);
    if (IsParameterGradient(id.role)) {
      const std::string owner = ParentName(id.fqn);
      out.reference_tokens = ValueOr(reference_sums_.tokens, owner, int64_t{0});
      out.candidate_tokens = ValueOr(candidate_sums_.tokens, owner, int64_t{0});
    }
    out.reference_ranks = SummedRanks(reference_sums_, id);
    out.candidate_ranks = SummedRanks(candidate_sums_, id);
    out.reference_terms = ValueOr(reference_sums_.terms, id, int64_t{1});
    out.candidate_terms = ValueOr(candidate_sums_.terms, id, int64_t{1});
  }
  return out;
}

bool RoundingOfTensors::IsReducedUnknown(const TensorId& id) const {
  const auto unknown = [](const std::optional<ReductionHook>& hook) {
    return hook && !hook->sends;
  };
  return id.role == Role::kGradReduced &&
         (unknown(reference_hook_) || unknown(candidate_hook_));
}

}  // namespace ttrace
