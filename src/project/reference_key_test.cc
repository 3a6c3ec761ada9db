#include "src/project/reference_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/project/installed_packages.h"
#include "src/project/reference_files.h"

namespace ttrace::reference_key_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ReferenceKeyTest : public testing::Test {
 protected:
  ReferenceKeyTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              ("key." + std::to_string(getpid()) + "." + info->name());
    fs::create_directories(folder_);
    project_.path = "ttrace.toml";
    project_.folder = folder_.string();
    project_.output = (folder_ / ".ttrace").string();
    experiment_.working_folder = folder_.string();
    experiment_.reference_command = "bin/python -m pkg.run --config=c.yaml";
    experiment_.environment = {{"A", "1"}};
    Write("pkg/run.py", "1");
    Write("c.yaml", "1");
    Write("other.py", "1");
    Write("bin/python", "");
    fs::permissions(folder_ / "bin/python", fs::perms::owner_all);
    Write("lib/python3.11/site-packages/torch-2.1.0.dist-info/METADATA", "");
    fs::create_symlink("lib", folder_ / "lib64");
  }
  ~ReferenceKeyTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  nlohmann::json Key() {
    auto key = ReferenceKey(project_, experiment_, options_, "/usr/bin");
    EXPECT_TRUE(key.ok());
    return key.ok() ? nlohmann::json(*key) : nlohmann::json();
  }
  // What is said of the present once `key` was taken.
  std::string ChangedSince(const nlohmann::json& key) {
    return WhatChanged(key, Key());
  }

  fs::path folder_;
  Project project_;
  ProjectExperiment experiment_;
  Variables options_ = {{"iterations", "0:2"}};
};

TEST_F(ReferenceKeyTest, NothingHasChangedByItself) {
  const nlohmann::json key = Key();
  EXPECT_EQ(ChangedSince(key), "");
  EXPECT_EQ(key["packages"], nlohmann::json({{"torch", "2.1.0"}}));
}

TEST_F(ReferenceKeyTest, EachOfWhatIsLookedAtIsNamedWhenItChanges) {
  const nlohmann::json key = Key();
  Write("c.yaml", "2");
  EXPECT_EQ(ChangedSince(key), "file c.yaml has changed");
  Write("c.yaml", "1");
  Write("pkg/run.py", "2");
  EXPECT_EQ(ChangedSince(key), "file pkg/run.py has changed");
  Write("pkg/run.py", "1");
  Write("pkg/run/__main__.py", "2");
  EXPECT_EQ(ChangedSince(key), "file pkg/run/__main__.py is new");
  fs::remove_all(folder_ / "pkg/run");
  options_["iterations"] = "0:3";
  EXPECT_EQ(ChangedSince(key), "--iterations is '0:3' instead of '0:2'");
  options_ = {{"iterations", "0:2"}};
  experiment_.reference_environment = {{"B", "2"}};
  EXPECT_EQ(ChangedSince(key), "variable B is '2'");
  experiment_.reference_environment = {{"A", "2"}};
  EXPECT_EQ(ChangedSince(key), "variable A is '2' instead of '1'");
  experiment_.reference_environment.clear();
  experiment_.reference_command += " ";
  EXPECT_EQ(ChangedSince(key), "its command has changed");
  experiment_.reference_command.pop_back();
  const fs::path packages = folder_ / "lib/python3.11/site-packages";
  fs::rename(packages / "torch-2.1.0.dist-info",
             packages / "torch-2.2.0.dist-info");
  EXPECT_EQ(ChangedSince(key), "package torch is '2.2.0' instead of '2.1.0'");
}

TEST_F(ReferenceKeyTest, OtherFilesCountIfTheyAreListed) {
  nlohmann::json key = Key();
  Write("other.py", "2");
  EXPECT_EQ(ChangedSince(key), "");
  experiment_.depends = {{"*.py", {3, 4}}};
  key = Key();
  Write("other.py", "3");
  EXPECT_EQ(ChangedSince(key), "file other.py has changed");
  // '*' matches slashes, too; results are none of the project's files.
  Write(".ttrace/a.py", "3");
  key = Key();
  Write(".ttrace/a.py", "4");
  EXPECT_EQ(ChangedSince(key), "");
  Write("pkg/more.py", "4");
  EXPECT_EQ(ChangedSince(key), "file pkg/more.py is new");
  experiment_.depends = {{"*.pyx", {3, 4}}};
  const auto none = ReferenceKey(project_, experiment_, options_, "");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message(),
              HasSubstr("ttrace.toml:3:4: no file of the project matches "
                        "'*.pyx'"));
}

