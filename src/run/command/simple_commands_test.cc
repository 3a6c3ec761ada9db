#include "src/run/command/simple_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/run/command/script_of_command.h"

namespace ttrace::simple_commands_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "folder: word word", "?: ..." where the folder is not known.
std::vector<std::string> Parted(const std::string& command) {
  std::vector<std::string> out;
  for (const SimpleCommand& one : SimpleCommands(command, "/p")) {
    std::string text = one.folder ? one.folder->string() + ":" : "?:";
    for (const ShellToken& word : one.words) text += " " + word.text;
    out.push_back(text);
  }
  return out;
}

TEST(SimpleCommands, HaveTheWordsOfAShell) {
  EXPECT_THAT(Parted(R"(A=1 python 'a b.py' --x="c d" e\ f; g>h.log 2>&1)"),
              ElementsAre("/p: python a b.py --x=c d e f", "/p: g"));
  EXPECT_THAT(Parted("  # nothing"), IsEmpty());
  EXPECT_THAT(Parted("'open end"), ElementsAre("/p: open end"));
  EXPECT_THAT(Parted("a \\\n b\nc"), ElementsAre("/p: a b", "/p: c"));
  const auto one = SimpleCommands("C=c.yaml a <in 2>out", "/p").front();
  EXPECT_THAT(one.others, ElementsAre("in", "out", "c.yaml"));
}

TEST(SimpleCommands, AreWhereACdLeads) {
  EXPECT_THAT(Parted("cd sub && a; cd ..; b"),
              ElementsAre("/p/sub: a", "/p: b"));
  EXPECT_THAT(Parted("(cd sub; a) && b"), ElementsAre("/p/sub: a", "/p: b"));
  EXPECT_THAT(Parted("cd /abs; a"), ElementsAre("/abs: a"));
  EXPECT_THAT(Parted("cd \"$D\"; a; cd x; b; cd /y; c"),
              ElementsAre("?: a", "?: b", "/y: c"));
  EXPECT_THAT(Parted("cd; a"), ElementsAre("?: a"));
  EXPECT_THAT(Parted("cd -; a"), ElementsAre("?: a"));
  EXPECT_THAT(Parted("env -C sub A=1 nice -n 3 a"), ElementsAre("/p/sub: a"));
}

TEST(SimpleCommands, OfAShellAreThoseOfItsText) {
  EXPECT_THAT(Parted("bash -lc 'cd sub && a \"b c\"'; d"),
              ElementsAre("/p: bash -lc cd sub && a \"b c\"", "/p/sub: a b c",
                          "/p: d"));
  EXPECT_THAT(Parted("srun -n 2 /bin/sh -x -c a").back(), "/p: a");
  EXPECT_THAT(Parted("exec timeout -k 3 9m nohup eval a b").back(), "/p: a b");
  // A script that is given -c is not its text.
  EXPECT_THAT(Parted("sh run.sh -c a"), ElementsAre("/p: sh run.sh -c a"));
  std::string deep = "a";
  for (int i = 0; i < 6; ++i) deep = "eval eval eval " + deep;
  EXPECT_FALSE(Parted(deep).empty());
}

TEST(ShellTokens, TellWhatAShellReplaces) {
  const auto literal = [](const std::string& word) {
    return ShellTokens(word).front().is_literal;
  };
  EXPECT_TRUE(literal("'$A'"));
  EXPECT_TRUE(literal("\\$A"));
  EXPECT_TRUE(literal("a~"));
  for (const char* word : {"$A", "\"$A\"", "a*", "~/a", "`a`", "\"`a`\""}) {
    EXPECT_FALSE(literal(word)) << word;
  }
}

// What a command gives Python: "file", "-m one|two", "-c", "" if not known.
std::string Script(const std::string& command) {
  std::string out;
  for (const SimpleCommand& one : SimpleCommands(command, "/p")) {
    const GivenScript script = ScriptOf(one);
    if (script.is_text) out += "-c";
    if (!script.file.empty()) out += script.file;
    for (const std::string& module : script.modules) {
      out += (&module == &script.modules.front() ? "-m " : "|") + module;
    }
  }
  return out;
}

TEST(ScriptOf, IsBehindTheOptionsOfPython) {
  EXPECT_EQ(Script("python3.11 -u -W ignore -X dev train.py --m x"),
            "train.py");
  EXPECT_EQ(Script("/usr/bin/python -um pkg.run -m no"), "-m pkg.run");
  EXPECT_EQ(Script("python -mpkg"), "-m pkg");
  EXPECT_EQ(Script("python -Bc 'import a' b.py"), "-c");
  EXPECT_EQ(Script("python -Wignore --check-hash-based-pycs never a"), "a");
  EXPECT_EQ(Script("python $SCRIPT b.py"), "");
  EXPECT_EQ(Script("pythonic a.py"), "a.py");
}

TEST(ScriptOf, IsWhatALauncherIsGiven) {
  EXPECT_EQ(Script("torchrun --nproc-per-node 2 train.py a.py"), "train.py");
  EXPECT_EQ(Script("torchrun -m --nproc-per-node 2 pkg.a --x"), "-m 2|pkg.a");
  EXPECT_EQ(Script("torchrun --module pkg.a"), "-m pkg.a");
  EXPECT_EQ(Script("python -um torch.distributed.run --standalone -m pkg"),
            "-m pkg");
  EXPECT_EQ(Script("python -m cProfile -o prof train.py"), "train.py");
  EXPECT_EQ(Script("accelerate launch --num_processes 2 train.py"), "train.py");
  EXPECT_EQ(Script("mpirun -np 2 python -u train.py"), "train.py");
  EXPECT_EQ(Script("bash -c 'srun python -um pkg'"), "-m pkg");
  EXPECT_EQ(Script("bash -c 'python train.py'"), "train.py");
  EXPECT_EQ(Script("./run.sh"), "");
}

TEST(ScriptOf, IsDirectWhereNothingStartsTheInterpreter) {
  const auto direct = [](const std::string& command) {
    return ScriptOf(SimpleCommands(command, "/p").front()).is_direct;
  };
  EXPECT_TRUE(direct("nohup python a.py"));
  EXPECT_TRUE(direct("torchrun a.py"));
  EXPECT_FALSE(direct("mpirun -wdir /x python a.py"));
  EXPECT_FALSE(direct("accelerate launch a.py"));
}

}  // namespace
}  // namespace ttrace::simple_commands_test
