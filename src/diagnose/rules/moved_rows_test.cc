// Rows of experts that hold what other rows should hold.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "src/align/testing/routed_run.h"
#include "src/diagnose/rules/rules.h"

namespace ttrace::moved_rows_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kHidden = RoutedRun::kHidden;

TensorId InputOf(int expert) {
  TensorId id;
  id.fqn = "moe.experts." + std::to_string(expert);
  id.role = Role::kInput;
  id.arg = "x";
  return id;
}

// What the row of a token should be, and of another expert.
std::vector<float> RowOf(int expert, int64_t token) {
  std::vector<float> out;
  for (int64_t i = 0; i < kHidden; ++i) {
    out.push_back(RoutedRun::Value(InputOf(expert).fqn + "|input|x",
                                   token * kHidden + i));
  }
  return out;
}

// Writes a row in place of that of `token`.
void Put(RoutedPiece* piece, int expert, int64_t token,
         const std::vector<float>& row) {
  if (piece->spec.fqn != InputOf(expert).fqn ||
      piece->spec.role != Role::kInput) {
    return;
  }
  const auto at = std::find(piece->tokens.begin(), piece->tokens.end(), token);
  if (at == piece->tokens.end()) return;
  std::copy(row.begin(), row.end(),
            piece->values.begin() + (at - piece->tokens.begin()) * kHidden);
}

class Moved {
 public:
  explicit Moved(const std::function<void(RoutedPiece*)>& change) {
    RoutedRun reference;
    RoutedRun candidate;
    candidate.dp = 2;
    candidate.change = [&](RoutedPiece* piece) {
      change(piece);
      return true;
    };
    reference.Write(folders_[0].path());
    candidate.Write(folders_[1].path());
    for (size_t i = 0; i < 2; ++i) {
      sides_[i] =
          std::make_unique<Catalog>(OrDie(Trace::Open(folders_[i].path())));
    }
  }

  std::optional<Diagnosis> Said(double bound = 1e-6) {
    judgement_.id = InputOf(0);
    leg_.bound = bound;
    Evidence e;
    e.judgement = &judgement_;
    e.leg = &leg_;
    e.reference = sides_[0]->Find("real", InputOf(0));
    e.candidate = sides_[1]->Find("real", InputOf(0));
    e.find_candidate = [this](const TensorId& id) {
      return sides_[1]->Find("real", id);
    };
    e.visit_reference = [this](const TensorVisit& visit) {
      for (const auto& [id, pieces] : sides_[0]->tensors("real")) {
        visit(id, pieces);
      }
    };
    return MovedRows(ValueView(e));
  }

  // Tokens that the router sends to an expert.
  static std::vector<int64_t> TokensOf(int expert) {
    std::vector<int64_t> out;
    for (int64_t token = 0; token < RoutedRun::kTokens; ++token) {
      if (RoutedRun::Route(token).contains(expert)) out.push_back(token);
    }
    return out;
  }

 private:
  ScratchFolder folders_[2];
  std::unique_ptr<Catalog> sides_[2];
  TensorJudgement judgement_;
  LegJudgement leg_;
};

TEST(MovedRows, TwoTokensOfAnExpertThatAreExchangedAreAPermutation) {
  const auto tokens = Moved::TokensOf(0);
  Moved run([&](RoutedPiece* piece) {
    Put(piece, 0, tokens[1], RowOf(0, tokens[4]));
    Put(piece, 0, tokens[4], RowOf(0, tokens[1]));
  });
  const auto said = run.Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kPermutation);
  EXPECT_EQ(said->value, 2);
  EXPECT_THAT(
      said->evidence,
      HasSubstr("expert 0's row of token " + std::to_string(tokens[1]) +
                " holds that of token " + std::to_string(tokens[4]) + ","));
  EXPECT_THAT(said->evidence, HasSubstr("moe.router"));
}

TEST(MovedRows, RowsOfAnotherExpertAreFoundThere) {
  const int64_t here = Moved::TokensOf(0)[2];
  const int64_t there = Moved::TokensOf(3)[1];
  Moved run([&](RoutedPiece* piece) {
    Put(piece, 0, here, RowOf(3, there));
    Put(piece, 3, there, RowOf(0, here));
  });
  const auto said = run.Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kPermutation);
  EXPECT_THAT(said->evidence,
              HasSubstr("of token " + std::to_string(there) + " of expert 3"));
}

TEST(MovedRows, ARowThatIsThereTwiceIsAWrongOne) {
  const auto tokens = Moved::TokensOf(0);
  Moved run([&](RoutedPiece* piece) {
    Put(piece, 0, tokens[1], RowOf(0, tokens[4]));
  });
  const auto said = run.Said();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->bug_class, BugClass::kWrongSlice);
}

TEST(MovedRows, StrangersAreNotMoved) {
  const auto tokens = Moved::TokensOf(0);
  Moved run([&](RoutedPiece* piece) {
    Put(piece, 0, tokens[1], RowOf(0, tokens[4]));
    Put(piece, 0, tokens[4], RowOf(7, 1));  // of no expert
  });
  EXPECT_FALSE(run.Said());
  EXPECT_FALSE(Moved([](RoutedPiece*) {}).Said());
}

TEST(MovedRows, AMatchThatMayBeChanceIsNone) {
  const auto tokens = Moved::TokensOf(0);
  Moved run([&](RoutedPiece* piece) {
    Put(piece, 0, tokens[1], RowOf(0, tokens[4]));
    Put(piece, 0, tokens[4], RowOf(0, tokens[1]));
  });
  EXPECT_TRUE(run.Said(1e-4));
  // Six values that may each be off by a twelfth, and two of 64 rows: slices
  // that match, by chance too often.
  EXPECT_FALSE(run.Said(0.02));
}

}  // namespace
}  // namespace ttrace::moved_rows_test
