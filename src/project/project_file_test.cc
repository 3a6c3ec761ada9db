#include "src/project/project_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::project_file_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::vector<KnownOption> kOptions = {{"iterations", false},
                                           {"keep", false},
                                           {"seed", false, true},
                                           {"timeout", false},
                                           {"run-to-end", true}};

class ProjectFileTest : public testing::Test {
 protected:
  ProjectFileTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("project." + std::to_string(getpid()) + "." + info->name());
    std::filesystem::create_directories(folder_);
  }
  ~ProjectFileTest() override { std::filesystem::remove_all(folder_); }

  Result<Project> Read(const std::string& text) {
    const std::filesystem::path path = folder_ / "ttrace.toml";
    std::ofstream(path) << text;
    return ReadProject(path.string(), kOptions);
  }
  // What is wrong with it, without the folder.
  std::string Wrong(const std::string& text) {
    const Result<Project> project = Read(text);
    if (project.ok()) return "";
    return project.error().message().substr(folder_.string().size() + 1);
  }

  std::filesystem::path folder_;
};

constexpr const char* kWhole = R"(
output = "results"

[defaults]
timeout = "10m"
run-to-end = true
environment = { OMP_NUM_THREADS = "1", DEBUG = "0" }
depends = ["src/*.py"]

[experiments.zero]
description = "the second by name, the first in the file"
reference = "python train.py"
candidate = "python train.py --tp 2"
seed = 3
run-to-end = false
working-folder = "sub"
environment = { DEBUG = "1" }
reference-environment = { ONE = "1" }
depends = ["conf.yaml"]

[experiments.alpha]
reference-trace = "golden/ref"

[experiments.alpha.candidates]
tp2 = "python train.py --tp 2"
cp2 = { command = "python train.py --cp 2", timeout = 90, environment = { CP = "2" } }
)";

TEST_F(ProjectFileTest, SaysWhatIsComparedAndHow) {
  const Result<Project> project = Read(kWhole);
  ASSERT_TRUE(project.ok()) << project.error().message();
  EXPECT_EQ(project->output, (folder_ / "results").string());
  ASSERT_EQ(project->experiments.size(), 2U);
  const ProjectExperiment& zero = project->experiments[0];
  EXPECT_EQ(zero.name, "zero");
  EXPECT_EQ(zero.reference_command, "python train.py");
  EXPECT_EQ(zero.working_folder, (folder_ / "sub").string());
  EXPECT_EQ(zero.environment,
            (Variables{{"DEBUG", "1"}, {"OMP_NUM_THREADS", "1"}}));
  EXPECT_EQ(zero.reference_environment, (Variables{{"ONE", "1"}}));
  ASSERT_EQ(zero.depends.size(), 2U);
  EXPECT_EQ(zero.depends[1].first, "conf.yaml");
  ASSERT_EQ(zero.candidates.size(), 1U);
  EXPECT_EQ(zero.candidates[0].name, "candidate");
  EXPECT_EQ(zero.candidates[0].options.at("seed").value, "3");
  EXPECT_EQ(zero.candidates[0].options.at("run-to-end").value, "false");
  EXPECT_EQ(zero.candidates[0].options.at("timeout").value, "10m");

  const ProjectExperiment& alpha = project->experiments[1];
  EXPECT_EQ(alpha.reference_trace, (folder_ / "golden/ref").string());
  EXPECT_EQ(alpha.environment.at("DEBUG"), "0");
  ASSERT_EQ(alpha.candidates.size(), 2U);
  EXPECT_EQ(alpha.candidates[0].name, "tp2");
  EXPECT_EQ(alpha.candidates[1].command, "python train.py --cp 2");
  EXPECT_EQ(alpha.candidates[1].options.at("timeout").value, "90");
  EXPECT_EQ(alpha.candidates[1].options.at("run-to-end").value, "true");
  EXPECT_EQ(alpha.candidates[1].environment, (Variables{{"CP", "2"}}));
}

TEST_F(ProjectFileTest, FindsExperimentsByName) {
  const Result<Project> project = Read(kWhole);
  ASSERT_TRUE(project.ok());
  EXPECT_EQ(FindExperiments(*project, "alpha")->size(), 2U);
  const auto one = FindExperiments(*project, "alpha/cp2");
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(one->front().name(), "alpha/cp2");
  EXPECT_THAT(FindExperiments(*project, "aplha").error().message(),
              HasSubstr("no experiment 'aplha'; did you mean alpha?"));
  EXPECT_THAT(FindExperiments(*project, "alpha/tp3").error().message(),
              HasSubstr("no candidate 'tp3'; did you mean tp2?"));
  EXPECT_FALSE(FindExperiments(*project, "").ok());
}

