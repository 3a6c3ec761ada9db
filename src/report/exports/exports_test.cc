#include "src/report/exports/exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "src/report/render.h"
#include "src/report/result_samples.h"

namespace ttrace::exports_test {
namespace {

using testing::HasSubstr;
using testing::Not;

ResultFile Read(const CheckResult& result) {
  auto read = ParseResult(RenderJson(result));
  EXPECT_TRUE(read.ok()) << read.error().message();
  return *std::move(read);
}

// Markup of every format, and what nobody can see.
const std::string kHostile =
    "a]]>\"'<script>&x</script>`````|@everyone\x1b[31m\n\xE2\x80\xAE#1\xEF\xBF"
    "\xBF";

CheckResult Hostile() {
  CheckResult result = SampleDiverged();
  result.reason = kHostile;
  result.next_steps = {kHostile};
  result.notes.front().text = kHostile;
  result.candidate.mesh = kHostile;
  for (Culprit& culprit : result.culprits) {
    culprit.fqn = culprit.where = kHostile;
    culprit.source = {"/root of/" + kHostile, 7, kHostile};
    culprit.hints = {kHostile};
    for (Diagnosis& one : culprit.classes) one.evidence = kHostile;
  }
  for (TensorJudgement& tensor : result.tensors) tensor.id.fqn = kHostile;
  return result;
}

TEST(LayerGroup, IsAllUpToTheFirstNumber) {
  EXPECT_EQ(LayerGroup("decoder.layers.3.mlp.fc.2"), "decoder.layers.3");
  EXPECT_EQ(LayerGroup("embedding.word.weight"), "embedding");
  EXPECT_EQ(LayerGroup("0.weight"), "0");
  EXPECT_EQ(LayerGroup("loss"), "loss");
  EXPECT_EQ(LayerGroup("layer3.conv1"), "layer3");
  EXPECT_EQ(LayerGroup(""), "");
  EXPECT_EQ(LayerGroup("..a"), "");
}

TEST(Junit, TheCulpritIsTheFailureOfItsGroup) {
  const std::string xml = RenderJunit(Read(SampleDiverged()));
  EXPECT_THAT(xml, HasSubstr("<testsuite name=\"verdict\" tests=\"1\" "
                             "failures=\"1\" errors=\"0\" skipped=\"0\""));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"ttrace.grad_input\" "
                             "name=\"decoder.layers.3\"><failure type="));
  EXPECT_THAT(xml, HasSubstr("decoder.layers.3.mlp.linear_fc1: grad_input, "));
}

// What runs say of their settings has no tensor, and may be of a group that has
// a culprit already.
TEST(Junit, EachCulpritStandsInItsGroup) {
  CheckResult result = SampleDiverged();
  Culprit other = result.culprits.front();
  other.fqn = "decoder.layers.3.mlp.linear_fc2";
  Culprit setting = other;
  setting.fqn = "decoder.layers.3.mlp.linear_fc2.weight";
  setting.tensor = {setting.fqn, Role::kParamUpdated, 0, 0,
                    "",          Pass::kOptimizer};
  result.culprits = {result.culprits.front(), other, setting};
  const std::string xml = RenderJunit(Read(result));
  const size_t group = xml.find("classname=\"ttrace.grad_input\"");
  EXPECT_NE(xml.find("\ndecoder.layers.3.mlp.linear_fc2: grad_input", group),
            std::string::npos);
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"ttrace.param_updated\" "
                             "name=\"decoder.layers.3\"><failure"));
}

TEST(Junit, ACleanResultHasNoFailures) {
  const std::string xml = RenderJunit(Read(SampleClean()));
  EXPECT_THAT(xml, HasSubstr("failures=\"0\" errors=\"0\" skipped=\"0\""));
  EXPECT_THAT(xml, Not(HasSubstr("<failure")));
  EXPECT_THAT(xml, HasSubstr("name=\"decoder.layers.3\"/>"));
}

