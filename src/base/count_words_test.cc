#include "src/base/count_words.h"

#include <gtest/gtest.h>

namespace ttrace::count_words_test {
namespace {

TEST(Counted, HasTheNumberAndThousands) {
  EXPECT_EQ(Counted(0, "tensor"), "0 tensors");
  EXPECT_EQ(Counted(1, "tensor"), "1 tensor");
  EXPECT_EQ(Counted(1820, "tensor"), "1,820 tensors");
}

TEST(Examples, SayThatThereAreMore) {
  EXPECT_EQ(Examples({"fc1", ""}, 2), "fc1, the model");
  EXPECT_EQ(Examples({"fc1"}, 2), "fc1, ...");
}

}  // namespace
}  // namespace ttrace::count_words_test
