// CheckResults for the tests of this folder: one of each verdict, filled as the
// judge fills them. The numbers are made up.

#ifndef TTRACE_SRC_REPORT_RESULT_SAMPLES_H_
#define TTRACE_SRC_REPORT_RESULT_SAMPLES_H_

#include <string>
#include <utility>

#include "src/report/check_result.h"

namespace ttrace {

// `legs`: noise legs that the bound is from.
inline LegJudgement SampleLeg(Leg leg, double err, double bound, int legs,
                              bool fp32_leg) {
  LegJudgement out;
  out.leg = std::move(leg);
  out.err = err;
  out.noise = bound / 2;
  out.bound = bound;
  Test norm;
  norm.value = err;
  norm.bound = bound;
  norm.headroom = err / bound;
  norm.expected.origin = Origin::kNoise;
  norm.expected.scale = bound / 2;
  norm.expected.factor = 2;
  norm.expected.noise_legs = legs;
  norm.expected.fp32_leg = fp32_leg;
  out.Add(norm);
  out.stats.count = 1000;
  out.stats.mismatched = 990;
  out.stats.sum_sq_ref = 1;
  out.stats.sum_sq_err = err * err;
  return out;
}

inline TensorJudgement SampleTensor(TensorId id, TensorVerdict verdict,
                                    double err, double bound) {
  TensorJudgement out;
  out.id = std::move(id);
  out.verdict = verdict;
  out.legs.push_back(SampleLeg(kReal, err, bound, 3, true));
  out.deciding_leg = 0;
  out.headroom = out.legs[0].headroom;
  return out;
}

inline CheckResult SampleCommon() {
  CheckResult result;
  result.reference = {"report/reference",
                      "1 process",
                      1,
                      {kReal, kReplay, "noise.1", kFp32},
                      {{"mesh", {{{"tp", 1}}}, {{0}}}}};
  result.candidate = {"report/candidate",
                      "pp=1 dp=1 cp=1 tp=2",
                      2,
                      {kReal, kFp32},
                      {{"mesh", {{{"tp", 2}}}, {{0}, {1}}}}};
  result.iterations = {0, 1};
  result.seconds = 1.24;
  result.bytes_compared = 3'400'000'000;
  return result;
}

inline CheckResult SampleClean() {
  CheckResult result = SampleCommon();
  result.verdict = Verdict::kWithin;
  result.reason = "every tensor is within its bound";
  result.coverage.compared = 5460;
  result.clean = {{"forward", 1820, 1820}, {"backward", 1716, 1716}};
  TensorId id;
  id.fqn = "decoder.layers.3.mlp.linear_fc1";
  id.arg = "0";
  result.tensors = {SampleTensor(id, TensorVerdict::kWithin, 5.0e-3, 1.2e-2)};
  return result;
}

inline CheckResult SampleDiverged() {
  CheckResult result = SampleCommon();
  result.verdict = Verdict::kDiverged;
  result.reason = "decoder.layers.3.mlp.linear_fc1 goes wrong in backward";
  result.coverage.compared = 5460;
  result.coverage.excused = {{"fused", 24}};
  result.notes = {
      {NoteKind::kNotice,
       "initial weights of the candidate differed and were replaced", ""}};
  result.clean = {{"forward", 1820, 1820}, {"backward", 1616, 1716}};
  result.next_steps = {
      "ttrace inspect report/candidate decoder.layers.3.mlp.linear_fc1"};
  result.downstream = 98;

  TensorId id;
  id.fqn = "decoder.layers.3.mlp.linear_fc1";
  id.role = Role::kGradInput;
  id.arg = "hidden_states";
  id.pass = Pass::kBackward;
  TensorJudgement tensor =
      SampleTensor(id, TensorVerdict::kDiverged, 0.672, 1.2e-2);
  tensor.legs.push_back(SampleLeg(kFp32, 0.671, 2.1e-7, 3, false));
  tensor.deciding_leg = 1;
  tensor.headroom = tensor.legs[1].headroom;
  tensor.replicas_differ = true;
  tensor.replicas.groups = 4;
  tensor.replicas.copies = 4;
  tensor.replicas.differing = 4;
  tensor.replicas.worst_rel_err = 1.41;
  tensor.replicas.differing_ranks = {0, 1};
  tensor.replicas.mesh_dims = {"tp"};
  result.tensors = {tensor};
  result.forms = {{{8, 64}, DType::kBF16}};
  result.causes = {{0, TensorCause::As::kFirst}};
  result.modules = {
      {"decoder.layers.3.mlp", "MLP", "megatron/core/transformer/mlp.py", 57}};

  Culprit culprit;
  culprit.fqn = id.fqn;
  culprit.tensor = id;
  culprit.direction = Direction::kBackward;
  culprit.stage = Stage::kCommunication;
  culprit.ranks = {0, 1};
  culprit.headroom = tensor.headroom;
  culprit.where = "its grad_output is within bounds (headroom 0.41)";
  culprit.affected.count = 8;
  culprit.affected.of = 40;
  culprit.affected.examples = {id.fqn, "decoder.layers.2.mlp.linear_fc1"};
  Diagnosis missing_sum;
  missing_sum.bug_class = BugClass::kMissingPartialSum;
  missing_sum.evidence =
      "copies on tp ranks 0 and 1 differ and their sum equals the reference "
      "(error 2.4e-03)";
  missing_sum.value = 2.4e-3;
  culprit.classes = {missing_sum};
  culprit.found_by = {"dataflow", "isolation"};
  culprit.hints = {
      "backward of linear_fc1: 0 all-reduces seen over tp, the reference's "
      "topology needs 1"};
  ErrorPattern pattern;
  pattern.row_dim = 0;
  pattern.column_dim = 1;
  pattern.rows = {0, 4, 8};
  pattern.columns = {0, 32, 64};
  pattern.errors = {0, 0.671, 0, std::numeric_limits<double>::infinity()};
  pattern.pieces = {{{0}, -1, "[all, 0:32]", 0, 0, 256},
                    {{1}, -1, "[all, 32:64]", 0.671, 250, 256}};
  pattern.pieces_of = 2;
  culprit.pattern = pattern;
  Culprit other = culprit;
  other.pattern.reset();
  other.fqn = "decoder.layers.0.self_attention.linear_qkv";
  other.name_in_candidate = "decoder.layers.0.attention.qkv";
  other.headroom = 56;
  result.culprits = {culprit, other};
  return result;
}

inline CheckResult SampleInconclusive() {
  CheckResult result = SampleCommon();
  result.verdict = Verdict::kInconclusive;
  result.reason = "12 tensors are unmatched";
  result.coverage.compared = 400;
  result.coverage.reference_only = 11;
  result.coverage.candidate_only = 1;
  result.not_checkable = 1;
  result.clean = {{"forward", 399, 400}};
  TensorId id;
  id.fqn = "decoder.layers.4.mlp";
  id.arg = "0";
  TensorJudgement missing;
  missing.id = id;
  missing.reason.kind = ReasonKind::kNotInCandidate;
  id.fqn = "loss";
  id.role = Role::kLoss;
  id.arg = "value";
  TensorJudgement wide =
      SampleTensor(id, TensorVerdict::kNotCheckable, 0.1, 0.4);
  wide.legs[0].checkable = false;
  wide.deciding_leg = -1;
  wide.headroom = 0;
  wide.reason.kind = ReasonKind::kBoundTooWide;
  wide.reason.numbers = {0.4};
  result.tensors = {missing, wide};
  return result;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_RESULT_SAMPLES_H_
