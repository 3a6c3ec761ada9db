#include "src/report/html/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "src/localize/bug_class.h"
#include "src/report/html/packed_data.h"
#include "src/report/html/sections.h"
#include "src/report/render.h"
#include "src/report/result_samples.h"

namespace ttrace::html_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ResultFile Read(const CheckResult& result) {
  auto read = ParseResult(RenderJson(result));
  EXPECT_TRUE(read.ok()) << read.error().message();
  return *std::move(read);
}

// A matcher would print the page where it fails.
bool Holds(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

size_t CountOf(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

// What the page holds for its script.
nlohmann::json DataOf(const std::string& page) {
  const std::string begin = "id=data>";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find('<', at) - at));
}

// Markup, quotes, ends of elements, and what nobody can see.
const std::string kEvil =
    "</script><script>x</script></style><!--\"'`&\x1b[31m\n\xE2\x80\xAE"
    "gnp\xEF\xBB\xBF\xFF";

ResultFile Evil() {
  CheckResult result = SampleDiverged();
  result.reason = kEvil;
  result.next_steps = {"ttrace inspect " + kEvil, kEvil};
  result.notes.front().text = kEvil;
  result.coverage.excused = {{kEvil, 3}};
  result.candidate.mesh = result.candidate.folder = kEvil;
  for (Culprit& culprit : result.culprits) {
    culprit.fqn = culprit.where = culprit.name_in_candidate = kEvil;
    culprit.disagreement = kEvil;
    culprit.affected.examples = {kEvil};
    culprit.source = {kEvil, 7, kEvil};
    culprit.hints = {kEvil};
    for (Diagnosis& one : culprit.classes) one.evidence = kEvil;
  }
  result.contested = {result.culprits.front()};
  for (TensorJudgement& tensor : result.tensors) {
    tensor.id.fqn = tensor.id.arg = kEvil;
    tensor.replicas.mesh_dims = {kEvil};
  }
  ResultFile out = Read(result);
  out.modules = {{kEvil, kEvil, kEvil, 1}};
  out.candidate.grids = {{"mesh", {{kEvil, 2}}, {{0}, {1}}}};
  for (ResultFile::Place& place : out.culprits) {
    place.contradictions = {kEvil};
    place.pattern = ResultFile::Pattern{};
    place.pattern->leg = kEvil;
    place.pattern->pieces = {{{0}, 0, kEvil, 1, 1, 2}};
  }
  for (ResultFile::Tensor& tensor : out.tensors) {
    tensor.dtype = tensor.cause = tensor.verdict = tensor.role = kEvil;
    tensor.legs.front().provenance = tensor.legs.front().leg = kEvil;
  }
  out.verdict = kEvil;
  return out;
}

TEST(Html, NothingOfAFileIsMarkup) {
  const ResultFile evil = Evil();
  for (const std::string& page :
       {RenderHtml(evil), RenderHtmlComparison({{kEvil, evil}, {"b", evil}})}) {
    EXPECT_FALSE(Holds(page, "<script>x"));
    const size_t scripts = CountOf("<script", page);
    EXPECT_EQ(CountOf("</script", page), scripts);
    EXPECT_LE(scripts, 2u);
    EXPECT_EQ(CountOf("</style", page), 1u);
    EXPECT_EQ(CountOf("<!--", page), 0u);
    EXPECT_EQ(CountOf("\x1b", page), 0u);
    EXPECT_EQ(CountOf("\xE2\x80\xAE", page), 0u);
    EXPECT_EQ(CountOf("\xEF\xBB\xBF", page), 0u);
    EXPECT_EQ(CountOf("\xFF", page), 0u);
  }
}

TEST(Html, ThePolicyPermitsTwoConstantsAndNoRequest) {
  const std::string page = RenderHtml(Read(SampleDiverged()));
  EXPECT_TRUE(Holds(page, "default-src 'none'; style-src 'sha256-"));
  EXPECT_TRUE(Holds(page, "script-src 'sha256-"));
  EXPECT_FALSE(Holds(page, "unsafe"));
  for (const char* request : {" src=", "url(h", "@import", "href=\"http"}) {
    EXPECT_FALSE(Holds(page, request));
  }
}

