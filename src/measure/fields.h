// What the facts consist of, each type described once: whatever writes them and
// whatever reads them back walks the same description, so that they cannot
// disagree.
//
// `field` is called with the name of each member and the member. Writers change
// nothing.

#ifndef TTRACE_SRC_MEASURE_FIELDS_H_
#define TTRACE_SRC_MEASURE_FIELDS_H_

#include "src/measure/facts.h"
#include "src/step/replayed_step.h"
#include "ttrace/dtype.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// How many values an enumeration has: what a reader may be given.
constexpr int CountOf(Role) { return kRoleCount; }
constexpr int CountOf(Pass) { return kPassCount; }
constexpr int CountOf(DType) { return kDTypeCount; }
constexpr int CountOf(StepQuantity) { return kStepQuantities; }
constexpr int CountOf(StepAlgorithm) { return 2; }
constexpr int CountOf(StepGap::Kind) { return 5; }
constexpr int CountOf(ErrorCode) { return 6; }
constexpr int CountOf(Fidelity) { return 3; }

template <typename A>
void VisitFields(A& field, ErrorStats& s) {
  field("count", s.count);
  field("mismatched", s.mismatched);
  field("nonfinite_ref", s.nonfinite_ref);
  field("nonfinite_cand", s.nonfinite_cand);
  field("nonfinite_differ", s.nonfinite_differ);
  field("sum_sq_err", s.sum_sq_err);
  field("sum_err_ref", s.sum_err_ref);
  field("sum_sq_ref", s.sum_sq_ref);
  field("max_abs_err", s.max_abs_err);
  field("max_abs_ref", s.max_abs_ref);
  field("max_elem", s.max_elem);
  field("sum_sq_elem", s.sum_sq_elem);
  field("max_block_sq_err", s.max_block_sq_err);
  field("sq_err_below", s.sq_err_below);
  field("sq_err_above", s.sq_err_above);
}

template <typename A>
void VisitFields(A& field, Segment& s) {
  field("begin", s.begin);
  field("size", s.size);
}

template <typename A>
void VisitFields(A& field, DimLayout& d) {
  field("segments", d.segments);
  field("global_size", d.global_size);
}

template <typename A>
void VisitFields(A& field, Layout& l) {
  field("dims", l.dims);
}

template <typename A>
void VisitFields(A& field, InstanceStats& i) {
  field("ranks", i.ranks);
  field("micro_batch", i.micro_batch);
  field("stats", i.stats);
  field("region", i.region);
  field("copies", i.copies);
}

template <typename A>
void VisitFields(A& field, RoutedTokens& r) {
  field("reference", r.reference);
  field("candidate", r.candidate);
  field("only_reference", r.only_reference);
  field("only_candidate", r.only_candidate);
}

template <typename A>
void VisitFields(A& field, RoutingTrouble& t) {
  field("miscounted", t.miscounted);
  field("rank", t.rank);
  field("router", t.router);
  field("expert", t.expert);
  field("expected", t.expected);
  field("actual", t.actual);
  field("detail", t.detail);
}

template <typename A>
void VisitFields(A& field, FlippedToken& f) {
  field("token", f.token);
  field("margin", f.margin);
}

template <typename A>
void VisitFields(A& field, RoutingFlips& f) {
  field("tokens", f.tokens);
  field("flipped", f.flipped);
}

template <typename A>
void VisitFields(A& field, TensorComparison& c) {
  field("fidelity", c.fidelity);
  field("reordered", c.reordered);
  field("total", c.total);
  field("instances", c.instances);
  field("regions", c.regions);
  field("routed", c.routed);
  field("candidate_gap", c.candidate_gap);
  field("reference_gap", c.reference_gap);
  field("common_gap", c.common_gap);
  field("candidate_overlap", c.candidate_overlap);
  field("reference_overlap", c.reference_overlap);
}

template <typename A>
void VisitFields(A& field, ReplicaComparison& r) {
  field("groups", r.groups);
  field("copies", r.copies);
  field("differing", r.differing);
  field("worst_rel_err", r.worst_rel_err);
  field("differing_ranks", r.differing_ranks);
  field("mesh_dims", r.mesh_dims);
}

template <typename A>
void VisitFields(A& field, PairFacts& p) {
  field("total", p.total);
  field("regions", p.regions);
}

template <typename A>
void VisitFields(A& field, LegFacts& l) {
  field("plan", l.plan);
  field("candidate", l.candidate);
  field("noise", l.noise);
  field("repeat", l.repeat);
  field("candidate_hp", l.candidate_fp32);
  field("reference_hp", l.reference_fp32);
  field("replicas", l.replicas);
  field("flips", l.flips);
  field("usable", l.usable);
  field("trouble", l.trouble);
}

