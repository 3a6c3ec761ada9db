#include "src/experiment/module_names.h"

#include <gtest/gtest.h>

namespace ttrace::module_names_test {
namespace {

TEST(WithoutLayerNumbers, ReplacesWordsThatAreNumbersAndNoOthers) {
  EXPECT_EQ(WithoutLayerNumbers("decoder.layers.7.mlp.fc1"),
            "decoder.layers.#.mlp.fc1");
  EXPECT_NE(WithoutLayerNumbers("mlp.fc1"), WithoutLayerNumbers("mlp.fc2"));
  EXPECT_EQ(WithoutLayerNumbers("12"), "#");
  EXPECT_EQ(WithoutLayerNumbers(""), "");
}

TEST(ParentName, OfTheRootIsTheRoot) {
  EXPECT_EQ(ParentName("a.b.c"), "a.b");
  EXPECT_EQ(ParentName("a"), "");
  EXPECT_EQ(ParentName(""), "");
}

}  // namespace
}  // namespace ttrace::module_names_test