TEST(Html, TheFirstPlaceStandsWithItsEvidenceBeforeAllElse) {
  const std::string page = RenderHtml(Read(SampleDiverged()));
  const size_t first = page.find("<span class=tag>First</span>");
  ASSERT_NE(first, std::string::npos);
  EXPECT_LT(first, page.find("missing partial sum"));
  EXPECT_LT(page.find("missing partial sum"), page.find("<section id=map>"));
  EXPECT_TRUE(Holds(page, "0 all-reduces seen over tp"));
  EXPECT_TRUE(Holds(page, "1 more place where something goes wrong"));
  EXPECT_TRUE(Holds(page,
                    "ttrace inspect report/candidate "
                    "decoder.layers.3.mlp.linear_fc1</code>"));
  EXPECT_TRUE(Holds(page, "Along <b>tp</b> copies of 1 tensor differ"));
}

TEST(Html, AnInconclusiveResultBeginsWithWhy) {
  const std::string page = RenderHtml(Read(SampleInconclusive()));
  EXPECT_TRUE(Holds(page, "Could not decide"));
  EXPECT_TRUE(Holds(page,
                    "<span class=tag>Why not</span></h2><p "
                    "class=where>12 tensors are unmatched"));
  EXPECT_TRUE(Holds(page, "could not be decided, because"));
  EXPECT_TRUE(Holds(page, "<b class=bad>12 on one side only</b>"));
}

TEST(Html, ReasonsThatDifferInTheirNumbersAreOne) {
  ResultFile result = Read(SampleInconclusive());
  result.tensors[0].verdict = "not_checkable";
  result.tensors[0].order = -1;
  result.tensors[0].reason = "its bound of 1.7e+04 is too wide";
  result.tensors[1].reason = "its bound of 3 is too wide";
  EXPECT_TRUE(Holds(RenderHtml(result),
                    "<td class=num>2<td>its bound of 1.7e+04 is too wide, "
                    "or another number"));
}

TEST(Html, ACleanResultSaysWhatCameClosest) {
  const std::string page = RenderHtml(Read(SampleClean()));
  EXPECT_TRUE(Holds(page, "Within bounds"));
  EXPECT_TRUE(Holds(page, "every tensor is within its bound"));
  EXPECT_TRUE(Holds(page, "Closest to its bound"));
  EXPECT_FALSE(Holds(page, "named as a fault<li>"));
}

TEST(Html, NoTensorsAndNoReferenceAreAPage) {
  ResultFile result;
  result.verdict = "inconclusive";
  result.reason = "nothing was compared";
  const std::string page = RenderHtml(result);
  EXPECT_TRUE(Holds(page, "nothing was compared"));
  EXPECT_TRUE(Holds(page, "examined, without a reference"));
  EXPECT_FALSE(Holds(page, "<section id=map>"));
  EXPECT_EQ(DataOf(page)["n"], 0);
}

TEST(Html, ACulpritOfNoTensorIsNoLink) {
  ResultFile result = Read(SampleDiverged());
  result.culprits[0].fqn = "learning rate";
  result.culprits[0].tensor.role = "lr";
  const std::string page = RenderHtml(result);
  EXPECT_TRUE(Holds(page, "<span class=name>learning rate</span>"));
  EXPECT_EQ(DataOf(page)["culprits"][0], -1);
}

TEST(Html, ACulpritOfNoTensorIsInTheMap) {
  ResultFile result = Read(SampleDiverged());
  result.culprits[0].fqn = "head.weight";
  result.culprits[0].tensor = {"head.weight", "param_updated", 7, 0, "",
                               "optimizer"};
  const auto data = DataOf(RenderHtml(result));
  ASSERT_EQ(data["stated"].size(), 1);
  EXPECT_EQ(data["stated"][0][1], "head.weight");
  EXPECT_EQ(data["stated"][0][2], 7);
  EXPECT_EQ(data["columns"][size_t{data["stated"][0][3]}][0], "step");
  EXPECT_EQ(data["its"].back(), 7) << "an iteration that can be chosen";
  EXPECT_EQ(DataOf(RenderHtml(Read(SampleDiverged())))["stated"].size(), 0);
}