TEST_F(ReferenceKeyTest, TheScriptIsFoundWhereTheCommandGoes) {
  Write("sub/train.py", "1");
  Write("sub/pkg/__init__.py", "1");
  Write("sub/pkg/__main__.py", "1");
  const std::vector<std::pair<std::string, std::vector<std::string>>> kFound = {
      {"cd sub && python train.py", {"sub/train.py"}},
      {"bash -c \"cd sub; python -u train.py\"", {"sub/train.py"}},
      {"(cd sub; exec python -um pkg)",
       {"sub/pkg/__init__.py", "sub/pkg/__main__.py"}},
      {"torchrun --nproc-per-node 2 -m pkg.run", {"pkg/run.py"}},
      {"torchrun -m --nproc-per-node 2 pkg.run", {"pkg/run.py"}},
      {"CONFIG=c.yaml python other.py --data=sub/train.py < other.py",
       {"c.yaml", "other.py", "sub/train.py"}},
      {"python sub/pkg", {"sub/pkg/__main__.py"}}};
  for (const auto& [command, names] : kFound) {
    experiment_.reference_command = command;
    const auto found = FilesOfReference(project_, experiment_);
    ASSERT_TRUE(found.ok());
    std::vector<std::string> got;
    for (const auto& [name, path] : found->files) got.push_back(name);
    EXPECT_EQ(got, names) << command;
    EXPECT_TRUE(found->has_script) << command;
  }
}

TEST_F(ReferenceKeyTest, AScriptThatCannotBeFoundIsNotKnown) {
  Write("run.sh", "python other.py");
  Write("train", "#!/usr/bin/env python3\n");
  const auto known = [&](const std::string& command) {
    experiment_.reference_command = command;
    const auto found = FilesOfReference(project_, experiment_);
    return found.ok() && found->has_script;
  };
  for (const char* command :
       {"bash run.sh", "./run.sh c.yaml", "cd $D && python other.py",
        "python $SCRIPT", "python ../elsewhere.py", "python -m installed"}) {
    EXPECT_FALSE(known(command)) << command;
  }
  const std::string outside = folder_.string() + ".py";
  std::ofstream(outside) << "1";
  EXPECT_FALSE(known("python " + outside));
  fs::remove(outside);
  EXPECT_TRUE(known("./train"));
  EXPECT_TRUE(known("python -c 'import other'"));
  experiment_.depends = {{"other.py", {1, 1}}};
  EXPECT_TRUE(known("bash run.sh"));
}

TEST_F(ReferenceKeyTest, AFolderThatIsALinkIsLookedIntoWhereItIsNamed) {
  Write("real/deep/a.py", "1");
  fs::create_directory_symlink(folder_ / "real", folder_ / "model");
  fs::create_directory_symlink(folder_, folder_ / "real/deep/up");
  const auto names = [&](const std::string& pattern) {
    experiment_.depends = {{pattern, {1, 1}}};
    experiment_.reference_command = "true";
    const auto found = FilesOfReference(project_, experiment_);
    std::string text = found.ok() ? "" : found.error().message();
    if (found.ok()) {
      for (const auto& [name, path] : found->files) text += name + " ";
    }
    return text;
  };
  EXPECT_EQ(names("model/*.py"), "model/deep/a.py ");
  EXPECT_EQ(names("model/deep/a.py"), "model/deep/a.py ");
  // Neither twice nor for ever.
  EXPECT_EQ(names("*a.py"), "real/deep/a.py ");
  EXPECT_THAT(names("real"), HasSubstr("it is a folder: write 'real/*'"));
}

TEST_F(ReferenceKeyTest, WhatIsNoKeyIsNotTrusted) {
  EXPECT_EQ(ChangedSince(nullptr), "what it depended on is not known");
  EXPECT_NE(ChangedSince({{"command", 3}}), "");
  nlohmann::json key = Key();
  key["files"] = "none";
  EXPECT_NE(ChangedSince(key), "");
}

TEST_F(ReferenceKeyTest, ProgramsAreFoundInThePath) {
  const std::string path = "/nowhere:" + (folder_ / "bin").string();
  EXPECT_EQ(InstalledPackages("python", "/", path).at("torch"), "2.1.0");
  EXPECT_TRUE(InstalledPackages("python", "/", "/nowhere").empty());
}

}  // namespace
}  // namespace ttrace::reference_key_test
