#include "src/check/stated_culprits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace::stated_culprits_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class KeptGradientsTest : public testing::Test {
 protected:
  static TensorId Gradient(const std::string& fqn, int iteration = 1,
                           Role role = Role::kGradReduced) {
    return {fqn, role, iteration, 0, "", Pass::kBackward};
  }

  static Culprit Of(const std::vector<TensorId>& ids) {
    Culprit out;
    out.tensor = ids.front();
    out.fqn = out.tensor.fqn;
    out.ranks = {3};
    out.shown_by = ids;
    return out;
  }

  static Culprit Kept() {
    Culprit out = Of({Gradient("a", 1, Role::kGradLocal)});
    out.shown_by.clear();
    out.ranks = {0};
    out.found_by = {"states"};
    out.classes = {{BugClass::kStaleValue, "not emptied"}};
    return out;
  }

  // How many are left of the kept one and `other`.
  size_t Left(const Culprit& other) {
    culprits_ = {Kept(), other};
    FoldIntoKeptGradients(kKept, &culprits_);
    return culprits_.size();
  }

  const std::set<std::pair<int, std::string>> kKept = {
      {1, "a"}, {1, "b"}, {2, "a"}};
  std::vector<Culprit> culprits_;
};

TEST_F(KeptGradientsTest, ExplainWhatIsMadeOfThem) {
  const std::vector<TensorId> shown = {Gradient("b"), Gradient("a"),
                                       Gradient("a", 2)};
  EXPECT_EQ(Left(Of(shown)), 1);
  EXPECT_EQ(culprits_[0].shown_by, shown);
  EXPECT_THAT(culprits_[0].ranks, ElementsAre(0, 3));
  Culprit stale = Of(shown);
  stale.classes = {{BugClass::kStaleValue, "old"}};
  EXPECT_EQ(Left(stale), 1);
}

TEST_F(KeptGradientsTest, ExplainNothingElse) {
  EXPECT_EQ(Left(Of({Gradient("b"), Gradient("b", 2)})), 2) << "emptied";
  EXPECT_EQ(Left(Of({Gradient("a", 1, Role::kOutput)})), 2);
  Culprit summed = Of({Gradient("a")});
  summed.classes = {{BugClass::kMissingPartialSum, "of a sum"}};
  EXPECT_EQ(Left(summed), 2) << "it has an explanation of its own";
  Culprit nothing = Of({Gradient("a")});
  nothing.shown_by.clear();
  EXPECT_EQ(Left(nothing), 2);
}

TEST_F(KeptGradientsTest, NeedACulpritThatSaysSo) {
  culprits_ = {Of({Gradient("a")}), Of({Gradient("b")})};
  FoldIntoKeptGradients(kKept, &culprits_);
  EXPECT_THAT(culprits_, SizeIs(2));
}

}  // namespace
}  // namespace ttrace::stated_culprits_test
