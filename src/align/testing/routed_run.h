// For tests: a layer of four experts, of which a router chooses two for each
// token, on any mesh of dp x cp x tp. Experts are divided over dp and computed
// in parts over tp; every mesh holds pieces of the same logical values.

#ifndef TTRACE_SRC_ALIGN_TESTING_ROUTED_RUN_H_
#define TTRACE_SRC_ALIGN_TESTING_ROUTED_RUN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/numeric/noise.h"
#include "src/trace/testing/scratch_trace.h"
#include "src/trace/writer.h"

namespace ttrace {

// What is about to be written of one tensor, for tests that damage it.
struct RoutedPiece {
  int rank = 0;
  int micro_batch = 0;
  int iteration = 0;
  Leg leg;
  RecordSpec spec;
  std::vector<int64_t> tokens;  // of its rows, as they are meant
  std::vector<float> values;    // row-major; of a map 0 and 1
  Occurrence at;
};

class RoutedRun {
 public:
  static constexpr int64_t kSequence = 8;
  static constexpr int64_t kRows = 4;
  static constexpr int64_t kTokens = kSequence * kRows;
  static constexpr int kExperts = 4;
  static constexpr int64_t kHidden = 6;

  int dp = 1;
  int cp = 1;
  int tp = 1;
  int64_t rows_of_a_batch = 2;
  int iterations = 1;
  std::vector<Leg> legs = {"real"};
  float noise = 0;  // relative rounding of this run's own
  float noise_of_legs = 0x1p-24f;
  // The experts of a token; null: Route.
  std::function<std::set<int>(const Leg& leg, int64_t token)> routing;
  // The map of a forward that is computed again; null: none is recorded.
  std::function<std::set<int>(int64_t token)> recomputed;
  // Returns false for what is not to be written.
  std::function<bool(RoutedPiece*)> change;
  // Row of the batch that lies at a row, for shuffled data.
  std::function<int64_t(int64_t)> row_of = [](int64_t row) { return row; };
  std::vector<std::pair<std::string, std::string>> notes;
  bool group_notes = true;
  std::string map_of_isolated = "1";

  // Two different ones.
  static std::set<int> Route(int64_t token) {
    const int first = static_cast<int>(token * 7 % 13 % kExperts);
    return {first,
            (first + 1 + static_cast<int>(token * 5 % 11 % 3)) % kExperts};
  }

  // In (-1, 1).
  static float Value(const std::string& name, int64_t index) {
    return UniformAt(MakeNoiseKey(1, name), static_cast<uint64_t>(index));
  }

  void Write(const std::string& folder) const {
    OrDie(CreateTraceFolder(folder, "{}", true));
    for (int rank = 0; rank < dp * cp * tp; ++rank) WriteRank(folder, rank);
  }

 private:
  struct Place {
    int d = 0;
    int c = 0;
    int t = 0;
  };
  Place PlaceOf(int rank) const {
    return {rank / (cp * tp), rank / tp % cp, rank % tp};
  }
  int RankAt(const Place& p) const { return (p.d * cp + p.c) * tp + p.t; }

  RankMeta MetaOf(int rank) const {
    const Place p = PlaceOf(rank);
    RankMeta meta;
    meta.rank = rank;
    meta.world_size = dp * cp * tp;
    meta.mesh.dims = {{"dp", dp}, {"cp", cp}, {"tp", tp}};
    meta.coordinate = {p.d, p.c, p.t};
    return meta;
  }

  int Batches() const { return static_cast<int>(kRows / rows_of_a_batch / dp); }
  int MicroBatch(int rank, int k) const { return k * dp + PlaceOf(rank).d; }

  // Tokens of a rank's k-th micro-batch, in the order of its hidden states.
  std::vector<int64_t> LocalTokens(int rank, int k) const {
    const RankMeta meta = MetaOf(rank);
    const int64_t first = MicroBatch(rank, k) * rows_of_a_batch;
    const Layout layout = OrDie(ResolveLayout(
        meta.mesh, meta.coordinate, OfSequence(), {kSequence, kRows},
        BatchRows{1, first, rows_of_a_batch, kRows}));
    std::vector<int64_t> out;
    for (const Segment& s : layout.dims[0].segments) {
      for (int64_t i = s.begin; i < s.begin + s.size; ++i) {
        for (int64_t row = first; row < first + rows_of_a_batch; ++row) {
          out.push_back(row * kSequence + i);
        }
      }
    }
    return out;
  }

  static PlacementMap OfSequence() {
    return {{"cp", ZigzagShard{0}}, {"tp", Shard{0}}};
  }