TEST_F(ProjectFileTest, AMistakeHasAPlaceAndTheNearestName) {
  EXPECT_THAT(Wrong("[experiments.a]\nreference = 'x'\ncandidate = 'y'\n"
                    "iteratons = '0:1'\n"),
              StartsWith("ttrace.toml:4:1: unknown key of an experiment "
                         "'iteratons'; did you mean iterations?"));
  EXPECT_EQ(Wrong("[experiment.a]\n"),
            "ttrace.toml:1:2: unknown key 'experiment'; did you mean "
            "experiments?");
  EXPECT_THAT(Wrong("[defaults]\n  enviroment = {}\n"),
              StartsWith("ttrace.toml:2:3: unknown key of [defaults] "
                         "'enviroment'; did you mean environment?"));
  EXPECT_THAT(Wrong("[experiments.a]\nreference = 'x'\n"
                    "candidates = { b = { comand = 'y' } }\n"),
              HasSubstr(":3:22: unknown key of a candidate 'comand'; did you "
                        "mean command?"));
  EXPECT_THAT(Wrong("[experiments.a\n"), StartsWith("ttrace.toml:1:15: "));
}

TEST_F(ProjectFileTest, WhatIsOfAnotherTypeIsRefused) {
  const std::string head = "[experiments.a]\nreference = 'x'\n";
  EXPECT_EQ(Wrong(head + "candidate = 3\n"),
            "ttrace.toml:3:1: candidate is a number; it has to be a text");
  EXPECT_EQ(Wrong(head + "candidate = ''\n"),
            "ttrace.toml:3:1: candidate is an empty text; it has to be a text");
  EXPECT_EQ(Wrong(head + "candidate = 'y'\nrun-to-end = 'yes'\n"),
            "ttrace.toml:4:1: run-to-end is a text; it has to be true or "
            "false");
  for (const char* seed : {"1.5", "'x'", "2026-01-01"}) {
    EXPECT_THAT(Wrong(head + "candidate = 'y'\nseed = " + seed + "\n"),
                HasSubstr("; it has to be a whole number"))
        << seed;
  }
  EXPECT_EQ(Wrong(head + "candidate = 'y'\ntimeout = 1.5\n"),
            "ttrace.toml:4:1: timeout is a number with a fraction; it has to "
            "be a text or a whole number");
  EXPECT_THAT(Wrong(head + "candidate = 'y'\nenvironment = { A = 1 }\n"),
              HasSubstr(":4:17: A is a number; it has to be a text, as all"));
  EXPECT_THAT(Wrong(head + "candidate = 'y'\ndepends = 'a.py'\n"),
              HasSubstr("depends is a text; it has to be a list of texts"));
  EXPECT_THAT(Wrong(head + "candidate = \"a\\u0000b\"\n"),
              HasSubstr("candidate has a zero byte in it"));
}

TEST_F(ProjectFileTest, WhatCannotBeIsRefused) {
  const std::string head = "[experiments.a]\nreference = 'x'\n";
  EXPECT_THAT(Wrong(""), HasSubstr("there are no experiments"));
  EXPECT_THAT(Wrong("[experiments.a]\ncandidate = 'y'\n"),
              HasSubstr("experiment 'a' has no reference"));
  EXPECT_THAT(Wrong(head), HasSubstr("takes either candidate"));
  EXPECT_THAT(Wrong(head + "candidate = 'y'\ncandidates = { b = 'z' }\n"),
              HasSubstr("takes either candidate"));
  EXPECT_THAT(Wrong(head + "candidates = { }\n"),
              HasSubstr("candidates are none"));
  EXPECT_THAT(Wrong(head + "reference-trace = 'z'\ncandidate = 'y'\n"),
              HasSubstr(":3:1: give either reference or reference-trace"));
  EXPECT_THAT(Wrong(head + "candidates = { reference = 'y' }\n"),
              HasSubstr("call it something else"));
  EXPECT_THAT(Wrong(head + "candidates = { b = { timeout = '1m' } }\n"),
              HasSubstr("candidate 'b' has no command"));
  EXPECT_THAT(Wrong(head + "candidates.b = { command = 'y', seed = 1 }\n"),
              HasSubstr("seed concerns the reference as well"));
  EXPECT_THAT(Wrong(head + "candidate = 'y'\nenvironment.TTRACE_OUT = 'a'\n"),
              HasSubstr("these names are ttrace's own"));
  EXPECT_THAT(Wrong(head + "candidate = 'y'\nenvironment.'A=B' = 'a'\n"),
              HasSubstr("'A=B' is no variable"));
}

TEST_F(ProjectFileTest, NamesBecomeNoPaths) {
  for (const char* name : {"'../up'", "'.hidden'", "'-o'", "''", "'a b'",
                           "\"a\\u202eb\"", "'a/b'"}) {
    EXPECT_THAT(Wrong(std::string("[experiments.") + name +
                      "]\nreference = 'x'\ncandidate = 'y'\n"),
                HasSubstr("is no name of an experiment"))
        << name;
  }
  EXPECT_THAT(Wrong("[experiments." + std::string(65, 'a') + "]\n"),
              HasSubstr("is no name of an experiment"));
}

TEST_F(ProjectFileTest, AFileThatIsNotThereIsSaid) {
  const auto missing = ReadProject((folder_ / "other.toml").string(), kOptions);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("other.toml"));
  EXPECT_FALSE(ReadProject(folder_.string(), kOptions).ok());
  EXPECT_THAT(Wrong("# " + std::string(2 << 20, 'x')), HasSubstr("toml"));
}

}  // namespace
}  // namespace ttrace::project_file_test