TEST(Junit, WhatCouldNotBeDecidedIsAnError) {
  CheckResult result = SampleClean();
  result.verdict = Verdict::kInconclusive;
  result.reason = "a rank is missing";
  result.tensors.front().verdict = TensorVerdict::kNotCheckable;
  const std::string xml = RenderJunit(Read(result));
  EXPECT_THAT(xml, HasSubstr("<error type=\"inconclusive\" message=\"a rank is "
                             "missing\">"));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"none of 1 tensors"));
}

TEST(Junit, WhatIsOutWithoutACulpritIsDownstream) {
  CheckResult result = SampleDiverged();
  result.tensors.front().id.fqn = "decoder.layers.2.mlp";
  const std::string xml = RenderJunit(Read(result));
  EXPECT_THAT(xml, HasSubstr("name=\"decoder.layers.2\"><failure "
                             "type=\"downstream\""));
  EXPECT_THAT(xml, HasSubstr("decoder.layers.2.mlp: downstream of "
                             "decoder.layers.3.mlp.linear_fc1: grad_input, "));
  result.causes.clear();
  EXPECT_THAT(RenderJunit(Read(result)),
              HasSubstr("decoder.layers.2.mlp: downstream of a culprit"));
  result.culprits.clear();
  EXPECT_THAT(RenderJunit(Read(result)), HasSubstr("no culprit was named"));
  EXPECT_THAT(xml, HasSubstr("name=\"decoder.layers.3\"><failure"));
}

TEST(Junit, NamesAreNoMarkup) {
  const std::string xml = RenderJunit(Read(Hostile()));
  EXPECT_THAT(xml, Not(HasSubstr("<script")));
  EXPECT_THAT(xml, HasSubstr("&lt;script&gt;&amp;x"));
  EXPECT_THAT(xml, Not(HasSubstr("\x1b")));
  EXPECT_THAT(xml, Not(HasSubstr("\xE2\x80\xAE")));
  EXPECT_THAT(xml, Not(HasSubstr("\xEF\xBF\xBF")));
}

// A rule is of all places of its class, whatever the first of them is.
TEST(Sarif, ARuleHasTheNameOfItsClass) {
  CheckResult result = SampleDiverged();
  Culprit& culprit = result.culprits.front();
  culprit.classes = {{BugClass::kOtherModelOrInputs, "it differs", 0}};
  culprit.tensor.role = Role::kData;
  const std::string log = RenderSarif(Read(result), "");
  EXPECT_THAT(log, HasSubstr("\"text\": \"other structure or other inputs\""));
  EXPECT_THAT(log, HasSubstr("class Z, other input data: it differs"));
}

TEST(Sarif, EachCulpritIsAResultAtItsLine) {
  CheckResult result = SampleDiverged();
  result.culprits.front().source = {"/repo/models/a b.py", 88, "class Mlp"};
  auto log = nlohmann::json::parse(RenderSarif(Read(result), "/repo"));
  EXPECT_EQ(log["version"], "2.1.0");
  const auto& run = log["runs"][0];
  ASSERT_EQ(run["results"].size(), result.culprits.size());
  const auto& first = run["results"][0];
  EXPECT_EQ(first["level"], "error");
  const auto& location = first["locations"][0];
  const auto& physical = location["physicalLocation"];
  EXPECT_EQ(physical["artifactLocation"]["uri"], "models/a%20b.py");
  EXPECT_EQ(physical["artifactLocation"]["uriBaseId"], "SRCROOT");
  EXPECT_EQ(physical["region"]["startLine"], 88);
  EXPECT_EQ(location["logicalLocations"][0]["fullyQualifiedName"],
            result.culprits.front().fqn);
  bool has_rule = false;
  for (const auto& rule : run["tool"]["driver"]["rules"]) {
    has_rule |= rule["id"] == first["ruleId"];
  }
  EXPECT_TRUE(has_rule);
  log = nlohmann::json::parse(RenderSarif(Read(result), "/rep"));
  EXPECT_EQ(log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
               ["artifactLocation"]["uri"],
            "file:///repo/models/a%20b.py");
}

