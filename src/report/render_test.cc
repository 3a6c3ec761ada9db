#include "src/report/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/format.h"
#include "src/report/result_samples.h"

namespace ttrace::render_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// What a name in a foreign trace may hold: an escape sequence that clears the
// screen, line breaks, a bare C1 introducer, a direction override, a byte that
// is no UTF-8, quotes.
const std::string kHostile =
    "evil\x1b[2J\nDIVERGED\r\x07\xc2\x9b"
    "1m\xe2\x80\xae\xff\"\\\x7f";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

CheckResult HostileResult() {
  CheckResult result = SampleDiverged();
  result.reason = kHostile;
  result.reference.folder = kHostile;
  result.candidate.mesh = kHostile;
  result.candidate.legs = {Leg(kHostile)};
  result.coverage.excused = {{kHostile, 1}};
  result.coverage.reference_only = 1;
  result.notes = {{NoteKind::kNotice, kHostile, ""},
                  {NoteKind::kNotice, std::string(100'000, 'x'), ""}};
  result.next_steps = {"ttrace inspect " + kHostile, kHostile};
  result.clean[0].kind = kHostile;
  for (Culprit& culprit : result.culprits) {
    culprit.fqn = kHostile + std::string(5000, 'y');
    culprit.where = kHostile;
    culprit.affected.examples = {kHostile};
    culprit.classes[0].evidence = kHostile;
    culprit.hints = {kHostile};
    culprit.found_by = {kHostile};
    culprit.disagreement = kHostile;
    culprit.source = {kHostile, 1, kHostile};
  }
  TensorJudgement& tensor = result.tensors[0];
  tensor.id.arg = kHostile;
  result.culprits[0].tensor = tensor.id;
  tensor.legs[0].leg = Leg(kHostile);
  tensor.replicas.mesh_dims = {kHostile};
  tensor.reason.kind = ReasonKind::kNotComparable;
  tensor.reason.detail = kHostile;
  TensorJudgement missing;
  missing.id.fqn = kHostile;
  missing.reason = tensor.reason;
  result.tensors.push_back(missing);
  return result;
}

TEST(ExitCode, FollowsDiff) {
  EXPECT_EQ(ExitCode(Verdict::kBitwiseEqual), 0);
  EXPECT_EQ(ExitCode(Verdict::kWithin), 0);
  EXPECT_EQ(ExitCode(Verdict::kDiverged), 1);
  EXPECT_EQ(ExitCode(Verdict::kInconclusive), 2);
}

TEST(RenderTerminal, ShowsWhereAndWhyOfADivergence) {
  EXPECT_EQ(RenderTerminal(SampleDiverged()),
            R"(DIVERGED  decoder.layers.3.mlp.linear_fc1 goes wrong in backward

CHECKED  5,460 of 5,460 tensors compared, none unmatched
         24 more not compared, for a known reason:
         - 24: fused
         candidate  2 ranks pp=1 dp=1 cp=1 tp=2, legs real, fp32
         reference  1 rank, legs real, replay, noise.1, fp32
         iterations 0, 1; 1.2 s, 3.4 GB at 2.7 GB/s

FIRST    decoder.layers.3.mlp.linear_fc1
         backward, communication: grad_input hidden_states
         iteration 0, all 2 ranks
         its grad_output is within bounds (headroom 0.41)
         found by dataflow and isolation
         leg   error    bound    headroom  where the bound is from
         real  6.7e-01  1.2e-02  56        noise 6.0e-03 x 2 (3 noise legs +
                                           fp32 leg)
         fp32  6.7e-01  2.1e-07  3.2e+06   noise 1.1e-07 x 2 (3 noise legs)
         copies: 4 of 4 differ, by up to 1.4e+00, along tp (ranks 0-1)

WHY      P: missing partial sum
         copies on tp ranks 0 and 1 differ and their sum equals the reference
         (error 2.4e-03)

LOOK     - backward of linear_fc1: 0 all-reduces seen over tp, the reference's
           topology needs 1

ALSO     8 of 40 grad_input tensors share this cause:
         - decoder.layers.2.mlp.linear_fc1
         1 further culprit:
         - decoder.layers.0.self_attention.linear_qkv  grad_input: backward,
                                                       communication, headroom
                                                       56, P
         98 later tensors are out of bounds too, downstream of these

CLEAN    forward 1,820 of 1,820, backward 1,616 of 1,716

NOTES    - initial weights of the candidate differed and were replaced

NEXT     ttrace inspect report/candidate decoder.layers.3.mlp.linear_fc1
)");
}

TEST(RenderTerminal, SaysWhatTheCandidateCallsThePlace) {
  CheckResult result = SampleDiverged();
  EXPECT_THAT(RenderTerminal(result), Not(HasSubstr("in the candidate:")));
  result.culprits.erase(result.culprits.begin());
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("FIRST    decoder.layers.0.self_attention.linear_qkv\n"
                        "         in the candidate: "
                        "decoder.layers.0.attention.qkv\n"));
}

TEST(RenderTerminal, SaysHowTheTwoWaysToAPlaceDiffer) {
  CheckResult result = SampleDiverged();
  result.culprits[0].found_by = {"dataflow"};
  result.culprits[0].disagreement = "isolation names linear_fc2";
  result.culprits[0].hints.clear();
  const std::string text = RenderTerminal(result);
  EXPECT_THAT(text, HasSubstr("         but: isolation names linear_fc2\n"));
  EXPECT_THAT(text, Not(HasSubstr("found by")));
  EXPECT_THAT(text, Not(HasSubstr("LOOK")));
}

TEST(RenderTerminal, IsShortForACleanResult) {
  EXPECT_EQ(RenderTerminal(SampleClean()),
            R"(WITHIN BOUNDS  every tensor is within its bound
CHECKED  5,460 of 5,460 tensors compared, none unmatched
         candidate  2 ranks pp=1 dp=1 cp=1 tp=2, legs real, fp32
         reference  1 rank, legs real, replay, noise.1, fp32
         iterations 0, 1; 1.2 s, 3.4 GB at 2.7 GB/s
CLEAN    forward 1,820 of 1,820, backward 1,716 of 1,716
         closest to its bound: headroom 0.42, decoder.layers.3.mlp.linear_fc1
           output 0
)");
}

TEST(RenderTerminal, SaysWhyACountOfCleanTensorsIsNotWhole) {
  CheckResult result = SampleClean();
  CleanCount& backward = result.clean[1];
  backward.open = 25;
  backward.open_but_isolated = 20;
  backward.first_open = Because(ReasonKind::kBoundTooWide);
  backward.first_open.numbers = {0.5};
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("         backward: 25 not judged end to end, 20 of "
                        "them in isolation; the\n"
                        "           first: its bound of 5.0e-01 is too wide to "
                        "mean anything\n"));
  backward.open_but_isolated = 25;
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("25 not judged end to end, but in isolation; the"));
  backward.open_but_isolated = 0;
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("25 not judged end to end; the first"));
}

