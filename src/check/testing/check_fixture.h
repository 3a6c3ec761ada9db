// Two synthetic runs and the check of one against the other.

#ifndef TTRACE_SRC_CHECK_TESTING_CHECK_FIXTURE_H_
#define TTRACE_SRC_CHECK_TESTING_CHECK_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/check/check.h"
#include "src/check/testing/synthetic_run.h"

namespace ttrace {

class CheckTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string(test->test_suite_name()) + "_" + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    reference_.legs = {"real", "noise.1", "noise.2", "noise.3"};
    candidate_.mesh = {{"dp", 1}, {"tp", 2}};
    candidate_.noise = 0x1p-24f;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }

  CheckResult Check(int threads = 0) {
    if (!std::filesystem::exists(Path("ref"))) reference_.Write(Path("ref"));
    if (!std::filesystem::exists(Path("cand"))) candidate_.Write(Path("cand"));
    CheckOptions options;
    options.reference = Path("ref");
    options.candidate = Path("cand");
    options.threads = threads;
    options.bitwise = bitwise_;
    auto result = RunCheck(options);
    if (!result.ok()) {
      ADD_FAILURE() << result.error().message();
      return {};
    }
    return *std::move(result);
  }

  // Both runs as they are described now.
  CheckResult CheckAgain() {
    std::filesystem::remove_all(Path("ref"));
    std::filesystem::remove_all(Path("cand"));
    return Check();
  }

  // The candidate without a reference.
  CheckResult CheckWithoutReference() {
    if (!std::filesystem::exists(Path("cand"))) candidate_.Write(Path("cand"));
    CheckOptions options;
    options.candidate = Path("cand");
    auto result = RunCheck(options);
    if (!result.ok()) {
      ADD_FAILURE() << result.error().message();
      return {};
    }
    return *std::move(result);
  }

  static std::vector<std::string> Letters(const Culprit& culprit) {
    std::vector<std::string> out;
    for (const Diagnosis& d : culprit.classes) {
      out.emplace_back(LetterOf(d.bug_class));
    }
    return out;
  }

  static std::vector<std::string> Notes(const CheckResult& result) {
    std::vector<std::string> words;
    for (const RunNote& note : result.notes) words.push_back(NoteWords(note));
    return words;
  }

  static std::string Words(const Diagnosis& diagnosis) {
    return diagnosis.evidence;
  }

  static const TensorJudgement& Find(const CheckResult& result,
                                     const std::string& fqn, Role role) {
    for (const TensorJudgement& t : result.tensors) {
      if (t.id.fqn == fqn && t.id.role == role) return t;
    }
    ADD_FAILURE() << fqn;
    return result.tensors.front();
  }

  std::filesystem::path folder_;
  SyntheticRun reference_;
  SyntheticRun candidate_;
  bool bitwise_ = false;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_TESTING_CHECK_FIXTURE_H_
