#include "src/run/command/missing_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::missing_program_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckProgramTest : public testing::Test {
 protected:
  CheckProgramTest() {
    folder_ =
        fs::path(testing::TempDir()) / ("programs." + std::to_string(getpid()));
    fs::create_directories(folder_ / "bin");
    for (const char* name :
         {"bin/python", "bin/torchrun", "bin/mpirun", "train.py"}) {
      std::ofstream(folder_ / name) << "#\n";
    }
    for (const char* name : {"bin/python", "bin/torchrun", "bin/mpirun"}) {
      fs::permissions(folder_ / name, fs::perms::owner_all);
    }
  }
  ~CheckProgramTest() override { fs::remove_all(folder_); }

  std::string Wrong(const std::string& command, const std::string& path) {
    const Status there = CheckProgramIsThere(command, folder_.string(), path);
    if (there.ok()) return "";
    EXPECT_EQ(there.error().code(), ErrorCode::kNotFound);
    return there.error().message();
  }
  std::string Wrong(const std::string& command) {
    return Wrong(command, "/nowhere:" + (folder_ / "bin").string());
  }

  fs::path folder_;
};

TEST_F(CheckProgramTest, WhatIsThereIsFine) {
  for (const char* command :
       {"python train.py", "torchrun --nproc-per-node 2 train.py --data no.py",
        "A=1 nohup python -u train.py > log 2>&1", "bin/python -m nothing",
        "python -c 'import gone'", "python", "python ."}) {
    EXPECT_EQ(Wrong(command), "") << command;
  }
}

TEST_F(CheckProgramTest, AProgramThatIsNotThereIsNamed) {
  EXPECT_EQ(Wrong("pythn train.py"),
            "there is no program 'pythn' in PATH; did you mean python?");
  EXPECT_THAT(Wrong("./bin/gone x"), HasSubstr("no program './bin/gone'"));
  EXPECT_THAT(Wrong("./train.py"), HasSubstr("chmod +x"));
  EXPECT_THAT(Wrong("python train.py", "/nowhere"), HasSubstr("in PATH"));
}

TEST_F(CheckProgramTest, AScriptThatIsNotThereIsNamed) {
  EXPECT_THAT(Wrong("python trian.py --x"),
              HasSubstr("no script 'trian.py', seen from " + folder_.string() +
                        "; did you mean train.py?"));
  EXPECT_THAT(Wrong("torchrun --standalone gone/x.py"),
              HasSubstr("no script 'gone/x.py'"));
  EXPECT_THAT(Wrong("python -um torch.distributed.run x.py"),
              HasSubstr("no script 'x.py'"));
}

TEST_F(CheckProgramTest, WhatOnlyAShellUnderstandsIsLeftToIt) {
  for (const char* command :
       {"cd sub && python x.py", "pythn x.py || true", "$PY x.py", "python $X",
        "python *.py", "echo x", "PATH=/a pythn x.py",
        "mpirun_ () { python; }; mpirun_", "env -C sub python x.py",
        "mpirun -wdir sub python x.py", "if true; then pythn; fi",
        ". venv/activate", ""}) {
    EXPECT_EQ(Wrong(command), "") << command;
  }
  EXPECT_EQ(Wrong("pythn", ""), "");
}

}  // namespace
}  // namespace ttrace::missing_program_test