TEST(Html, WhatDivergedWithinItsBoundIsNotColouredByIt) {
  ResultFile::Tensor norm;
  norm.verdict = "diverged";
  norm.headroom = 0.04;
  EXPECT_EQ(SeverityOf(norm), Severity::kNoBound);
  EXPECT_TRUE(IsOutWithinBound(SeverityOf(norm), norm.headroom));
  norm.headroom = 4;
  EXPECT_EQ(SeverityOf(norm), Severity::kOut);
  norm.headroom = kInfinity;
  EXPECT_FALSE(IsOutWithinBound(SeverityOf(norm), norm.headroom));
}

// Which of the things that one class holds the tensor's role says.
TEST(Html, HasTheWordsOfTheTerminalForAClass) {
  CheckResult result = SampleDiverged();
  Culprit& culprit = result.culprits[0];
  culprit.classes = {{BugClass::kOtherModelOrInputs, "it differs", 0}};
  for (const auto& [role, words] :
       {std::pair{Role::kData, "other input data"},
        std::pair{Role::kParam, "other initial weights"},
        std::pair{Role::kBuffer, "other initial buffers"},
        std::pair{Role::kOutput, "other structure or other inputs"}}) {
    culprit.tensor.role = role;
    EXPECT_TRUE(Holds(RenderTerminal(result), words));
    EXPECT_TRUE(Holds(RenderHtml(Read(result)), words)) << words;
  }
  culprit.classes.clear();
  EXPECT_TRUE(Holds(RenderHtml(Read(result)), std::string(kNoClassWords)));
  EXPECT_TRUE(Holds(RenderTerminal(result), std::string(kNoClassWords)));
}

TEST(Html, HeadroomsWithoutAnOrderAreNoProblem) {
  ResultFile result = Read(SampleClean());
  result.tensors.assign(60, result.tensors[0]);
  for (size_t i = 0; i < result.tensors.size(); ++i) {
    result.tensors[i].headroom =
        i % 3 == 0 ? std::nan("") : static_cast<double>(i % 3) * 0.4;
    result.tensors[i].legs[0].err = i % 2 == 0 ? kInfinity : std::nan("");
    result.tensors[i].legs[0].bound = 0;
  }
  EXPECT_TRUE(Holds(RenderHtml(result), "All 60 tensors"));
}

TEST(PackedData, NamesTensorsAndLegsAreWhatTheResultHolds) {
  ResultFile result = Read(SampleDiverged());
  result.tensors[0].shape = {4, 8};
  result.tensors[0].dtype = "bfloat16";
  result.tensors[0].culprit = 0;
  result.tensors[0].cause = "first";
  const nlohmann::json data = DataOf(RenderHtml(result));
  EXPECT_EQ(data["n"], 1);
  EXPECT_EQ(data["names"][0], "0~decoder.layers.3.mlp.linear_fc1");
  EXPECT_EQ(data["slots"][0][0], "grad_input");
  EXPECT_EQ(data["legs"], nlohmann::json({"fp32", "real"}));
  EXPECT_EQ(data["forms"][1], "4 x 8 bfloat16");
  EXPECT_EQ(data["causes"][1], nlohmann::json({0, "first"}));
  EXPECT_EQ(data["t"]["n"], "=2");
  EXPECT_EQ(data["culprits"], nlohmann::json({0, 0}));
}