  // The same token in an order of rows that was not shuffled.
  int64_t Logical(int64_t token) const {
    return row_of(token / kSequence) * kSequence + token % kSequence;
  }

  std::set<int> ExpertsOf(const Leg& leg, int64_t token) const {
    return routing ? routing(leg, Logical(token)) : Route(Logical(token));
  }

  std::vector<int> SourcesOf(int rank) const {
    std::vector<int> out;
    Place p = PlaceOf(rank);
    for (p.d = 0; p.d < dp; ++p.d) {
      for (p.t = 0; p.t < tp; ++p.t) out.push_back(RankAt(p));
    }
    return out;
  }

  void WriteRank(const std::string& folder, int rank) const {
    const auto writer = OrDie(TraceWriter::Open(folder, MetaOf(rank)));
    for (const auto& [kind, json] : notes) OrDie(writer->Note(kind, json));
    if (group_notes) {
      std::string list;
      for (const int source : SourcesOf(rank)) {
        list += (list.empty() ? "" : ",") + std::to_string(source);
      }
      OrDie(writer->Note("expert_group",
                         R"({"name":"ep","sources":[)" + list + "]}"));
    }
    for (int iteration = 0; iteration < iterations; ++iteration) {
      for (const Leg& leg : legs) {
        for (int k = 0; k < Batches(); ++k) {
          WriteForward(*writer, rank, k, iteration, leg);
        }
        for (int k = 0; k < Batches(); ++k) {
          WriteBackward(*writer, rank, k, iteration, leg);
        }
        OrDie(writer->Seal(iteration, leg));
      }
    }
    OrDie(writer->Close(true, ""));
  }

  RoutedPiece Start(int rank, int k, int iteration, const Leg& leg,
                    const std::string& fqn, Role role,
                    const std::string& arg) const {
    RoutedPiece out;
    out.rank = rank;
    out.micro_batch = MicroBatch(rank, k);
    out.iteration = iteration;
    out.leg = leg;
    out.spec.fqn = fqn;
    out.spec.role = role;
    out.spec.arg = arg;
    out.at.leg = leg;
    out.at.iteration = iteration;
    out.at.micro_batch = out.micro_batch;
    out.at.pass = role == Role::kGradInput || role == Role::kGradOutput
                      ? Pass::kBackward
                      : Pass::kForward;
    return out;
  }

  float Rounded(const RoutedPiece& piece, int64_t index) const {
    const std::string name = piece.spec.fqn + "|" +
                             std::string(ToString(piece.spec.role)) + "|" +
                             piece.spec.arg;
    const bool noisy = piece.leg.is_noise();
    const bool fed = piece.spec.fqn.empty() && piece.spec.role == Role::kInput;
    const float size = fed ? 0 : noisy ? noise_of_legs : noise;
    const NoiseKey key = MakeNoiseKey(2, piece.leg.name() + name);
    return static_cast<float>(
        Value(name, index) *
        (1.0 + static_cast<double>(size) *
                   UniformAt(key, static_cast<uint64_t>(index))));
  }

  void Put(TraceWriter& writer, RoutedPiece piece) const {
    if (change && !change(&piece)) return;
    const std::vector<int64_t> strides =
        RowMajorStrides(piece.spec.local_shape);
    if (piece.spec.dtype == DType::kBool) {
      std::vector<std::byte> bytes;
      for (const float value : piece.values) {
        bytes.push_back(std::byte{value != 0 ? uint8_t{1} : uint8_t{0}});
      }
      OrDie(writer.Append(piece.spec, piece.at, {bytes.data(), strides}));
      return;
    }
    piece.values.push_back(0);  // so that there is an address
    OrDie(writer.Append(
        piece.spec, piece.at,
        {std::as_bytes(std::span(piece.values)).data(), strides}));
  }

  // A tensor [sequence, batch, width].
  RoutedPiece OfTokens(int rank, int k, int iteration, const Leg& leg,
                       const std::string& fqn, Role role,
                       const std::string& arg, int64_t width) const {
    RoutedPiece out = Start(rank, k, iteration, leg, fqn, role, arg);
    out.tokens = LocalTokens(rank, k);
    const auto tokens = static_cast<int64_t>(out.tokens.size());
    out.spec.local_shape = {tokens / rows_of_a_batch, rows_of_a_batch, width};
    out.spec.global_shape = {kSequence, kRows, width};
    out.spec.placements = OfSequence();
    out.spec.batch_dim = 1;
    out.at.row_begin = out.micro_batch * rows_of_a_batch;
    return out;
  }

