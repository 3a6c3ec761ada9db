// Tokens that hold rows that experts made for other tokens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/align/testing/routed_run.h"
#include "src/diagnose/rules/rules.h"

namespace ttrace::summed_rows_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kHidden = RoutedRun::kHidden;

float RowValue(int expert, int64_t token, int64_t i) {
  return RoutedRun::Value("moe.experts." + std::to_string(expert) + "|output|0",
                          token * kHidden + i);
}

// Whose row of an expert a token gets.
using Source = std::function<int64_t(int expert, int64_t token)>;

std::set<int> Two(int64_t token) { return RoutedRun::Route(token); }
std::set<int> All(int64_t) { return {0, 1, 2, 3}; }

// A layer that hands on the sum of the rows of each token's experts.
RoutedRun Layer(const Source& source, float extra = 0,
                std::set<int> (*experts)(int64_t) = Two) {
  RoutedRun run;
  run.routing = [=](const Leg&, int64_t token) { return experts(token); };
  run.change = [=](RoutedPiece* piece) {
    if (piece->spec.fqn != "moe" || piece->spec.role != Role::kOutput) {
      return true;
    }
    for (size_t t = 0; t < piece->tokens.size(); ++t) {
      for (int64_t i = 0; i < kHidden; ++i) {
        float sum = extra * static_cast<float>(i + 1);
        for (const int expert : experts(piece->tokens[t])) {
          sum += RowValue(expert, source(expert, piece->tokens[t]), i);
        }
        piece->values[t * kHidden + static_cast<size_t>(i)] = sum;
      }
    }
    return true;
  };
  return run;
}

int64_t Own(int, int64_t token) { return token; }

// The next token of the same expert, the last one's being the first.
int64_t Next(int expert, int64_t token) {
  do {
    token = (token + 1) % RoutedRun::kTokens;
  } while (!RoutedRun::Route(token).contains(expert));
  return token;
}

// A layer in which each token gets all that another one should get.
RoutedRun LayerOf(const std::function<int64_t(int64_t)>& whose) {
  RoutedRun run = Layer(Own);
  const auto own = run.change;
  run.change = [=](RoutedPiece* piece) {
    const std::vector<int64_t> tokens = piece->tokens;
    if (piece->spec.fqn == "moe") {
      for (int64_t& token : piece->tokens) token = whose(token);
    }
    const bool keep = own(piece);
    piece->tokens = tokens;
    return keep;
  };
  return run;
}

class Returned {
 public:
  Returned(const RoutedRun& reference, const RoutedRun& candidate) {
    reference.Write(folders_[0].path());
    candidate.Write(folders_[1].path());
    for (size_t i = 0; i < 2; ++i) {
      sides_[i] =
          std::make_unique<Catalog>(OrDie(Trace::Open(folders_[i].path())));
    }
  }

  std::optional<Diagnosis> Said(double bound = 1e-6) {
    judgement_.id.fqn = "moe";
    judgement_.id.role = Role::kOutput;
    judgement_.id.arg = "0";
    leg_.bound = bound;
    Evidence e;
    e.judgement = &judgement_;
    e.leg = &leg_;
    e.reference = sides_[0]->Find("real", judgement_.id);
    e.candidate = sides_[1]->Find("real", judgement_.id);
    e.visit_reference = [this](const TensorVisit& visit) {
      for (const auto& [id, pieces] : sides_[0]->tensors("real")) {
        visit(id, pieces);
      }
    };
    return SummedRows(ValueView(e));
  }

 private:
  ScratchFolder folders_[2];
  std::unique_ptr<Catalog> sides_[2];
  TensorJudgement judgement_;
  LegJudgement leg_;
};

TEST(SummedRows, RowsThatAreOffByOneAreAPermutation) {
  const auto said = Returned(Layer(Own), Layer(Next)).Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kPermutation);
  EXPECT_EQ(said->value, RoutedRun::kTokens);
  EXPECT_THAT(said->evidence, HasSubstr("32 of 32 tokens are wrong"));
  EXPECT_THAT(said->evidence, HasSubstr("token 0 holds expert "));
}

TEST(SummedRows, OneRowForManyTokensIsAWrongOne) {
  const auto said =
      Returned(Layer(Own),
               Layer([](int expert, int64_t) { return Next(expert, 0); }))
          .Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kWrongSlice);
}

TEST(SummedRows, RowsOfTheBatchBeforeAreStale) {
  const auto before = [](int64_t token) {
    return token < RoutedRun::kSequence ? token : token - RoutedRun::kSequence;
  };
  const auto said = Returned(Layer(Own), LayerOf(before)).Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kStaleValue);
  EXPECT_THAT(said->evidence, HasSubstr("the same place of other rows"));
}

TEST(SummedRows, RowsOfTheBatchInAnotherOrderAreAPermutation) {
  const auto next = [](int64_t token) {
    return (token + RoutedRun::kSequence) % RoutedRun::kTokens;
  };
  const auto said = Returned(Layer(Own), LayerOf(next)).Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kPermutation);
}

TEST(SummedRows, RowsOfTokensThatAreRightAreThereTwice) {
  const auto before = [](int64_t token) { return token - token % 2; };
  const auto said = Returned(Layer(Own), LayerOf(before)).Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kWrongSlice);
}

TEST(SummedRows, SaysNothingOfOtherErrors) {
  EXPECT_FALSE(Returned(Layer(Own), Layer(Own)).Said());
  // Rows that no expert made.
  EXPECT_FALSE(Returned(Layer(Own), Layer([](int, int64_t token) {
                          return token + RoutedRun::kTokens;
                        }))
                   .Said());
  // Something is added to the rows, in both runs.
  EXPECT_FALSE(Returned(Layer(Own, 0.1F), Layer(Next, 0.1F)).Said());
}

TEST(SummedRows, SaysNothingWhereTheBoundIsWide) {
  EXPECT_FALSE(Returned(Layer(Own), Layer(Next)).Said(0.005));
}

TEST(SummedRows, SearchesNoSumsOfMoreThanTwo) {
  const auto next = [](int, int64_t token) {
    return (token + 1) % RoutedRun::kTokens;
  };
  EXPECT_FALSE(Returned(Layer(Own, 0, All), Layer(next, 0, All)).Said());
}

}  // namespace
}  // namespace ttrace::summed_rows_test