TEST(RenderTerminal, SaysFirstWhatIsIncomplete) {
  EXPECT_EQ(RenderTerminal(SampleInconclusive()),
            R"(INCONCLUSIVE  12 tensors are unmatched
CHECKED  400 of 412 tensors compared: INCOMPLETE, 11 only in the reference, 1
         only in the candidate
         - decoder.layers.4.mlp output 0: the candidate has no such tensor
         1 of them NOT CHECKABLE, first loss value: its bound of 4.0e-01 is
           too wide to mean anything
         candidate  2 ranks pp=1 dp=1 cp=1 tp=2, legs real, fp32
         reference  1 rank, legs real, replay, noise.1, fp32
         iterations 0, 1; 1.2 s, 3.4 GB at 2.7 GB/s
CLEAN    forward 399 of 400
)");
}

TEST(RenderTerminal, BlamesNoExplainedTensorForNotBeingCheckable) {
  CheckResult result = SampleInconclusive();
  TensorJudgement grafted = result.tensors[1];
  grafted.id.fqn = "grafted";
  grafted.excused = true;
  result.tensors.insert(result.tensors.begin(), grafted);
  EXPECT_THAT(RenderTerminal(result), Not(HasSubstr("grafted")));
}

TEST(RenderTerminal, NeverBreaksACommand) {
  CheckResult result = SampleDiverged();
  const std::string command = "after a fix: ttrace record -o NEW --graft " +
                              std::string(90, 'f') + " -- CMD";
  result.next_steps = {command, command};
  const std::vector<std::string> lines = Lines(RenderTerminal(result));
  EXPECT_EQ(lines[lines.size() - 2], "NEXT     " + command);
  EXPECT_EQ(lines.back(), "         " + command);
}