  void PutTokens(TraceWriter& writer, int rank, int k, int iteration,
                 const Leg& leg, const std::string& fqn, Role role,
                 const std::string& arg, int64_t width) const {
    RoutedPiece piece =
        OfTokens(rank, k, iteration, leg, fqn, role, arg, width);
    for (const int64_t token : LocalTokens(rank, k)) {
      for (int64_t i = 0; i < width; ++i) {
        piece.values.push_back(Rounded(piece, Logical(token) * width + i));
      }
    }
    Put(writer, std::move(piece));
  }

  // In an isolated leg that names it otherwise, the map that is used comes
  // beside what the router itself decides, which is what it does in its run.
  void PutMap(TraceWriter& writer, int rank, int k, int iteration,
              const Leg& leg) const {
    const bool isolated = leg.is_isolated();
    const std::string used = isolated ? map_of_isolated : "1";
    PutMap(writer, rank, k, iteration, leg, leg, used);
    if (used != "1") PutMap(writer, rank, k, iteration, leg, "real", "1");
  }
  void PutMap(TraceWriter& writer, int rank, int k, int iteration,
              const Leg& leg, const Leg& routed_as,
              const std::string& arg) const {
    RoutedPiece piece = OfTokens(rank, k, iteration, leg, "moe.router",
                                 Role::kOutput, arg, kExperts);
    piece.spec.dtype = DType::kBool;
    RoutedPiece again = piece;
    for (const int64_t token : LocalTokens(rank, k)) {
      const std::set<int> chosen = ExpertsOf(routed_as, token);
      const std::set<int> later = recomputed ? recomputed(token) : chosen;
      for (int e = 0; e < kExperts; ++e) {
        piece.values.push_back(chosen.contains(e) ? 1.0F : 0.0F);
        again.values.push_back(later.contains(e) ? 1.0F : 0.0F);
      }
    }
    Put(writer, std::move(piece));
    again.at.pass = Pass::kRecompute;
    if (recomputed) Put(writer, std::move(again));
  }

  void PutRows(TraceWriter& writer, int rank, int k, int iteration,
               const Leg& leg, Role role, const std::string& arg) const {
    const Place place = PlaceOf(rank);
    const int held = kExperts / dp;
    const bool partial = role == Role::kOutput || role == Role::kGradInput;
    for (int e = place.d * held; e < (place.d + 1) * held; ++e) {
      RoutedPiece piece = Start(rank, k, iteration, leg,
                                "moe.experts." + std::to_string(e), role, arg);
      for (const int source : SourcesOf(rank)) {
        for (const int64_t token : LocalTokens(source, k)) {
          if (ExpertsOf(leg, token).contains(e)) piece.tokens.push_back(token);
        }
      }
      if (partial) piece.spec.placements = {{"tp", Partial{}}};
      piece.spec.local_shape = {static_cast<int64_t>(piece.tokens.size()),
                                kHidden};
      piece.spec.global_shape = {kTokens, kHidden};
      const bool isolated = leg.is_isolated();
      piece.spec.routed =
          RoutedRows{"moe.router", isolated ? map_of_isolated : "1", e, "ep"};
      for (const int64_t token : piece.tokens) {
        for (int64_t i = 0; i < kHidden; ++i) {
          const float whole = Rounded(piece, Logical(token) * kHidden + i);
          // Terms that sum to it, exactly.
          piece.values.push_back(!partial || tp == 1 ? whole
                                 : place.t == 0
                                     ? whole / 2
                                     : whole / 2 / static_cast<float>(tp - 1));
        }
      }
      Put(writer, std::move(piece));
    }
  }

  void WriteForward(TraceWriter& writer, int rank, int k, int iteration,
                    const Leg& leg) const {
    PutTokens(writer, rank, k, iteration, leg, "", Role::kInput, "tokens", 1);
    PutTokens(writer, rank, k, iteration, leg, "moe.router", Role::kInput, "x",
              kHidden);
    PutTokens(writer, rank, k, iteration, leg, "moe.router", Role::kOutput,
              "scores", kExperts);
    PutMap(writer, rank, k, iteration, leg);
    PutRows(writer, rank, k, iteration, leg, Role::kInput, "x");
    PutRows(writer, rank, k, iteration, leg, Role::kOutput, "0");
    PutTokens(writer, rank, k, iteration, leg, "moe", Role::kOutput, "0",
              kHidden);
    PutTokens(writer, rank, k, iteration, leg, "", Role::kOutput, "0", kHidden);
  }

  void WriteBackward(TraceWriter& writer, int rank, int k, int iteration,
                     const Leg& leg) const {
    PutRows(writer, rank, k, iteration, leg, Role::kGradOutput, "0");
    PutRows(writer, rank, k, iteration, leg, Role::kGradInput, "x");
  }
};

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_TESTING_ROUTED_RUN_H_
