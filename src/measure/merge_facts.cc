#include "src/measure/merge_facts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/compare/equal_copies.h"
#include "src/compare/merge_comparisons.h"

namespace ttrace {
namespace {

Error NotOneTensor(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument,
               "facts cannot be merged: " + what + " differ");
}

template <typename T>
void Unite(const std::vector<T>& more, std::vector<T>* into) {
  std::set<T> all(into->begin(), into->end());
  all.insert(more.begin(), more.end());
  into->assign(all.begin(), all.end());
}

// Of texts that parts say the least in the order of letters, so that no order
// of parts matters.
void KeepText(const std::string& text, std::string* into) {
  if (text.empty()) return;
  if (into->empty() || text < *into) *into = text;
}

void MergeReplicas(const ReplicaComparison& more, ReplicaComparison* into) {
  into->groups += more.groups;
  into->copies += more.copies;
  into->differing += more.differing;
  into->worst_rel_err = std::max(into->worst_rel_err, more.worst_rel_err);
  Unite(more.differing_ranks, &into->differing_ranks);
  Unite(more.mesh_dims, &into->mesh_dims);
}

void MergeRepeat(const std::optional<RepeatFacts>& more,
                 std::optional<RepeatFacts>* into) {
  if (!more) return;
  if (!*into) {
    *into = more;
  } else {
    (*into)->total.Merge(more->total);
  }
}

// That of the lowest rank speaks for all.
void MergeUpdate(const std::optional<SkippedUpdate>& more,
                 std::optional<SkippedUpdate>* into) {
  if (!more) return;
  if (!*into) {
    *into = more;
    return;
  }
  SkippedUpdate& update = **into;
  const bool first =
      !more->ranks.empty() &&
      (update.ranks.empty() || more->ranks.front() < update.ranks.front());
  if (first) {
    update.unchanged = more->unchanged;
    update.changed = more->changed;
  }
  update.far = update.far || more->far;
  Unite(more->ranks, &update.ranks);
}

void MergeForeignParts(const std::optional<RepeatedParts>& more,
                       std::optional<RepeatedParts>* into) {
  if (!more) return;
  if (!*into) *into = RepeatedParts{};
  Unite(more->ranks, &(*into)->ranks);
  Unite(more->owners, &(*into)->owners);
}

// What parts hold of one map; of copies the widest choice.
void MergeFlips(const RoutingFlips& more, RoutingFlips* into) {
  std::map<int64_t, double> margins;
  for (const RoutingFlips* part : {&more, &std::as_const(*into)}) {
    for (const FlippedToken& f : part->flipped) {
      const auto at = margins.emplace(f.token, f.margin).first;
      at->second = std::max(at->second, f.margin);
    }
  }
  into->tokens = std::max(into->tokens, more.tokens);
  into->flipped.clear();
  for (const auto& [token, margin] : margins) {
    into->flipped.push_back({token, margin});
  }
}

// Rows that are too many or too few are worse than a map that is not there.
void MergeTrouble(const std::optional<RoutingTrouble>& more,
                  std::optional<RoutingTrouble>* into) {
  if (!more) return;
  const auto key = [](const RoutingTrouble& t) {
    return std::tuple(!t.miscounted, t.rank, t.detail);
  };
  if (!*into || key(*more) < key(**into)) *into = more;
}

using Legs = std::vector<const LegFacts*>;
using Sources = std::vector<MergedComparison::Source>;

// The regions of one leg of the reference against another, taken from where
// the merged comparison took its own. Nothing unless every part has it.
std::optional<PairFacts> JoinPair(
    const Legs& parts, const Sources& sources,
    const std::function<const PairFacts*(const LegFacts&)>& of) {
  PairFacts out;
  for (const auto& [part, region] : sources) {
    const PairFacts* pair = of(*parts[part]);
    if (pair == nullptr || region >= pair->regions.size()) return std::nullopt;
    out.regions.push_back(pair->regions[region]);
    out.total.Merge(pair->regions[region]);
  }
  return out;
}

const PairFacts* Address(const std::optional<PairFacts>& pair) {
  return pair ? &*pair : nullptr;
}

Result<LegFacts> MergeLegs(const Legs& parts) {
  LegFacts out;
  out.plan = parts.front()->plan;
  std::vector<const TensorComparison*> comparisons;
  for (const LegFacts* part : parts) {
    KeepText(part->trouble, &out.trouble);
    if (part->noise.size() != parts.front()->noise.size()) {
      return NotOneTensor("noise legs");
    }
    comparisons.push_back(&part->candidate);
    if (part->replicas) {
      if (!out.replicas) out.replicas = ReplicaComparison{};
      MergeReplicas(*part->replicas, &*out.replicas);
    }
    if (part->flips) {
      if (!out.flips) out.flips = RoutingFlips{};
      MergeFlips(*part->flips, &*out.flips);
    }
  }
  TTRACE_ASSIGN_OR_RETURN(MergedComparison merged,
                          MergeComparisons(comparisons));
  JoinEqualCopies(&merged.comparison);
  out.candidate = std::move(merged.comparison);
  const Sources& sources = merged.sources;
  for (size_t i = 0; i < parts.front()->noise.size(); ++i) {
    auto noise = JoinPair(parts, sources,
                          [i](const LegFacts& leg) { return &leg.noise[i]; });
    if (!noise) return NotOneTensor("regions of noise legs");
    out.noise.push_back(*std::move(noise));
  }
  out.repeat = JoinPair(
      parts, sources, [](const LegFacts& leg) { return Address(leg.repeat); });
  out.candidate_hp = JoinPair(parts, sources, [](const LegFacts& leg) {
    return Address(leg.candidate_hp);
  });
  out.reference_hp = JoinPair(parts, sources, [](const LegFacts& leg) {
    return Address(leg.reference_hp);
  });
  out.usable = std::all_of(parts.begin(), parts.end(),
                           [](const LegFacts* leg) { return leg->usable; });
  return out;
}

}  // namespace

