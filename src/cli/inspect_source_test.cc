// The lines of the source that `ttrace inspect` shows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "src/check/testing/check_fixture.h"
#include "src/cli/inspect.h"

namespace ttrace::inspect_source_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class InspectSourceTest : public CheckTest {
 protected:
  std::string Tensor(const std::string& pattern) {
    const auto trace = Trace::Open(Path("cand"), 0);
    if (!trace.ok()) return trace.error().message();
    TensorQuery query;
    query.pattern = pattern;
    const auto text = DescribeTensors(*trace, query, {});
    return text.ok() ? *text : text.error().message();
  }
};

TEST_F(InspectSourceTest, OfATensorItIsThatOfACulprit) {
  const std::string file = std::string(90, 'd') + "/model.py";
  candidate_.notes = {
      {"source_of_class", R"({"class":"Net","file":")" + file +
                              R"(","line":7,"modules":["", "fc"]})"},
      {"source_of_call", R"({"what":"backward","file":"train.py","line":30})"}};
  candidate_.extra.push_back(
      {"loss", Role::kGradOutput, "", Pass::kBackward, {1}, {}, -1, {}});
  candidate_.Write(Path("cand"));
  EXPECT_THAT(Tensor("fc"),
              HasSubstr("\n         " + file + ":7, class Net\n"));
  const std::string loss = Tensor("loss");
  EXPECT_THAT(loss, HasSubstr("train.py:30, where the loop calls backward\n"));
  EXPECT_THAT(loss, Not(HasSubstr("class Net")));
}

TEST_F(InspectSourceTest, OfAResultEachCulpritHasItsOwn) {
  const std::string words = std::string(90, 'd') + "/model.py:7, class Net";
  std::ofstream(Path("result.json"))
      << R"({"schema":1,"verdict":"diverged","exit_code":1,)"
      << R"("culprits":[{"fqn":"a","source":)"
      << R"({"file":"model.py","line":7,"text":")" << words
      << R"("}},{"fqn":"b","source":null}]})";
  const auto text = DescribeResult(Path("result.json"), {});
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_THAT(*text, HasSubstr("\n         " + words + "\n"));
}

}  // namespace
}  // namespace ttrace::inspect_source_test