TEST(RenderTerminal, GivesEachCulpritItsLineOfTheSourceUnbroken) {
  CheckResult result = SampleDiverged();
  const std::string path = std::string(60, 'a') + "/" + std::string(60, 'b');
  result.culprits.resize(1);
  result.culprits[0].source = {"a.py", 1, path + "/a.py:1, class A"};
  result.culprits.push_back(result.culprits[0]);
  result.culprits[1].source = {"b.py", 2, path + "/b.py:2, class B"};
  result.culprits.push_back(result.culprits[0]);
  result.culprits[2].source = {};
  result.contested = {result.culprits[0]};
  result.contested[0].source = {"c.py", 3, path + "/c.py:3, class C"};
  TerminalOptions options;
  const std::string brief = RenderTerminal(result, options);
  EXPECT_THAT(brief, HasSubstr("\n           " + path + "/b.py:2, class B\n"));
  EXPECT_THAT(brief, HasSubstr("\n         " + path + "/c.py:3, class C\n"));
  options.verbose = true;
  const std::string all = RenderTerminal(result, options);
  const size_t tensors = all.find("TENSORS");
  ASSERT_NE(tensors, std::string::npos);
  EXPECT_THAT(all.substr(tensors),
              HasSubstr("\n         " + path + "/a.py:1, class A\n"));
}

TEST(RenderTerminal, AdmitsThatNoClassIsNamed) {
  CheckResult result = SampleDiverged();
  result.culprits[0].classes.clear();
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("WHY      no class named: none of those known fits\n"));
}

TEST(RenderTerminal, AnnouncesNoListThatItDoesNotHave) {
  CheckResult result = SampleDiverged();
  result.culprits[0].affected.examples = {result.culprits[0].fqn};
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("8 of 40 grad_input tensors share this cause\n"));
}

TEST(RenderTerminal, NamesTheInputsThatDifferAndNotTheStructure) {
  CheckResult result = SampleDiverged();
  Culprit& culprit = result.culprits[0];
  culprit.classes = {{BugClass::kOtherModelOrInputs,
                      "before any computation the data differ", 0}};
  for (const auto& [role, words] :
       {std::pair{Role::kData, "Z: other input data\n"},
        std::pair{Role::kParam, "Z: other initial weights\n"},
        std::pair{Role::kOutput, "Z: other structure or other inputs\n"}}) {
    culprit.tensor.role = role;
    EXPECT_THAT(RenderTerminal(result), HasSubstr(words));
  }
}

TEST(RenderTerminal, ShowsThreeNotesAndSaysWhereTheOthersAre) {
  CheckResult result = SampleClean();
  for (const char* text : {"first", "second", "third", "fourth", "fifth"}) {
    result.notes.push_back({NoteKind::kNotice, text, ""});
  }
  TerminalOptions options;
  const std::string text = RenderTerminal(result, options);
  EXPECT_THAT(text, HasSubstr("- third\n"));
  EXPECT_THAT(text, Not(HasSubstr("fourth")));
  EXPECT_THAT(text, HasSubstr("- and 2 more: ttrace inspect shows all"));
  options.verbose = true;
  EXPECT_THAT(RenderTerminal(result, options), HasSubstr("- fifth\n"));
}

TEST(RenderTerminal, SaysThatNoIterationWasCompared) {
  CheckResult result = SampleClean();
  result.iterations.clear();
  EXPECT_THAT(RenderTerminal(result), HasSubstr("no iteration; 1.2 s"));
}

TEST(RenderTerminal, SaysWhenThereWasNoReference) {
  CheckResult result = SampleClean();
  result.has_reference = false;
  const std::string text = RenderTerminal(result);
  EXPECT_THAT(text, HasSubstr("checked without a reference\n"));
  EXPECT_THAT(text, HasSubstr("reference  none"));
}

TEST(RenderTerminal, ShowsNoHeadroomForALegThatIsNotCheckable) {
  CheckResult result = SampleDiverged();
  LegJudgement& leg = result.tensors[0].legs[0];
  leg.checkable = false;
  EXPECT_THAT(RenderTerminal(result),
              HasSubstr("real  6.7e-01  1.2e-02  -         not checkable: "
                        "noise"));
}

TEST(RenderTerminal, CountsNonFiniteValuesOfEachSide) {
  CheckResult result = SampleDiverged();
  result.tensors[0].nonfinite = true;
  result.tensors[0].legs[0].stats.nonfinite_cand = 1234;
  result.tensors[0].legs[0].stats.nonfinite_differ = 1233;
  result.tensors[0].legs[0].stats.nonfinite_ref = 1;
  const std::string text = RenderTerminal(result);
  EXPECT_THAT(text, HasSubstr("non-finite in leg real: 1,234 in the candidate, "
                              "1 in the reference,"));
  EXPECT_THAT(text, HasSubstr("1,233 positions"));
}

