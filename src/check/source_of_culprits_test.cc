// The line of the source that a culprit names: what capture noted of the module
// that it is in, or of the call that makes it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/check/testing/check_fixture.h"
#include "src/localize/source_of_tensor.h"
#include "src/report/render.h"

namespace ttrace::source_of_culprits_test {
namespace {

using testing::HasSubstr;
using testing::Not;

TensorId Id(const char* fqn, Role role) {
  TensorId id;
  id.fqn = fqn;
  id.role = role;
  return id;
}

class SourceTest : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    candidate_.notes = {
        {"source_of_class",
         R"({"class":"Mlp","file":"/home/a b/model.py","line":88,)"
         R"("forward_file":"/home/a b/model.py","forward_line":97,)"
         R"("modules":["fc","head"]})"},
        {"source_of_class", R"({"class":"Gpt","file":"gpt.py","line":3,)"
                            R"("modules":[""]})"},
        {"source_of_class", R"({"class":"Cut","file":"x.py","line":0})"},
        {"source_of_call", R"({"what":"step","file":"train.py","line":31})"},
        {"source_of_call",
         R"({"what":"backward","file":"train.py","line":30})"}};
  }

  SourceLines Lines() {
    candidate_.Write(Path("cand"));
    const auto trace = Trace::Open(Path("cand"), 0);
    if (trace.ok()) return SourceLines::Read(**trace);
    ADD_FAILURE() << trace.error().message();
    return {};
  }

  Culprit FirstWrong(Role role) {
    role_ = role;
    candidate_.fault = [this](const SyntheticTensor& t, int, const Leg&,
                              int64_t, float* value) {
      if (t.role == role_) *value *= 2;
    };
    const CheckResult result = CheckAgain();
    EXPECT_EQ(result.verdict, Verdict::kDiverged) << result.reason;
    if (result.culprits.empty()) return {};
    EXPECT_THAT(RenderTerminal(result),
                HasSubstr(result.culprits[0].source.words.substr(0, 20)));
    return result.culprits[0];
  }

  Role role_ = Role::kOutput;
};

TEST_F(SourceTest, OfAModuleItIsTheClass) {
  const Culprit culprit = FirstWrong(Role::kOutput);
  EXPECT_EQ(culprit.source.file, "/home/a b/model.py");
  EXPECT_EQ(culprit.source.line, 88);
  EXPECT_EQ(culprit.source.words,
            "/home/a b/model.py:88, class Mlp, forward at line 97");
}

TEST_F(SourceTest, OfAParameterItIsTheClassOfItsModule) {
  const Culprit culprit = FirstWrong(Role::kGradReduced);
  EXPECT_NE(culprit.fqn, "fc");
  EXPECT_THAT(culprit.source.words,
              testing::AnyOf(HasSubstr("class Mlp"), HasSubstr("class Gpt")));
}

TEST_F(SourceTest, AClassThatWasMadeOfAnotherHasTheLineOfThat) {
  candidate_.notes[0].second =
      R"({"class":"Made","base":"Mlp","file":"m.py","line":8,)"
      R"("forward_file":"n.py","forward_line":9,"modules":["fc","head"]})";
  EXPECT_EQ(FirstWrong(Role::kOutput).source.words,
            "m.py:8, class Mlp (base of Made), forward at n.py:9");
}

TEST_F(SourceTest, OfAClassThatIsWrittenNowhereItIsTheForward) {
  candidate_.notes[0].second =
      R"({"class":"Made","forward_file":"n.py","forward_line":9,)"
      R"("modules":["fc","head"]})";
  const Culprit culprit = FirstWrong(Role::kOutput);
  EXPECT_EQ(culprit.source.line, 9);
  EXPECT_EQ(culprit.source.words, "n.py:9, forward of class Made");
}

TEST_F(SourceTest, AClassWithoutALineHasNotThatOfTheModuleAround) {
  candidate_.notes[0].second = R"({"class":"Made","modules":["fc","head"]})";
  EXPECT_EQ(FirstWrong(Role::kOutput).source.words, "");
}

