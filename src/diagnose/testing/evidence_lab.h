// For tests of the rules: evidence made of synthetic tensors with noise.

#ifndef TTRACE_SRC_DIAGNOSE_TESTING_EVIDENCE_LAB_H_
#define TTRACE_SRC_DIAGNOSE_TESTING_EVIDENCE_LAB_H_

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/compare/testing/sharded_trace.h"
#include "src/diagnose/diagnose.h"
#include "src/diagnose/rules/rules.h"
#include "src/diagnose/value_view.h"
#include "src/in_place/condense_trace.h"

namespace ttrace {

inline std::vector<double> RandomValues(unsigned seed, size_t count) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(rng);
  return values;
}

// Each value times 1 + size x (-1, 1).
inline std::vector<double> Noisy(std::vector<double> values, double size,
                                 unsigned seed = 77) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (double& value : values) value *= 1 + size * uniform(rng);
  return values;
}

inline TensorId Id(const std::string& fqn, Role role, int iteration = 0) {
  TensorId id;
  id.fqn = fqn;
  id.role = role;
  id.iteration = iteration;
  const bool backward = role != Role::kOutput && role != Role::kInput &&
                        role != Role::kParam && role != Role::kLoss;
  if (backward) id.pass = Pass::kBackward;
  if (role == Role::kParamUpdated) id.pass = Pass::kOptimizer;
  return id;
}

// A run of two dp ranks with two micro-batches of two rows each.
inline Sharding TwoByTwo() {
  Sharding s;
  s.mesh.dims = {{"dp", 2}, {"tp", 1}};
  s.batch_dim = 1;
  s.micro_batches = {{2, 2}, {2, 2}};
  return s;
}

// `tp` ranks that all hold everything.
inline Sharding Copies(int tp) {
  Sharding s;
  s.mesh.dims = {{"dp", 1}, {"tp", tp}};
  return s;
}

// `tp` ranks that hold parts along `dim`.
inline Sharding Parts(int tp, int dim) {
  Sharding s = Copies(tp);
  s.placements = {{"tp", Shard{dim}}};
  return s;
}

class Lab {
 public:
  // The culprit's tensor, and what its relative error may be.
  Lab(TensorId id, double bound) : id_(std::move(id)), bound_(bound) {
    culprit_.fqn = id_.fqn;
    culprit_.tensor = id_;
    culprit_.iteration = id_.iteration;
  }

  void Reference(const TensorId& id, const Shape& shape,
                 const std::vector<double>& values,
                 const Sharding& sharding = kWhole,
                 const Damage& damage = nullptr) {
    Add(id, shape, values, sharding, damage, &reference_);
  }
  void Candidate(const TensorId& id, const Shape& shape,
                 const std::vector<double>& values,
                 const Sharding& sharding = kWhole,
                 const Damage& damage = nullptr) {
    Add(id, shape, values, sharding, damage, &candidate_);
  }

