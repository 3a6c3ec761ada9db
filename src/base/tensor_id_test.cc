#include "ttrace/tensor_id.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ttrace::tensor_id_test {
namespace {

TEST(TensorId, EveryRoleAndPassHasANameOfItsOwnThatParses) {
  std::set<std::string_view> names;
  for (int i = 0; i < kRoleCount; ++i) {
    const auto role = static_cast<Role>(i);
    EXPECT_EQ(ParseRole(ToString(role)), role) << ToString(role);
    names.insert(ToString(role));
  }
  for (int i = 0; i < kPassCount; ++i) {
    const auto pass = static_cast<Pass>(i);
    EXPECT_EQ(ParsePass(ToString(pass)), pass) << ToString(pass);
    names.insert(ToString(pass));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kRoleCount + kPassCount));
}

TEST(TensorId, NamesMatchTheirEnumerators) {
  EXPECT_EQ(ToString(Role::kData), "data");
  EXPECT_EQ(ToString(Role::kLoss), "loss");
  EXPECT_EQ(ToString(Role::kGradInput), "grad_input");
  EXPECT_EQ(ToString(Role::kGradNorm), "grad_norm");
  EXPECT_EQ(ToString(Role::kOptimState), "optim_state");
  EXPECT_EQ(ToString(Pass::kRecompute), "recompute");
  EXPECT_EQ(ToString(Pass::kOptimizer), "optimizer");
}

TEST(TensorId, UnknownWordsDoNotParse) {
  EXPECT_FALSE(ParseRole(""));
  EXPECT_FALSE(ParseRole("Grad_input"));
  EXPECT_FALSE(ParsePass("forward "));
  EXPECT_EQ(ToString(static_cast<Role>(200)), "invalid");
}

TEST(TensorId, ReadsAsASentenceForPeople) {
  const TensorId id{"decoder.layers.0.mlp", Role::kGradInput, 1, 0,
                    "hidden_states",        Pass::kBackward};
  EXPECT_EQ(ToString(id),
            "decoder.layers.0.mlp grad_input hidden_states it 1 call 0 "
            "backward");
  EXPECT_EQ(ToString(TensorId{}), "(root) output it 0 call 0 forward");
}

}  // namespace
}  // namespace ttrace::tensor_id_test