TEST(Sarif, TheSamePlaceHasTheSameFingerprint) {
  CheckResult result = SampleDiverged();
  const auto fingerprint = [&] {
    const auto log = nlohmann::json::parse(RenderSarif(Read(result), ""));
    return log["runs"][0]["results"][0]["partialFingerprints"].dump();
  };
  const std::string before = fingerprint();
  result.culprits.front().headroom *= 2;
  EXPECT_EQ(fingerprint(), before);
  result.culprits.front().fqn += "x";
  EXPECT_NE(fingerprint(), before);
}

TEST(Sarif, WhatCouldNotBeDecidedIsAWarning) {
  CheckResult result = SampleClean();
  result.verdict = Verdict::kInconclusive;
  const auto log = nlohmann::json::parse(RenderSarif(Read(result), ""));
  ASSERT_EQ(log["runs"][0]["results"].size(), 1u);
  EXPECT_EQ(log["runs"][0]["results"][0]["level"], "warning");
  result.verdict = Verdict::kWithin;
  EXPECT_TRUE(
      nlohmann::json::parse(RenderSarif(Read(result), ""))["runs"][0]["results"]
          .empty());
}

TEST(Markdown, SaysTheFirstPlaceAndWhatToTypeNext) {
  const std::string text = RenderMarkdown(Read(SampleDiverged()));
  EXPECT_EQ(text.rfind("### TTrace: diverged\n", 0), 0u);
  EXPECT_THAT(text, HasSubstr("**First place:** "
                              "`decoder.layers.3.mlp.linear_fc1`"));
  EXPECT_THAT(text, HasSubstr("| `forward` | 1,820 | 1,820 |"));
  EXPECT_THAT(text, HasSubstr("ttrace inspect report/candidate"));
}

TEST(Markdown, NoNameEndsItsSpanOrBlock) {
  const std::string text = RenderMarkdown(Read(Hostile()));
  size_t fences = 0;
  std::string open;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t ticks = line.find_first_not_of('`');
    const std::string fence = line.substr(0, ticks);
    if (open.empty() && fence.size() >= 3 && line == fence + "text") {
      open = fence;
      ++fences;
    } else if (!open.empty() && line == open) {
      open.clear();
    } else if (open.empty()) {
      EXPECT_THAT(line, Not(HasSubstr("``````<"))) << line;
      // Outside of a block it stands in a span of more backticks than it has.
      if (line.find("<script>") != std::string::npos) {
        EXPECT_THAT(line, HasSubstr("`````` a]]")) << line;
      }
    }
    begin = end + 1;
  }
  EXPECT_TRUE(open.empty());
  EXPECT_GE(fences, 3u);
}

TEST(ResultFile, KeepsWhatWasWritten) {
  const CheckResult result = SampleDiverged();
  const ResultFile read = Read(result);
  EXPECT_EQ(read.verdict, "diverged");
  EXPECT_EQ(read.exit_code, 1);
  EXPECT_EQ(read.compared, 5460);
  EXPECT_EQ(read.culprits.size(), result.culprits.size());
  EXPECT_EQ(read.culprits.front().fqn, result.culprits.front().fqn);
  EXPECT_EQ(read.culprits.front().headroom, result.culprits.front().headroom);
  EXPECT_EQ(read.tensors.size(), result.tensors.size());
  EXPECT_TRUE(read.has_reference);
  EXPECT_EQ(read.candidate.world_size, 2);
}

TEST(ResultFile, ErrorAndBoundAreOfTheStatisticThatDecides) {
  CheckResult result = SampleDiverged();
  ttrace::Test projection;
  projection.statistic = Statistic::kProjection;
  projection.value = 0.5;
  projection.bound = 1e-5;
  projection.noise = 2e-6;
  projection.headroom = 5e4;
  result.tensors[0].legs[0].Add(projection);
  const ResultFile read = Read(result);
  const ResultFile::Leg& leg = read.tensors[0].legs[0];
  EXPECT_EQ(leg.statistic, "projection");
  EXPECT_EQ(leg.err, 0.5);
  EXPECT_EQ(leg.bound, 1e-5);
  EXPECT_EQ(leg.noise, 2e-6);
  EXPECT_EQ(read.tensors[0].legs[1].bound, result.tensors[0].legs[1].bound);
}