TEST(RenderTerminal, ListsEveryDivergedTensorOnlyWhenVerbose) {
  CheckResult result = SampleDiverged();
  TensorJudgement late = result.tensors[0];
  late.id.fqn = "late.one";
  result.tensors.push_back(late);
  TerminalOptions options;
  EXPECT_THAT(RenderTerminal(result, options), Not(HasSubstr("late.one")));
  options.verbose = true;
  EXPECT_THAT(RenderTerminal(result, options), HasSubstr("late.one"));
}

TEST(RenderTerminal, ColoursOnlyWhenAskedAndWithoutMovingALine) {
  for (const CheckResult& result :
       {SampleDiverged(), SampleClean(), SampleInconclusive()}) {
    TerminalOptions options;
    const std::string plain = RenderTerminal(result, options);
    EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
    options.color = true;
    std::string colored = RenderTerminal(result, options);
    EXPECT_THAT(colored, StartsWith("\x1b["));
    for (size_t at; (at = colored.find('\x1b')) != std::string::npos;) {
      colored.erase(at, colored.find('m', at) - at + 1);
    }
    EXPECT_EQ(colored, plain);
  }
}

TEST(RenderTerminal, KeepsItsWidth) {
  for (const int width : {60, 80, 100}) {
    for (CheckResult result : {SampleDiverged(), SampleInconclusive(),
                               SampleClean(), HostileResult()}) {
      // Commands are never broken, nor are paths.
      result.next_steps.clear();
      for (Culprit& culprit : result.culprits) culprit.source = {};
      TerminalOptions options;
      options.width = width;
      options.verbose = true;
      for (const std::string& line : Lines(RenderTerminal(result, options))) {
        EXPECT_LE(Columns(line), static_cast<size_t>(width)) << line;
      }
    }
  }
}

TEST(RenderTerminal, LetsNothingOfAHostileNameActOnTheTerminal) {
  TerminalOptions options;
  options.verbose = true;
  const std::string text = RenderTerminal(HostileResult(), options);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    ASSERT_TRUE(c == '\n' || (byte >= 0x20 && byte < 0x7F))
        << static_cast<int>(byte);
  }
  const std::vector<std::string> lines = Lines(text);
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], Not(StartsWith("DIVERGED"))) << "a forged verdict";
  }
  EXPECT_LT(text.size(), 60'000u) << "a long name buries the report";
}

TEST(RenderJson, HasTheFieldsOfTheSchema) {
  const auto json = nlohmann::json::parse(RenderJson(SampleDiverged()));
  EXPECT_EQ(json["schema"], 2);
  EXPECT_EQ(json["verdict"], "diverged");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["coverage"],
            nlohmann::json::parse(R"({"compared": 5460, "reference_only": 0,
                "candidate_only": 0, "explained": {"fused": 24}})"));
  EXPECT_EQ(json["legs"], (std::vector<std::string>{"real", "fp32"}));
  EXPECT_EQ(json["iterations"], (std::vector<int>{0, 1}));
  EXPECT_EQ(json["sides"]["candidate"]["world_size"], 2);
  EXPECT_EQ(json["sides"]["reference"]["folder"], "report/reference");
  EXPECT_EQ(json["notes"].size(), 1u);
  EXPECT_EQ(json["downstream"], 98);
  EXPECT_EQ(json["clean"][1]["clean"], 1616);

  const auto& culprit = json["culprits"][0];
  EXPECT_EQ(culprit["found_by"][1], "isolation");
  EXPECT_EQ(culprit["disagreement"], "");
  EXPECT_THAT(culprit["hints"][0].get<std::string>(), HasSubstr("all-reduce"));
  EXPECT_EQ(culprit["fqn"], "decoder.layers.3.mlp.linear_fc1");
  EXPECT_EQ(culprit["name_in_candidate"], "");
  EXPECT_EQ(json["culprits"][1]["name_in_candidate"],
            "decoder.layers.0.attention.qkv");
  EXPECT_EQ(culprit["role"], "grad_input");
  EXPECT_EQ(culprit["direction"], "backward");
  EXPECT_EQ(culprit["stage"], "communication");
  EXPECT_EQ(culprit["ranks"], (std::vector<int>{0, 1}));
  EXPECT_EQ(culprit["iteration"], 0);
  EXPECT_EQ(culprit["affected"]["count"], 8);
  EXPECT_EQ(culprit["affected"]["of"], 40);
  EXPECT_EQ(culprit["affected"]["examples"].size(), 2u);
  EXPECT_EQ(culprit["classes"][0]["class"], "P");
  EXPECT_EQ(culprit["classes"][0]["value"], 2.4e-3);
  EXPECT_EQ(culprit["tensor"]["arg"], "hidden_states");

  const auto& tensor = json["tensors"][0];
  EXPECT_EQ(tensor["verdict"], "diverged");
  EXPECT_EQ(tensor["pass"], "backward");
  EXPECT_EQ(tensor["call"], 0);
  EXPECT_EQ(tensor["leg"], "fp32");
  ASSERT_EQ(tensor["legs"].size(), 2u);
  EXPECT_EQ(tensor["legs"][0]["err"], 0.672);
  EXPECT_EQ(tensor["legs"][0]["bound"], 1.2e-2);
  EXPECT_EQ(tensor["replicas"]["mesh_dims"][0], "tp");
}