Result<TensorFacts> MergeFacts(const std::vector<TensorFacts>& parts) {
  if (parts.empty()) return NotOneTensor("no facts and one tensor");
  const TensorFacts& first = parts.front();
  TensorFacts out;
  out.id = first.id;
  out.order = first.order;
  out.in_reference = first.in_reference;
  out.exact = first.exact;
  out.vector = first.vector;
  out.lookup = first.lookup;
  out.dtype = first.dtype;
  out.reference_shape = first.reference_shape;
  out.candidate_shape = first.candidate_shape;
  std::map<size_t, Legs> legs;
  std::vector<const TensorComparison*> own;
  for (const TensorFacts& part : parts) {
    if (part.id != first.id) return NotOneTensor("names");
    if (part.in_reference != first.in_reference || part.exact != first.exact ||
        part.vector != first.vector || part.lookup != first.lookup ||
        part.dtype != first.dtype ||
        part.reference_shape != first.reference_shape ||
        part.candidate_shape != first.candidate_shape) {
      return NotOneTensor("shapes or dtypes of " + ToString(first.id));
    }
    out.order = std::min(out.order, part.order);
    out.complete = out.complete && part.complete;
    out.batch_unknown = out.batch_unknown || part.batch_unknown;
    out.padded = out.padded || part.padded;
    if (part.padding_gradient.largest() > out.padding_gradient.largest()) {
      out.padding_gradient = part.padding_gradient;
    }
    out.listed = out.listed || part.listed;
    out.own_rows = out.own_rows || part.own_rows;
    MergeRepeat(part.candidate_repeat, &out.candidate_repeat);
    // Every part had the whole reference.
    if (!out.reference_repeat) out.reference_repeat = part.reference_repeat;
    MergeReplicas(part.replicas, &out.replicas);
    MergeUpdate(part.update, &out.update);
    MergeForeignParts(part.foreign_parts, &out.foreign_parts);
    MergeTrouble(part.unplaced, &out.unplaced);
    MergeTrouble(part.reference_unplaced, &out.reference_unplaced);
    KeepText(part.damage, &out.damage);
    KeepText(part.trouble, &out.trouble);
    for (const LegFacts& leg : part.legs) legs[leg.plan].push_back(&leg);
    if (part.own) own.push_back(&*part.own);
  }
  for (const auto& [plan, of_parts] : legs) {
    TTRACE_ASSIGN_OR_RETURN(LegFacts leg, MergeLegs(of_parts));
    out.legs.push_back(std::move(leg));
  }
  if (!own.empty()) {
    TTRACE_ASSIGN_OR_RETURN(MergedComparison merged, MergeComparisons(own));
    JoinEqualCopies(&merged.comparison);
    out.own = std::move(merged.comparison);
  }
  return out;
}

}  // namespace ttrace
