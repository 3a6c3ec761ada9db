// A run of which only the optimizer's steps are recorded: gradients that are a
// function of place and iteration, parameters and state that float arithmetic
// makes of them, and faults that are planted in some of it.

#ifndef TTRACE_SRC_CHECK_TESTING_STEP_RUN_H_
#define TTRACE_SRC_CHECK_TESTING_STEP_RUN_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/in_place/candidate_reducer.h"
#include "src/numeric/noise.h"
#include "src/step/testing/float_step.h"
#include "src/trace/writer.h"

namespace ttrace {

struct StepFault {
  std::set<int> ranks;                  // empty: all
  int iteration = -1;                   // -1: all
  std::function<void(StepRule*)> rule;  // what is computed with instead
  int count_by = 0;                     // bias correction's count
  bool skip = false;
  bool keep_parameter = false;
  bool keep_moments = false;
  bool frozen_moments = false;  // also what the parameter is made of
  bool keep_copy = false;
  bool keep_count = false;
  bool from_copy = false;  // the master copy is made of the working copy
  bool old_gradient = false;
  bool no_clip = false;
  bool clip_twice = false;
  bool eps_inside_root = false;
  double gradient = 1;
};

class StepRun {
 public:
  StepRule rule;
  StepOrder order = StepOrder::kTensors;
  DType dtype = DType::kF32;  // of the model's parameters
  bool master = false;
  std::string kind = "Adam";
  std::string more;  // values of the note, beside those of `rule`
  std::vector<MeshDim> mesh = {{"tp", 2}};
  // Ranks of one part of a parameter along "dp" share out its state.
  bool sharded_state = false;
  bool right_after = false;  // the parameter is also recorded as "updated"
  bool grafted = false;      // a note says that weights were put in place
  int iterations = 3;
  StepFault fault;
  // What a rank does not write; by role, argument and pass.
  std::function<bool(int rank, const RecordSpec&, const Occurrence&)> omit;
  std::function<void(const RecordSpec&, const Occurrence&, std::vector<float>*)>
      change;
  std::set<int> said_skipped;  // iterations
  // Names of those that have no gradient in the last iteration.
  std::set<std::string> without_gradient;
  // Whose weight decay is another one, as its note says.
  std::map<std::string, double> own_decay;
  // How often a parameter counts in the norm that is reported.
  std::map<std::string, double> norm_weight;
  double first_size = 1e-3;  // of gradients
  Shape weight_shape = {32, 16};

  StepRun() {
    rule.lr = 1e-2;
    rule.beta1 = 0.9;
    rule.beta2 = 0.99;
    rule.eps = 1e-8;
    rule.weight_decay = 0.1;
    rule.decoupled = true;
  }

  std::vector<std::pair<std::string, Shape>> Parameters() const {
    return {{"fc.bias", {32}}, {"fc.weight", weight_shape}};
  }

  // `reference`: compared with this one, and its steps made again, where it is
  // written. Empty: all values are.
  void Write(const std::string& folder,
             const std::string& reference = "") const {
    ASSERT_TRUE(CreateTraceFolder(folder, "{}", false).ok());
    int world = 1;
    for (const MeshDim& dim : mesh) world *= dim.size;
    for (int rank = 0; rank < world; ++rank) {
      WriteRank(folder, reference, rank, world);
    }
  }

 private:
  struct Piece {
    std::string fqn;
    PlacementMap placements;
    Layout layout;
    std::vector<int64_t> indices;  // global, row-major
    std::vector<StepState> state;
    std::vector<float> copy;
    PlacementMap state_placements;
    Shape state_shape;
    size_t state_begin = 0;  // of `indices`
    size_t state_end = 0;
  };

  static double Uniform(const std::string& name, int64_t index) {
    return static_cast<double>(
        UniformAt(MakeNoiseKey(3, name), static_cast<uint64_t>(index)));
  }

  float GradientAt(const std::string& fqn, int iteration, int64_t index) const {
    const std::string name = fmt::format("{}|{}", fqn, iteration);
    const double size = first_size * (1 + 3 * std::fabs(Uniform(fqn, index)));
    return static_cast<float>(size * Uniform(name, index));
  }

  bool HasNoGradient(const std::string& fqn, int iteration) const {
    return iteration + 1 == iterations && without_gradient.contains(fqn);
  }