TEST_F(SourceTest, OfAClassOfTorchItIsWhoUsesIt) {
  const auto torchs = [](const char* name, const char* module) {
    return std::string(R"({"class":")") + name +
           R"(","file":"torch/x.py","line":5,"of_torch":true,"modules":[")" +
           module + R"("]})";
  };
  candidate_.notes.push_back({"source_of_class", torchs("Linear", "fc.a.b.0")});
  candidate_.notes.push_back(
      {"source_of_class", torchs("Sequential", "fc.a.b")});
  const SourceLines lines = Lines();
  for (const char* name : {"fc.a.b.0", "fc.a.b.0.weight"}) {
    const SourcePlace place = SourceOf(lines, Id(name, Role::kGradLocal));
    EXPECT_EQ(place.line, 88);
    EXPECT_EQ(place.words,
              "/home/a b/model.py:88, class Mlp, forward at line 97, whose "
              "a.b.0 is torch's Linear");
  }
  EXPECT_EQ(SourceOf(lines, Id("fc.a.b", Role::kOutput)).words,
            "/home/a b/model.py:88, class Mlp, forward at line 97, whose a.b "
            "is torch's Sequential");
  EXPECT_THAT(SourceOf(lines, Id("fc", Role::kOutput)).words,
              Not(HasSubstr("torch")));
}

// A model that is torch's all through has no other place.
TEST_F(SourceTest, OfAModelOfTorchAloneItIsTorchs) {
  candidate_.notes = {
      {"source_of_class", R"({"class":"Linear","file":"torch/linear.py",)"
                          R"("line":5,"of_torch":true,"modules":["0"]})"},
      {"source_of_class", R"({"class":"Sequential","file":"torch/c.py",)"
                          R"("line":7,"of_torch":true,"modules":[""]})"}};
  EXPECT_EQ(SourceOf(Lines(), Id("0.weight", Role::kGradLocal)).words,
            "torch/linear.py:5, class Linear");
}

TEST_F(SourceTest, OfTheLossAndItsGradientItIsWhereTheLoopMakesThem) {
  const SourceLines lines = Lines();
  for (const Role role : {Role::kLoss, Role::kGradOutput}) {
    EXPECT_EQ(SourceOf(lines, Id("loss", role)).words,
              "train.py:30, where the loop calls backward");
    Culprit culprit;
    culprit.fqn = "loss";
    culprit.tensor = Id("loss", role);
    EXPECT_EQ(SourceOf(lines, culprit).line, 30);
  }
}

TEST_F(SourceTest, AModuleOfTheModelMayBeNamedLoss) {
  candidate_.notes[0].second =
      R"({"class":"Criterion","file":"c.py","line":5,"modules":["loss"]})";
  const SourceLines lines = Lines();
  EXPECT_EQ(SourceOf(lines, Id("loss", Role::kGradOutput)).words,
            "c.py:5, class Criterion");
  EXPECT_EQ(SourceOf(lines, Id("loss", Role::kLoss)).line, 30);
}

TEST_F(SourceTest, WhatTheStepMakesIsWhereTheLoopCallsIt) {
  const SourceLines lines = Lines();
  for (const Role role :
       {Role::kGradNorm, Role::kParamUpdated, Role::kOptimState}) {
    EXPECT_EQ(SourceOf(lines, Id("fc.weight", role)).words,
              "train.py:31, where the loop makes its step");
  }
  EXPECT_EQ(SourceOf(lines, Id("fc.weight", Role::kGradLocal)).line, 88);
}

TEST_F(SourceTest, ANormIsOfNoModule) {
  candidate_.notes.resize(2);  // without the calls
  const SourceLines lines = Lines();
  EXPECT_EQ(SourceOf(lines, Id("grad_norm", Role::kGradNorm)).file, "");
  EXPECT_EQ(SourceOf(lines, Id("loss", Role::kLoss)).file, "");
}

TEST_F(SourceTest, WhatNobodyNotedIsNotNamed) {
  candidate_.notes.clear();
  candidate_.fault = [](const SyntheticTensor& t, int, const Leg&, int64_t,
                        float* value) {
    if (t.role == Role::kOutput) *value *= 2;
  };
  const CheckResult result = CheckAgain();
  ASSERT_FALSE(result.culprits.empty());
  EXPECT_EQ(result.culprits[0].source.file, "");
  EXPECT_THAT(RenderJson(result), HasSubstr(R"("source":null)"));
}

}  // namespace
}  // namespace ttrace::source_of_culprits_test