  // Valid as long as the lab. The two sides of the culprit's tensor are there.
  Evidence Gather() {
    Evidence e;
    e.culprit = &culprit_;
    e.judgement = &judgement_;
    e.find_reference = [this](const TensorId& id) {
      return Find(reference_, id);
    };
    e.find_candidate = [this](const TensorId& id) {
      return Find(candidate_, id);
    };
    e.visit_reference = [this](const TensorVisit& visit) {
      for (const auto& [id, tensor] : reference_) visit(id, tensor.pieces);
    };
    e.reference = Find(reference_, id_);
    e.candidate = Find(candidate_, id_);
    judgement_.id = id_;
    judgement_.verdict = TensorVerdict::kDiverged;
    auto replicas = OrDie(CompareReplicas(*e.candidate));
    judgement_.replicas_differ = replicas.differing > 0;
    judgement_.replicas = std::move(replicas);
    if (e.reference != nullptr) {
      auto compared = OrDie(CompareTensor(*e.reference, *e.candidate));
      LegJudgement leg;
      leg.leg = "real";
      leg.stats = compared.total;
      leg.fidelity = compared.fidelity;
      leg.err = compared.total.rel_err();
      leg.bound = bound_;
      leg.headroom = leg.err / bound_;
      for (const InstanceStats& part : compared.instances) {
        if (part.stats.rel_err() <= bound_) continue;
        leg.ranks.insert(leg.ranks.end(), part.ranks.begin(), part.ranks.end());
      }
      judgement_.nonfinite = leg.stats.nonfinite_differ > 0;
      judgement_.legs = {leg};
      judgement_.deciding_leg = 0;
      e.leg = &judgement_.legs.front();
      e.instances = std::move(compared.instances);
    }
    e.candidate_mesh = &e.candidate->trace->mesh();
    e.micro_batches = micro_batches;
    e.attributes = attributes;
    e.reference_attributes = reference_attributes;
    e.reduced_early = reduced_early ? &*reduced_early : nullptr;
    e.cleared = cleared ? &*cleared : nullptr;
    e.sums_were_made = sums_were_made;
    e.wrong_group = wrong_group;
    e.affected = {&judgement_};
    for (const TensorJudgement& t : beside) e.affected.push_back(&t);
    e.outputs_are_known = outputs_are_known;
    for (const TensorJudgement& t : unmatched) e.unmatched.push_back(&t);
    return e;
  }

  // What one rule says.
  std::optional<Diagnosis> Ask(
      std::optional<Diagnosis> (*rule)(const ValueView&)) {
    const Evidence evidence = Gather();
    return rule(ValueView(evidence));
  }
  // Letters of all rules together.
  std::string Letters() {
    std::string out;
    for (const Diagnosis& d : Diagnose(Gather())) out += LetterOf(d.bug_class);
    return out;
  }
  // The evidence of the first class; "" without one.
  std::string First() {
    const auto all = Diagnose(Gather());
    return all.empty() ? ""
                       : std::string(LetterOf(all.front().bug_class)) + ": " +
                             all.front().evidence;
  }

  Culprit& culprit() { return culprit_; }

  // Of what is added from now on summaries are kept instead of values, with
  // sketches of so many buckets; 0: digests alone.
  std::optional<size_t> summarized;

  bool outputs_are_known = true;
  int micro_batches = 1;
  std::optional<EarlyReduction> reduced_early;
  std::optional<Clearing> cleared;
  bool sums_were_made = false;
  std::string wrong_group;
  std::vector<Attribute> attributes;
  std::vector<Attribute> reference_attributes;
  std::vector<TensorJudgement> unmatched;
  std::vector<TensorJudgement> beside;  // out of bounds too

 private:
  struct Tensor {
    std::unique_ptr<ShardedTrace> trace;
    std::unique_ptr<ScratchFolder> folder;  // of its summaries
    std::unique_ptr<Catalog> summaries;
    TensorPieces pieces;
  };
  using Tensors = std::map<TensorId, Tensor>;

  void Add(const TensorId& id, const Shape& shape,
           const std::vector<double>& values, const Sharding& sharding,
           const Damage& damage, Tensors* out) const {
    Tensor tensor;
    tensor.trace =
        std::make_unique<ShardedTrace>(shape, values, sharding, damage);
    tensor.pieces = tensor.trace->pieces();
    if (summarized) {
      tensor.folder = std::make_unique<ScratchFolder>();
      CondenseOptions options;
      options.from = tensor.trace->folder();
      options.to = *tensor.folder / "trace";
      options.buckets = *summarized;
      OrDie(CondenseTrace(options));
      tensor.summaries =
          std::make_unique<Catalog>(OrDie(Trace::Open(options.to)));
      tensor.pieces = tensor.summaries->tensors("real").begin()->second;
    }
    out->insert_or_assign(id, std::move(tensor));
  }
  static const TensorPieces* Find(const Tensors& tensors, const TensorId& id) {
    const auto found = tensors.find(id);
    return found == tensors.end() ? nullptr : &found->second.pieces;
  }

  TensorId id_;
  double bound_;
  Culprit culprit_;
  TensorJudgement judgement_;
  Tensors reference_;
  Tensors candidate_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_TESTING_EVIDENCE_LAB_H_
