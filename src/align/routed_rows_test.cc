#include "src/align/routed_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "src/align/catalog.h"
#include "src/align/read_local.h"
#include "src/align/testing/routed_run.h"

namespace ttrace::routed_rows_test {
namespace {

using testing::HasSubstr;

TensorId Rows(int expert, Role role = Role::kInput) {
  TensorId id;
  id.fqn = "moe.experts." + std::to_string(expert);
  id.role = role;
  id.arg = role == Role::kInput || role == Role::kGradInput ? "x" : "0";
  id.pass = role == Role::kInput || role == Role::kOutput ? Pass::kForward
                                                          : Pass::kBackward;
  return id;
}

Catalog Load(const RoutedRun& run, const ScratchFolder& folder) {
  run.Write(folder.path());
  return Catalog(OrDie(Trace::Open(folder.path())));
}

std::vector<int64_t> Listed(const DimLayout& dim) {
  std::vector<int64_t> out;
  for (const Segment& s : dim.segments) {
    for (int64_t i = 0; i < s.size; ++i) out.push_back(s.begin + i);
  }
  return out;
}

// What every mesh must agree on.
std::vector<int64_t> TokensOf(int expert) {
  std::vector<int64_t> out;
  for (int64_t token = 0; token < RoutedRun::kTokens; ++token) {
    if (RoutedRun::Route(token).contains(expert)) out.push_back(token);
  }
  return out;
}

RoutingTrouble TroubleOf(const Catalog& catalog, const TensorId& id) {
  const TensorPieces* pieces = catalog.Find("real", id);
  EXPECT_NE(pieces, nullptr);
  EXPECT_EQ(pieces->tokens, nullptr);
  EXPECT_NE(pieces->unplaced, nullptr);
  return pieces->unplaced ? *pieces->unplaced : RoutingTrouble{};
}

struct Mesh {
  int dp, cp, tp;
  int64_t rows;
};

TEST(RoutedRows, LieWhereTheMapsOfAllSourcesSay) {
  for (const Mesh& mesh : {Mesh{1, 1, 1, 1}, Mesh{1, 1, 1, 2}, Mesh{2, 1, 1, 1},
                           Mesh{2, 1, 1, 2}, Mesh{1, 2, 1, 2}, Mesh{2, 1, 2, 1},
                           Mesh{2, 2, 1, 1}, Mesh{4, 1, 1, 1}}) {
    RoutedRun run;
    run.dp = mesh.dp;
    run.cp = mesh.cp;
    run.tp = mesh.tp;
    run.rows_of_a_batch = mesh.rows;
    std::map<std::tuple<int, int, std::string, Role>, std::vector<int64_t>>
        meant;
    run.change = [&](RoutedPiece* piece) {
      if (piece->spec.routed) {
        meant[{piece->rank, piece->micro_batch, piece->spec.fqn,
               piece->spec.role}] = piece->tokens;
      }
      return true;
    };
    const ScratchFolder folder;
    const Catalog catalog = Load(run, folder);
    for (int expert = 0; expert < RoutedRun::kExperts; ++expert) {
      for (const Role role :
           {Role::kInput, Role::kOutput, Role::kGradOutput, Role::kGradInput}) {
        const TensorPieces* pieces = catalog.Find("real", Rows(expert, role));
        ASSERT_NE(pieces, nullptr);
        ASSERT_EQ(pieces->unplaced, nullptr) << ToString(*pieces->unplaced);
        EXPECT_EQ(Listed(*pieces->tokens), TokensOf(expert));
        for (const Record& record : pieces->pieces) {
          EXPECT_EQ(Listed(record.layout().dims[0]),
                    (meant[{record.rank(), record.micro_batch(),
                            record.id().fqn, role}]));
        }
      }
    }
  }
}

TEST(RoutedRows, OtherTensorsStayAsTheyAre) {
  RoutedRun run;
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  TensorId id;
  id.fqn = "moe";
  id.arg = "0";
  const TensorPieces* pieces = catalog.Find("real", id);
  ASSERT_NE(pieces, nullptr);
  EXPECT_EQ(pieces->tokens, nullptr);
  EXPECT_EQ(pieces->unplaced, nullptr);
}

TEST(RoutedRows, AMissingMapIsNamedByItsRank) {
  RoutedRun run;
  run.dp = 2;
  run.rows_of_a_batch = 1;
  run.change = [](RoutedPiece* piece) {
    return piece->rank != 1 || piece->spec.arg != "1";
  };
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  for (const int expert : {0, 3}) {
    const RoutingTrouble trouble = TroubleOf(catalog, Rows(expert));
    EXPECT_FALSE(trouble.miscounted);
    EXPECT_EQ(trouble.rank, 1);
    EXPECT_EQ(trouble.router, "moe.router");
    EXPECT_EQ(trouble.expert, expert);
    EXPECT_EQ(trouble.detail, "no routing map of moe.router (output 1)");
    EXPECT_EQ(ToString(trouble),
              "rank 1: no routing map of moe.router (output 1)");
  }
}

TEST(RoutedRows, MapsOfFewerMicroBatchesAreNotMatchedByGuess) {
  RoutedRun run;
  run.dp = 2;
  run.rows_of_a_batch = 1;
  run.change = [](RoutedPiece* piece) {
    return piece->micro_batch != 1 || piece->spec.arg != "1";
  };
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  const RoutingTrouble other = TroubleOf(catalog, Rows(0));
  EXPECT_EQ(other.rank, 1);
  EXPECT_THAT(other.detail, HasSubstr("1 routing maps beside 2 of rank 0"));
  const RoutingTrouble own = TroubleOf(catalog, Rows(3));
  EXPECT_EQ(own.rank, 1);
  EXPECT_THAT(own.detail, HasSubstr("no routing map of micro-batch 1"));
}

TEST(RoutedRows, AMapThatIsNoneSaysWhy) {
  const auto detail = [](const std::function<void(RoutedPiece*)>& change) {
    RoutedRun run;
    run.change = [&](RoutedPiece* piece) {
      if (piece->spec.arg == "1") change(piece);
      return true;
    };
    const ScratchFolder folder;
    return TroubleOf(Load(run, folder), Rows(3)).detail;
  };
  EXPECT_THAT(detail([](RoutedPiece* p) { p->spec.dtype = DType::kF32; }),
              HasSubstr("is not of dtype bool"));
  EXPECT_THAT(detail([](RoutedPiece* p) {
                p->spec.local_shape = {p->spec.local_shape[0] * 2, 4};
                p->spec.global_shape = {16, 4};
                p->spec.placements = {};
                p->spec.batch_dim = -1;
              }),
              HasSubstr("is not [sequence, batch, experts]"));
  EXPECT_THAT(detail([](RoutedPiece* p) {
                p->spec.placements = {{"tp", Partial{}}};
              }),
              HasSubstr("is a term of a sum"));
  EXPECT_THAT(detail([](RoutedPiece* p) {
                p->spec.local_shape[2] = p->spec.global_shape[2] = 3;
              }),
              HasSubstr("has no expert 3"));
  EXPECT_THAT(detail([](RoutedPiece* p) {
                p->spec.local_shape[2] = p->spec.global_shape[2] = 0;
              }),
              HasSubstr("holds nothing"));
  EXPECT_THAT(detail([](RoutedPiece* p) {
                p->spec.local_shape[0] = p->spec.global_shape[0] = 4;
                p->spec.placements = {};
              }),
              HasSubstr("is of 16 tokens, not of 32"));
  EXPECT_THAT(detail([](RoutedPiece* p) { p->at.micro_batch = 0; }),
              HasSubstr("of one micro-batch"));
}

TEST(RoutedRows, AMapCutAlongTheExpertsIsNone) {
  RoutedRun run;
  run.tp = 2;
  run.change = [](RoutedPiece* piece) {
    if (piece->spec.arg == "1") {
      piece->spec.placements = {{"tp", Shard{2}}};
      piece->spec.local_shape = {RoutedRun::kSequence, 2, 2};
      piece->values.assign(RoutedRun::kSequence * 4, 1);
    }
    return true;
  };
  const ScratchFolder folder;
  EXPECT_THAT(TroubleOf(Load(run, folder), Rows(0)).detail,
              HasSubstr("is cut along the experts"));
}

TEST(RoutedRows, ADamagedMapIsSaidToBe) {
  RoutedRun run;
  const ScratchFolder folder;
  run.Write(folder.path());
  const auto trace = OrDie(Trace::Open(folder.path()));
  for (const Record& record : trace->records()) {
    if (record.id().arg != "1" || record.micro_batch() != 1) continue;
    SetFileByte(folder / "rank-00000.r0" + "/segment-00000.safetensors",
                static_cast<size_t>(record.extent().offset), 7);
  }
  const Catalog catalog(OrDie(Trace::Open(folder.path())));
  EXPECT_THAT(TroubleOf(catalog, Rows(0)).detail,
              HasSubstr("cannot be read: "));
  EXPECT_EQ(catalog.trace().damaged().size(), 1U);
}

// Ranks of other groups: those of cp 1 share no expert's rows with cp 0.
TEST(RoutedRows, AllTokensAreThoseOfAllMaps) {
  for (const bool has_map : {false, true}) {
    RoutedRun run;
    run.cp = 2;
    run.change = [&](RoutedPiece* piece) {
      if (piece->rank == 0) return true;
      if (piece->spec.arg == "1") piece->spec.dtype = DType::kF32;
      return !piece->spec.routed && (has_map || piece->spec.arg != "1");
    };
    const ScratchFolder folder;
    const Catalog catalog = Load(run, folder);
    if (has_map) {
      EXPECT_EQ(TroubleOf(catalog, Rows(0)).rank, 1);
      continue;
    }
    const TensorPieces* pieces = catalog.Find("real", Rows(0));
    ASSERT_EQ(pieces->unplaced, nullptr);
    EXPECT_LT(pieces->tokens->local_size(),
              static_cast<int64_t>(TokensOf(0).size()));
  }
}

// Copies of a map say no more than one of them.
TEST(RoutedRows, ATokenThatTwoRanksHoldIsOne) {
  RoutedRun run;
  run.cp = 2;
  run.rows_of_a_batch = RoutedRun::kRows;
  run.change = [](RoutedPiece* piece) {
    if (piece->rank == 1 && piece->spec.arg == "1") {
      piece->spec.placements = {};
      piece->spec.local_shape = piece->spec.global_shape;
      piece->values.clear();
      for (int64_t place = 0; place < RoutedRun::kSequence; ++place) {
        for (int64_t row = 0; row < RoutedRun::kRows; ++row) {
          const std::set<int> chosen =
              RoutedRun::Route(row * RoutedRun::kSequence + place);
          for (int e = 0; e < RoutedRun::kExperts; ++e) {
            piece->values.push_back(chosen.contains(e) ? 1.0F : 0.0F);
          }
        }
      }
    }
    return piece->rank == 0 || !piece->spec.routed;
  };
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  const TensorPieces* pieces = catalog.Find("real", Rows(0));
  ASSERT_EQ(pieces->unplaced, nullptr) << ToString(*pieces->unplaced);
  EXPECT_EQ(Listed(*pieces->tokens), TokensOf(0));
}

TEST(RoutedRows, WithoutTheNoteOfTheirGroupTheyHaveNoPlace) {
  for (const std::string& note :
       {std::string(), std::string(R"({"name":"ep","sources":[]})"),
        std::string(R"({"name":"ep","sources":["0"]})"),
        std::string(R"({"name":"ep","sources":0})"),
        std::string(R"({"name":"ep"})"), std::string(R"({"sources":[0]})"),
        std::string(R"({"name":["ep"],"sources":[0]})"),
        std::string(R"({"name":"other","sources":[0]})")}) {
    RoutedRun run;
    run.group_notes = false;
    if (!note.empty()) run.notes = {{"expert_group", note}};
    const ScratchFolder folder;
    EXPECT_THAT(TroubleOf(Load(run, folder), Rows(0)).detail,
                HasSubstr("no note names the ranks of expert group 'ep'"));
  }
}

TEST(RoutedRows, ARankThatIsNotThereHasNoMap) {
  RoutedRun run;
  run.group_notes = false;
  run.notes = {{"expert_group", R"({"name":"ep","sources":[0,77]})"}};
  const ScratchFolder folder;
  EXPECT_EQ(TroubleOf(Load(run, folder), Rows(0)).rank, 77);
}

TEST(RoutedRows, OneTokenOfTwoSourcesIsNotPlaced) {
  RoutedRun run;
  run.group_notes = false;
  run.notes = {{"expert_group", R"({"name":"ep","sources":[0,0]})"}};
  run.change = [](RoutedPiece* piece) {
    if (!piece->spec.routed) return true;
    piece->spec.local_shape[0] *= 2;
    piece->values.insert(piece->values.end(), piece->values.begin(),
                         piece->values.end());
    return true;
  };
  const ScratchFolder folder;
  EXPECT_THAT(TroubleOf(Load(run, folder), Rows(0)).detail,
              HasSubstr("two sources hold one token"));
}

TEST(RoutedRows, TooFewRowsAreWorseThanAMissingMap) {
  RoutedRun run;
  run.dp = 2;
  run.rows_of_a_batch = 1;
  run.change = [](RoutedPiece* piece) {
    if (piece->rank == 0 && piece->spec.fqn == "moe.experts.1" &&
        piece->micro_batch == 2 && piece->spec.role == Role::kInput) {
      --piece->spec.local_shape[0];
    }
    return true;
  };
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  const RoutingTrouble trouble = TroubleOf(catalog, Rows(1));
  EXPECT_TRUE(trouble.miscounted);
  EXPECT_EQ(trouble.rank, 0);
  EXPECT_EQ(trouble.expert, 1);
  EXPECT_EQ(trouble.actual, trouble.expected - 1);
  EXPECT_THAT(ToString(trouble), HasSubstr("of expert 1, to which moe.router"));
  // What is right stays comparable.
  EXPECT_EQ(catalog.Find("real", Rows(1, Role::kOutput))->unplaced, nullptr);
  EXPECT_EQ(catalog.Find("real", Rows(2))->unplaced, nullptr);
}

TEST(RoutedRows, OneNameIsOfOneExpert) {
  for (const int what : {0, 1, 2, 3}) {
    RoutedRun run;
    run.change = [&](RoutedPiece* piece) {
      if (!piece->spec.routed || piece->micro_batch != 1) return true;
      if (what == 0) piece->spec.routed->expert ^= 1;
      if (what == 1) piece->spec.routed->by = "other";
      if (what == 2) piece->spec.routed->arg = "2";
      if (what == 3) {
        piece->spec.routed.reset();
        piece->spec.local_shape[0] = RoutedRun::kTokens;
        piece->values.assign(RoutedRun::kTokens * RoutedRun::kHidden, 0);
      }
      return true;
    };
    const ScratchFolder folder;
    EXPECT_THAT(TroubleOf(Load(run, folder), Rows(0)).detail,
                HasSubstr("another expert"));
  }
}

TEST(RoutedRows, ARecomputedForwardGoesByItsOwnMapIfThereIsOne) {
  for (const bool own : {false, true}) {
    RoutedRun run;
    run.rows_of_a_batch = RoutedRun::kRows;
    run.change = [&](RoutedPiece* piece) {
      if (piece->spec.routed && piece->spec.role == Role::kOutput) {
        piece->at.pass = Pass::kRecompute;
      }
      return true;
    };
    // One that sends everything to expert 0.
    if (own) run.recomputed = [](int64_t) { return std::set<int>{0}; };
    const ScratchFolder folder;
    const Catalog catalog = Load(run, folder);
    TensorId id = Rows(0, Role::kOutput);
    id.pass = Pass::kRecompute;
    const TensorPieces* pieces = catalog.Find("real", id);
    ASSERT_NE(pieces, nullptr);
    if (own) {
      ASSERT_NE(pieces->unplaced, nullptr);
      EXPECT_EQ(pieces->unplaced->expected, RoutedRun::kTokens);
    } else {
      ASSERT_EQ(pieces->unplaced, nullptr);
      EXPECT_EQ(Listed(*pieces->tokens), TokensOf(0));
    }
    // What is no recomputed forward does not go by that map.
    EXPECT_EQ(catalog.Find("real", Rows(0))->unplaced, nullptr);
    EXPECT_EQ(catalog.Find("real", Rows(0, Role::kGradInput))->unplaced,
              nullptr);
  }
}

TEST(RoutedRows, AreReadBackAtAnyListOfTokens) {
  RoutedRun run;
  run.dp = 2;
  run.tp = 2;
  run.rows_of_a_batch = 1;
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  const TensorPieces* pieces = catalog.Find("real", Rows(2, Role::kOutput));
  ASSERT_NE(pieces, nullptr);
  std::vector<int64_t> tokens = TokensOf(2);
  std::reverse(tokens.begin(), tokens.end());
  Layout want;
  want.dims.push_back(OrDie(ListIndices(tokens, RoutedRun::kTokens)));
  want.dims.push_back({{{0, RoutedRun::kHidden}}, RoutedRun::kHidden});
  std::vector<float> out(static_cast<size_t>(want.local_count()));
  OrDie(ReadLocal(*pieces, want, DType::kF32, {},
                  std::as_writable_bytes(std::span(out))));
  size_t at = 0;
  for (const int64_t token : tokens) {
    for (int64_t i = 0; i < RoutedRun::kHidden; ++i) {
      EXPECT_EQ(out[at++], RoutedRun::Value("moe.experts.2|output|0",
                                            token * RoutedRun::kHidden + i));
    }
  }
}

TEST(RoutedRows, WithoutAPlaceAreNotReadBack) {
  RoutedRun run;
  run.group_notes = false;
  const ScratchFolder folder;
  const Catalog catalog = Load(run, folder);
  const TensorPieces* pieces = catalog.Find("real", Rows(0));
  Layout want;
  want.dims.push_back({{{0, 1}}, RoutedRun::kTokens});
  want.dims.push_back({{{0, RoutedRun::kHidden}}, RoutedRun::kHidden});
  std::vector<float> out(RoutedRun::kHidden);
  const Status status = ReadLocal(*pieces, want, DType::kF32, {},
                                  std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIncomparable);
}

}  // namespace
}  // namespace ttrace::routed_rows_test