  double Norm(int iteration) const {
    double sum = 0;
    for (const auto& [fqn, shape] : Parameters()) {
      if (HasNoGradient(fqn, iteration)) continue;
      int64_t count = 1;
      for (const int64_t n : shape) count *= n;
      for (int64_t i = 0; i < count; ++i) {
        const float seen = GradientAt(fqn, iteration, i);
        const auto g = static_cast<double>(master ? seen : Low(seen));
        const auto weight = norm_weight.find(fqn);
        sum += g * g * (weight == norm_weight.end() ? 1 : weight->second);
      }
    }
    return std::sqrt(sum);
  }

  bool Faulty(int rank, int iteration) const {
    return (fault.ranks.empty() || fault.ranks.contains(rank)) &&
           (fault.iteration < 0 || fault.iteration == iteration);
  }

  double DecayOf(const std::string& fqn) const {
    const auto own = own_decay.find(fqn);
    return own == own_decay.end() ? rule.weight_decay : own->second;
  }

  std::string Note(const std::string& fqn, int iteration) const {
    std::string values =
        kind == "SGD"
            ? fmt::format(R"("momentum": {}, "dampening": {}, "nesterov": {})",
                          rule.momentum, rule.dampening, rule.nesterov)
            : fmt::format(
                  R"("betas": [{}, {}], "eps": {}, "amsgrad": {},
                     "decoupled_weight_decay": {}, "bias_correction": {})",
                  rule.beta1, rule.beta2, rule.eps, rule.amsgrad,
                  rule.decoupled, rule.bias_correction);
    values += fmt::format(R"(, "lr": {}, "weight_decay": {}, "maximize": {})",
                          rule.lr, DecayOf(fqn), rule.maximize);
    if (rule.clip_norm) {
      values += fmt::format(R"(, "clip_grad": {})", *rule.clip_norm);
    }
    return fmt::format(
        R"({{"iteration": {}, "optimizer": 0, "group": 0, "kind": "{}",
            "values": {{{}{}}}, "parameters": ["{}"]}})",
        iteration, kind, values, more, fqn);
  }

  void WriteRank(const std::string& folder, const std::string& reference,
                 int rank, int world) const {
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = world;
    meta.mesh.dims = mesh;
    meta.coordinate.assign(mesh.size(), 0);
    int rest = rank;
    for (size_t d = mesh.size(); d-- > 0;) {
      meta.coordinate[d] = rest % mesh[d].size;
      rest /= mesh[d].size;
    }
    auto writer = TraceWriter::Open(
        folder, meta,
        reference.empty() ? nullptr
                          : MakeCandidateReducer(meta, {}, reference));
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    if (grafted) {
      ASSERT_TRUE((*writer)->Note("graft", R"({"what": "weights"})").ok());
    }
    std::vector<Piece> pieces;
    for (const auto& [fqn, shape] : Parameters()) {
      Piece piece;
      piece.fqn = fqn;
      if (meta.mesh.Find("tp") >= 0) piece.placements = {{"tp", Shard{0}}};
      const auto layout = ResolveLayout(meta.mesh, meta.coordinate,
                                        piece.placements, shape, std::nullopt);
      ASSERT_TRUE(layout.ok());
      piece.layout = *layout;
      const int64_t width = shape.size() == 2 ? shape[1] : 1;
      for (const Segment& rows : layout->dims[0].segments) {
        for (int64_t i = rows.begin * width;
             i < (rows.begin + rows.size) * width; ++i) {
          piece.indices.push_back(i);
        }
      }
      Share(meta, shape, &piece);
      for (const int64_t index : piece.indices) {
        StepState state;
        state.parameter =
            static_cast<float>(0.2 * Uniform(fqn + " start", index));
        piece.copy.push_back(Low(state.parameter));
        if (!master) state.parameter = piece.copy.back();
        piece.state.push_back(state);
      }
      pieces.push_back(std::move(piece));
    }
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (said_skipped.contains(iteration)) {
        ASSERT_TRUE(
            (*writer)
                ->Note("skipped_step",
                       fmt::format(R"({{"iteration": {}, "reason": "none"}})",
                                   iteration))
                .ok());
      }
      for (const std::string& fqn : without_gradient) {
        if (iteration + 1 != iterations) continue;
        ASSERT_TRUE((*writer)
                        ->Note("no_gradient",
                               fmt::format(R"({{"iteration": {}, "parameters":
                                   ["{}"]}})",
                                           iteration, fqn))
                        .ok());
      }
      for (Piece& piece : pieces) {
        StepOnce(**writer, rank, iteration, &piece);
      }
      RecordSpec norm = SpecOf("grad_norm", Role::kGradNorm, "", {}, {});
      const auto value = static_cast<float>(Norm(iteration));
      Put(**writer, rank, norm, iteration, Pass::kOptimizer, {value});
      ASSERT_TRUE((*writer)->Seal(iteration, "real").ok());
      // Read by the next iteration.
      for (const Piece& piece : pieces) {
        RecordSpec spec =
            SpecOf(piece.fqn, Role::kParamUpdated, "",
                   piece.layout.local_shape(), piece.layout.global_shape());
        spec.placements = piece.placements;
        spec.dtype = dtype;
        Put(**writer, rank, spec, iteration, Pass::kOptimizer, piece.copy);
      }
    }
    ASSERT_TRUE((*writer)->Close(true, "").ok());
  }

  void Share(const RankMeta& meta, const Shape& shape, Piece* piece) const {
    piece->state_placements = piece->placements;
    piece->state_shape = piece->layout.local_shape();
    piece->state_end = piece->indices.size();
    const int dp = meta.mesh.Find("dp");
    if (!sharded_state || dp < 0) return;
    piece->state_placements.emplace_back("dp", Shard{0});
    const auto layout =
        ResolveLayout(meta.mesh, meta.coordinate, piece->state_placements,
                      shape, std::nullopt);
    ASSERT_TRUE(layout.ok());
    piece->state_shape = layout->local_shape();
    const auto count = static_cast<size_t>(layout->local_count());
    const auto at =
        static_cast<size_t>(meta.coordinate[static_cast<size_t>(dp)]);
    piece->state_begin = at * count;
    piece->state_end = piece->state_begin + count;
  }

  float Low(float x) const {
    return static_cast<float>(RoundTo(static_cast<double>(x), dtype));
  }

  static RecordSpec SpecOf(const std::string& fqn, Role role,
                           const std::string& arg, const Shape& local,
                           const Shape& global) {
    RecordSpec spec;
    spec.fqn = fqn;
    spec.role = role;
    spec.arg = arg;
    spec.local_shape = local;
    spec.global_shape = global;
    return spec;
  }

  void Put(TraceWriter& writer, int rank, const RecordSpec& spec, int iteration,
           Pass pass, std::vector<float> values) const {
    Occurrence at;
    at.leg = "real";
    at.iteration = iteration;
    at.pass = pass;
    if (omit && omit(rank, spec, at)) return;
    if (change) change(spec, at, &values);
    std::vector<int64_t> strides(spec.local_shape.size(), 1);
    for (size_t d = strides.size(); d-- > 1;) {
      strides[d - 1] = strides[d] * spec.local_shape[d];
    }
    std::vector<uint16_t> cut;
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    if (spec.dtype == DType::kBF16) {
      for (const float value : values) {
        cut.push_back(
            static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
      }
      bytes = reinterpret_cast<const std::byte*>(cut.data());
    }
    const Status done = writer.Append(spec, at, {bytes, strides});
    ASSERT_TRUE(done.ok()) << done.error().message();
  }

  static bool IsShared(Role role, const std::string& arg) {
    return role == Role::kOptimState && arg != "updated";
  }

  void StepOnce(TraceWriter& writer, int rank, int iteration,
                Piece* piece) const {
    const bool faulty = Faulty(rank, iteration);
    const StepFault none;
    const StepFault& f = faulty ? fault : none;
    StepRule used = rule;
    used.weight_decay = DecayOf(piece->fqn);
    if (f.rule) f.rule(&used);
    const auto spec_of = [&](Role role, const std::string& arg, DType of) {
      const bool state = IsShared(role, arg);
      RecordSpec spec =
          SpecOf(piece->fqn, role, arg,
                 state ? piece->state_shape : piece->layout.local_shape(),
                 piece->layout.global_shape());
      spec.placements = state ? piece->state_placements : piece->placements;
      spec.dtype = of;
      return spec;
    };
    const auto put = [&](Role role, const std::string& arg, Pass pass, DType of,
                         const std::function<float(size_t)>& value) {
      std::vector<float> values;
      const bool state = IsShared(role, arg);
      const size_t end = state ? piece->state_end : piece->indices.size();
      for (size_t i = state ? piece->state_begin : 0; i < end; ++i) {
        values.push_back(value(i));
      }
      Put(writer, rank, spec_of(role, arg, of), iteration, pass,
          std::move(values));
    };
    const DType own = master ? DType::kF32 : dtype;
    const bool adam = rule.algorithm == StepAlgorithm::kAdam;
    const auto put_state = [&](Pass pass, int count) {
      if (master) {
        put(Role::kOptimState, "master", pass, own,
            [&](size_t i) { return piece->state[i].parameter; });
      }
      if (count == 0) return;  // not made yet
      if (adam || rule.momentum != 0) {
        put(Role::kOptimState, adam ? "exp_avg" : "momentum_buffer", pass, own,
            [&](size_t i) { return piece->state[i].first; });
      }
      if (!adam) return;
      put(Role::kOptimState, "exp_avg_sq", pass, own,
          [&](size_t i) { return piece->state[i].second; });
      if (rule.amsgrad) {
        put(Role::kOptimState, "max_exp_avg_sq", pass, own,
            [&](size_t i) { return piece->state[i].largest; });
      }
      Put(writer, rank, SpecOf(piece->fqn, Role::kOptimState, "step", {}, {}),
          iteration, pass, {static_cast<float>(count)});
    };
    if (iteration == 0) {
      put(Role::kParam, "", Pass::kForward, dtype,
          [&](size_t i) { return piece->copy[i]; });
    }
    ASSERT_TRUE(
        writer.Note("optimizer_group", Note(piece->fqn, iteration)).ok());
    put_state(Pass::kForward, iteration);
    const bool no_gradient = HasNoGradient(piece->fqn, iteration);
    if (!no_gradient) {
      put(Role::kGradReduced, "", Pass::kBackward, own, [&](size_t i) {
        const float g = GradientAt(piece->fqn, iteration, piece->indices[i]);
        return master ? g : Low(g);
      });
    }
    double clip = 1;
    if (rule.clip_norm && !f.no_clip) {
      clip = std::fmin(1, *rule.clip_norm / (Norm(iteration) + 1e-6));
      if (f.clip_twice) clip *= clip;
    }
    const FloatStep step(order, used, iteration + 1 + f.count_by, own);
    const std::vector<float> started = piece->copy;
    const bool skip = f.skip || no_gradient || said_skipped.contains(iteration);
    for (size_t i = 0; i < piece->indices.size(); ++i) {
      if (skip) break;
      float g = GradientAt(piece->fqn, iteration - (f.old_gradient ? 1 : 0),
                           piece->indices[i]);
      if (!master) g = Low(g);
      if (clip != 1) g *= static_cast<float>(clip);
      if (f.gradient != 1) g *= static_cast<float>(f.gradient);
      StepState before = piece->state[i];
      if (f.from_copy) before.parameter = piece->copy[i];
      StepState after = step.After(before, g, iteration == 0);
      if (f.eps_inside_root)
        after.parameter = ByHand(used, before, after, iteration + 1, true);
      if (f.frozen_moments) {
        after = before;
        after.parameter = ByHand(used, before, before, iteration + 1, false);
      }
      if (f.keep_parameter) after.parameter = before.parameter;
      if (f.keep_moments) {
        const float parameter = after.parameter;
        after = before;
        after.parameter = parameter;
      }
      piece->state[i] = after;
    }
    const bool counts = !f.keep_count && !no_gradient;
    put_state(Pass::kOptimizer, counts ? iteration + 1 : iteration);
    for (size_t i = 0; i < piece->indices.size(); ++i) {
      if (!f.keep_copy) piece->copy[i] = Low(piece->state[i].parameter);
    }
    if (right_after) {
      put(Role::kOptimState, "updated", Pass::kForward, dtype,
          [&](size_t i) { return started[i]; });
      put(Role::kOptimState, "updated", Pass::kOptimizer, dtype,
          [&](size_t i) { return piece->copy[i]; });
    }
  }

  static float ByHand(const StepRule& rule, const StepState& before,
                      const StepState& moments, int count, bool inside) {
    const double c1 = 1 - std::pow(rule.beta1, count);
    const double c2 = 1 - std::pow(rule.beta2, count);
    const auto p = static_cast<double>(before.parameter);
    const double second = static_cast<double>(moments.second) / c2;
    return static_cast<float>(p * (1 - rule.lr * rule.weight_decay) -
                              rule.lr / c1 *
                                  static_cast<double>(moments.first) /
                                  (inside ? std::sqrt(second + rule.eps)
                                          : std::sqrt(second) + rule.eps));
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_TESTING_STEP_RUN_H_