TEST(PackedData, OfVeryManyLegsThoseOfCleanTensorsAreLeftOut) {
  ResultFile result = Read(SampleDiverged());
  ResultFile::Tensor clean = result.tensors[0];
  clean.verdict = "within";
  clean.headroom = 0.3;
  clean.legs.assign(100, clean.legs[0]);
  result.tensors.resize(1 + kMostPackedLegs / 100, clean);
  const std::string page = RenderHtml(result);
  const nlohmann::json data = DataOf(page);
  EXPECT_EQ(data["legsOfClean"], false);
  EXPECT_THAT(data["t"]["n"].get<std::string>(),
              testing::StartsWith("BAgAAAAA"));
  EXPECT_LT(page.size(), 150'000u);
}

TEST(Html, AThousandRanksAreDrawnSmall) {
  ResultFile result = Read(SampleDiverged());
  result.candidate.mesh = "dp=125 tp=8";
  result.candidate.grids.clear();
  result.candidate.world_size = 1000;
  result.tensors[0].ranks = {999};
  const std::string page = RenderHtml(result);
  EXPECT_TRUE(Holds(page, "rank 999 (dp 124, tp 7): 1 tensor out"));
  EXPECT_FALSE(Holds(page, "rank 500"));
  result.candidate.world_size = int64_t{1} << 40;
  EXPECT_TRUE(Holds(RenderHtml(result), "Only the first 4,096 are drawn."));
}

TEST(Pattern, TheWorstBlockIsSaidInWords) {
  ResultFile::Pattern pattern;
  pattern.leg = "real";
  pattern.dims = {0, 1};
  pattern.rows = {0, 4, 8};
  pattern.columns = {0, 8, 16};
  pattern.errors = {0, 1e-4, 1e-2, 0.7};
  pattern.pieces = {{{1, 3}, 2, "[4:8, 0:16]", 0.7, 64, 64}};
  const std::string html = PatternHtml(pattern);
  EXPECT_TRUE(Holds(html,
                    "Largest 7.0e-01 at 4&ndash;7 of dimension 0, 8&ndash;15 "
                    "of dimension 1"));
  EXPECT_TRUE(Holds(html, "<rect class=h5 "));
  EXPECT_TRUE(Holds(html, "ranks 1, 3, micro-batch 2<td>[4:8, 0:16]"));
  ResultFile::Pattern line = pattern;
  line.dims = {-1, 0};
  line.rows = {0, 1};
  line.columns = {0, 2, 4, 6, 8};
  EXPECT_TRUE(
      Holds(PatternHtml(line), "Largest 7.0e-01 at 6&ndash;7 of dimension 0."));
  // Blocks that are not as many as rows and columns say are not drawn.
  pattern.errors.pop_back();
  EXPECT_FALSE(Holds(PatternHtml(pattern), "<svg class=blocks"));
  pattern.pieces.clear();
  EXPECT_EQ(PatternHtml(pattern), "");
}

TEST(Pattern, ErrorsAsFarApartAsNumbersCanBeHaveAColour) {
  ResultFile::Pattern pattern;
  pattern.dims = {0, -1};
  pattern.rows = {0, 1, 2};
  pattern.errors = {1e308, 1e-320};
  const std::string html = PatternHtml(pattern);
  EXPECT_TRUE(Holds(html, "<rect class=h5"));
  EXPECT_TRUE(Holds(html, "<rect class=h1"));
}

TEST(Comparison, WhatChangedIsMarked) {
  const ResultFile good = Read(SampleClean());
  ResultFile bad = good;
  bad.tensors[0].verdict = "diverged";
  bad.tensors[0].headroom = 30;
  const std::string same = RenderHtmlComparison({{"a", good}, {"b", good}});
  EXPECT_TRUE(Holds(same, "No layer changed"));
  EXPECT_TRUE(Holds(same, "<tr class=same>"));
  EXPECT_TRUE(Holds(same, "a/index.html"));
  const std::string page =
      RenderHtmlComparison({{"a/result.json", good}, {"b", bad}});
  EXPECT_TRUE(Holds(page, "1 layer changed"));
  EXPECT_TRUE(Holds(page,
                    "<tr class=changed><th scope=row>decoder.layers."
                    "3<td class=\"cell s5 start\""));
  EXPECT_TRUE(Holds(page,
                    "<td class=\"cell s10\" title=\"B out: out of "
                    "bounds, up to 1,000 x the bound\">30"));
  EXPECT_TRUE(Holds(page, "a/index.html"));
  EXPECT_TRUE(Holds(page, "script-src 'none'"));
}

}  // namespace
}  // namespace ttrace::html_test