template <typename A>
void VisitFields(A& field, RepeatFacts& r) {
  field("total", r.total);
}

template <typename A>
void VisitFields(A& field, SkippedUpdate& u) {
  field("ranks", u.ranks);
  field("unchanged", u.unchanged);
  field("changed", u.changed);
  field("far", u.far);
}

template <typename A>
void VisitFields(A& field, RepeatedParts& p) {
  field("ranks", p.ranks);
  field("owners", p.owners);
}

template <typename A>
void VisitFields(A& field, TensorId& id) {
  field("fqn", id.fqn);
  field("role", id.role);
  field("iteration", id.iteration);
  field("call", id.call);
  field("arg", id.arg);
  field("pass", id.pass);
}

template <typename A>
void VisitFields(A& field, PaddingGradient& p) {
  field("candidate", p.candidate);
  field("reference", p.reference);
}

template <typename A>
void VisitFields(A& field, TensorFacts& f) {
  field("id", f.id);
  field("order", f.order);
  field("in_reference", f.in_reference);
  field("exact", f.exact);
  field("vector", f.vector);
  field("lookup", f.lookup);
  field("batch_unknown", f.batch_unknown);
  field("padded", f.padded);
  field("padding_gradient", f.padding_gradient);
  field("listed", f.listed);
  field("own_rows", f.own_rows);
  field("complete", f.complete);
  field("dtype", f.dtype);
  field("reference_shape", f.reference_shape);
  field("candidate_shape", f.candidate_shape);
  field("candidate_repeat", f.candidate_repeat);
  field("reference_repeat", f.reference_repeat);
  field("replicas", f.replicas);
  field("legs", f.legs);
  field("own", f.own);
  field("update", f.update);
  field("foreign_parts", f.foreign_parts);
  field("unplaced", f.unplaced);
  field("reference_unplaced", f.reference_unplaced);
  field("damage", f.damage);
  field("trouble", f.trouble);
}

template <typename A>
void VisitFields(A& field, StepErrors& e) {
  field("judged", e.judged);
  field("out", e.out);
  field("headroom", e.headroom);
  field("error", e.error);
  field("bound", e.bound);
  field("ranks", e.ranks);
}

template <typename A>
void VisitFields(A& field, StepRule& r) {
  field("algorithm", r.algorithm);
  field("lr", r.lr);
  field("weight_decay", r.weight_decay);
  field("decoupled", r.decoupled);
  field("maximize", r.maximize);
  field("beta1", r.beta1);
  field("beta2", r.beta2);
  field("eps", r.eps);
  field("amsgrad", r.amsgrad);
  field("bias_correction", r.bias_correction);
  field("momentum", r.momentum);
  field("dampening", r.dampening);
  field("nesterov", r.nesterov);
  field("clip_norm", r.clip_norm);
  field("clip_value", r.clip_value);
}

template <typename A>
void VisitFields(A& field, StepSetting& s) {
  field("count", s.count);
  field("first_step", s.first_step);
  field("gradient_scale", s.gradient_scale);
  field("clip", s.clip);
  field("clip_error", s.clip_error);
  field("parameter", s.parameter);
  field("gradient", s.gradient);
  field("first", s.first);
  field("second", s.second);
  field("largest", s.largest);
  field("copy", s.copy);
  field("eps_inside_root", s.eps_inside_root);
}

template <typename A>
void VisitFields(A& field, StepSample& s) {
  field("rank", s.rank);
  field("rule", s.rule);
  field("setting", s.setting);
  field("quantities", s.quantities);
  field("known", s.known);
  field("elements", s.elements);
  field("norm", s.norm);
}

template <typename A>
void VisitFields(A& field, StepGap& g) {
  field("kind", g.kind);
  field("name", g.name);
}

template <typename A>
void VisitFields(A& field, StepOfParameter& s) {
  field("iteration", s.iteration);
  field("fqn", s.fqn);
}

template <typename A>
void VisitFields(A& field, RankReplay& r) {
  field("errors", r.errors);
  field("gaps", r.gaps);
  field("judged", r.judged);
  field("skipped", r.skipped);
  field("whole", r.whole);
  field("norms", r.norms);
  field("sample", r.sample);
}

template <typename A>
void VisitFields(A& field, ReplayedStep& s) {
  field("step", s.step);
  field("errors", s.errors);
  field("results", s.results);
  field("gaps", s.gaps);
  field("ranks", s.ranks);
  field("whole", s.whole);
  field("skipped", s.skipped);
  field("sample", s.sample);
}

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_FIELDS_H_