TEST(ResultFile, KeepsWhatARunAndItsTensorsAre) {
  const CheckResult result = SampleDiverged();
  const ResultFile read = Read(result);
  ASSERT_EQ(read.candidate.grids.size(), 1u);
  const ResultFile::Grid& grid = read.candidate.grids[0];
  EXPECT_EQ(grid.name, "mesh");
  ASSERT_EQ(grid.axes.size(), 1u);
  EXPECT_EQ(grid.axes[0].name, "tp");
  EXPECT_EQ(grid.axes[0].size, 2);
  EXPECT_THAT(grid.coordinates, testing::ElementsAre(testing::ElementsAre(0),
                                                     testing::ElementsAre(1)));
  ASSERT_EQ(read.modules.size(), 1u);
  EXPECT_EQ(read.modules[0].class_name, "MLP");
  EXPECT_EQ(read.modules[0].source_line, 57);
  EXPECT_THAT(read.explained,
              testing::ElementsAre(std::make_pair(std::string("fused"), 24)));

  const ResultFile::Tensor& tensor = read.tensors[0];
  EXPECT_THAT(tensor.shape, testing::ElementsAre(8, 64));
  EXPECT_EQ(tensor.dtype, "bfloat16");
  EXPECT_EQ(tensor.culprit, 0);
  EXPECT_EQ(tensor.cause, "first");
  ASSERT_EQ(tensor.legs.size(), 2u);
  EXPECT_EQ(tensor.legs[1].leg, "fp32");
  EXPECT_EQ(tensor.legs[1].bound, result.tensors[0].legs[1].bound);
  ASSERT_TRUE(tensor.copies);
  EXPECT_THAT(tensor.copies->mesh_dims, testing::ElementsAre("tp"));
  EXPECT_TRUE(tensor == read.culprits[0].tensor);

  ASSERT_TRUE(read.culprits[0].pattern);
  const ResultFile::Pattern& pattern = *read.culprits[0].pattern;
  EXPECT_THAT(pattern.dims, testing::ElementsAre(0, 1));
  ASSERT_EQ(pattern.errors.size(), 4u);
  EXPECT_EQ(pattern.errors[1], 0.671);
  EXPECT_TRUE(std::isinf(pattern.errors[3]));
  EXPECT_EQ(pattern.pieces[1].box, "[all, 32:64]");
  EXPECT_FALSE(read.culprits[1].pattern);
}

TEST(ResultFile, WhatIsNoResultIsRefusedByItsField) {
  const auto problem = [](const std::string& text) {
    const auto read = ParseResult(text);
    return read.ok() ? std::string() : read.error().message();
  };
  EXPECT_THAT(problem(""), HasSubstr("not a result"));
  EXPECT_THAT(problem("[1]"), HasSubstr("an object is expected"));
  EXPECT_THAT(problem("{}"), HasSubstr("none of ttrace's"));
  EXPECT_THAT(problem(R"({"schema": 3})"), HasSubstr("schema 3"));
  EXPECT_THAT(problem(R"({"schema": "2"})"), HasSubstr("'schema'"));
  const std::string head =
      R"({"schema": 2, "verdict": "within", "exit_code": 0)";
  EXPECT_EQ(problem(head + "}"), "");
  EXPECT_THAT(problem(R"({"schema": 2, "verdict": "within", "exit_code": 1})"),
              HasSubstr("none of ttrace's"));
  EXPECT_THAT(problem(head + R"(, "culprits": [{"ranks": [1, "x"]}]})"),
              HasSubstr("in 'culprits': 'ranks'"));
  EXPECT_THAT(problem(head + R"(, "tensors": 5})"), HasSubstr("'tensors'"));
  EXPECT_THAT(problem(head + R"(, "seconds": "soon"})"),
              HasSubstr("'seconds'"));
}

}  // namespace
}  // namespace ttrace::exports_test