TEST(RenderJson, SaysWhichStatisticDecides) {
  CheckResult result = SampleDiverged();
  ttrace::Test element;
  element.statistic = Statistic::kElement;
  element.value = 0.5;
  element.bound = 0.125;
  element.headroom = 400;
  result.tensors[0].legs[0].Add(element);
  const auto json = nlohmann::json::parse(RenderJson(result));
  const auto& got = json["tensors"][0]["legs"][0];
  EXPECT_EQ(got["statistic"], "element");
  ASSERT_EQ(got["tests"].size(), 2u);
  EXPECT_EQ(got["tests"][1]["statistic"], "element");
  EXPECT_EQ(got["tests"][1]["headroom"], 400);
  EXPECT_EQ(got["tests"][1]["bound"], 0.125);
  EXPECT_TRUE(got["tests"][1]["value_hp"].is_null());
}

TEST(RenderJson, HasNoDecidingLegForATensorThatCannotBeJudged) {
  const auto json = nlohmann::json::parse(RenderJson(SampleInconclusive()));
  EXPECT_EQ(json["tensors"][0]["verdict"], "unmatched");
  EXPECT_TRUE(json["tensors"][0]["leg"].is_null());
  EXPECT_EQ(json["tensors"][1]["verdict"], "not_checkable");
  EXPECT_TRUE(json["culprits"].empty());
}

TEST(RenderJson, WritesNonFiniteNumbersAsStringsAndUnmeasuredOnesAsNull) {
  CheckResult result = SampleDiverged();
  LegJudgement& leg = result.tensors[0].legs[0];
  leg.err = kNan;
  leg.headroom = kInf;
  leg.bound = -kInf;
  leg.stats.sum_sq_ref = 0;
  result.culprits[0].headroom = kInf;
  result.culprits[0].classes[0].value = kNan;
  const auto json = nlohmann::json::parse(RenderJson(result));
  const auto& written = json["tensors"][0]["legs"][0];
  EXPECT_EQ(written["err"], "NaN");
  EXPECT_EQ(written["headroom"], "Infinity");
  EXPECT_EQ(written["bound"], "-Infinity");
  EXPECT_TRUE(written["tests"][0]["value_hp"].is_null());
  EXPECT_EQ(json["culprits"][0]["headroom"], "Infinity");
  EXPECT_TRUE(json["culprits"][0]["classes"][0]["value"].is_null());
}

TEST(RenderJson, SurvivesHostileNamesAndKeepsThem) {
  const std::string text = RenderJson(HostileResult());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    ASSERT_TRUE(c == '\n' || (byte >= 0x20 && byte < 0x7F));
  }
  const auto json = nlohmann::json::parse(text);
  // All of it but the byte that is no UTF-8.
  EXPECT_EQ(json["reason"],
            "evil\x1b[2J\nDIVERGED\r\x07\xc2\x9b"
            "1m\xe2\x80\xae\xef\xbf\xbd"
            "\"\\\x7f");
  EXPECT_EQ(json["notes"][1]["text"].get<std::string>().size(), 100'000u);
}

TEST(RenderJson, PutsEachTensorOnALineOfItsOwn) {
  CheckResult result = SampleDiverged();
  result.tensors.push_back(result.tensors[0]);
  int lines = 0;
  for (const std::string& line : Lines(RenderJson(result))) {
    if (line.rfind("    {\"fqn\"", 0) == 0) ++lines;
  }
  EXPECT_EQ(lines, 1 + 2 + 2) << "a module, two culprits, two tensors";
}

TEST(RenderJson, ParsesWithoutTensorsOrReference) {
  CheckResult result;
  result.has_reference = false;
  const auto json = nlohmann::json::parse(RenderJson(result));
  EXPECT_TRUE(json["tensors"].empty());
  EXPECT_TRUE(json["sides"]["reference"].is_null());
  EXPECT_EQ(json["verdict"], "inconclusive");
  EXPECT_EQ(json["exit_code"], 2);
}

}  // namespace
}  // namespace ttrace::render_test
