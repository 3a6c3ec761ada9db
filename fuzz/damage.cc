// Damages traces in every way that mutation.h knows, checks each, and counts
// what came of it. Nothing may crash, hang, or need more memory than it is
// given, and no damage may become a verdict.
//
//   damage --cases 100000 [--pair NAME=REFERENCE,CANDIDATE[,OTHER_RUN]]...
//
// Without pairs it writes small ones of its own. Exit code 1 if anything
// failed.

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fuzz/mutation.h"
#include "fuzz/small_runs.h"
#include "src/base/check.h"
#include "src/check/check.h"

// How g++ says it, and how clang does.
#if defined(__SANITIZE_ADDRESS__)
#define TTRACE_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TTRACE_ADDRESS_SANITIZER
#endif
#endif

namespace ttrace {
namespace {

namespace fs = std::filesystem;

struct BaseRun {
  std::string name;
  std::string reference;
  std::string candidate;
  std::string other_run;
};

// What came of one case.
enum class Outcome : uint8_t {
  kPending,
  kError,  // one that names what is damaged
  kInconclusive,
  kSameReport,   // nobody read what was damaged
  kSameVerdict,  // with other culprits
  kOtherVerdict,
  kCrash,
  kOutOfMemory,
  kTimeout,
};
constexpr int kOutcomes = 9;

struct Slot {
  Outcome outcome = Outcome::kPending;
  bool failed = false;
  uint8_t kind = 0;
  uint8_t base = 0;
  float seconds = 0;
  char what[300] = {};
};

struct Options {
  int64_t cases = 10'000;
  int64_t first = 0;
  int64_t only = -1;
  bool list = false;
  int jobs = 2;
  uint64_t seed = 1;
  int64_t memory_mb = 1024;
  int seconds = 30;
  std::string work = "/dev/shm";
  std::string table;
  std::vector<std::string> pairs;
};

std::vector<BaseRun> WriteSmallRuns(const std::string& folder) {
  SmallReference().Write(folder + "/reference");
  SyntheticRun clean = SmallCandidate();
  clean.Write(folder + "/clean");
  SyntheticRun wrong = SmallWrongCandidate();
  wrong.Write(folder + "/wrong");
  SyntheticRun other = SmallCandidate();
  other.noise = 0x1p-25f;
  other.run_id = "other";
  other.Write(folder + "/other");
  return {{"small, clean", folder + "/reference", folder + "/clean",
           folder + "/other"},
          {"small, wrong", folder + "/reference", folder + "/wrong",
           folder + "/other"}};
}

void Copy(const std::string& from, const std::string& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

// The report as far as damage may not change it.
struct Report {
  bool ok = false;
  std::string error;
  Verdict verdict = Verdict::kInconclusive;
  std::set<std::string> culprits;
};

Report Check(const Pair& pair) {
  CheckOptions options;
  options.reference = pair.reference.folder;
  options.candidate = pair.candidate.folder;
  options.threads = 1;
  const auto result = RunCheck(options);
  Report report;
  report.ok = result.ok();
  if (!result.ok()) {
    report.error = result.error().message();
    return report;
  }
  report.verdict = result->verdict;
  for (const Culprit& culprit : result->culprits) {
    report.culprits.insert(culprit.fqn + " " + ToString(culprit.tensor));
  }
  return report;
}

Outcome Compare(const Report& before, const Report& now) {
  if (!now.ok) return Outcome::kError;
  if (now.verdict == before.verdict) {
    return now.culprits == before.culprits ? Outcome::kSameReport
                                           : Outcome::kSameVerdict;
  }
  if (now.verdict == Verdict::kInconclusive) return Outcome::kInconclusive;
  // Both mean that nothing is wrong.
  if (ExitCode(now.verdict) == ExitCode(before.verdict)) {
    return Outcome::kSameReport;
  }
  return Outcome::kOtherVerdict;
}

bool Fails(Expected expected, Outcome outcome) {
  switch (outcome) {
    case Outcome::kCrash:
    case Outcome::kOutOfMemory:
    case Outcome::kTimeout:
    case Outcome::kPending:
      return true;
    case Outcome::kOtherVerdict:
      return expected != Expected::kAnyReport;
    case Outcome::kSameVerdict:
      return expected == Expected::kNoticed;
    default:
      return false;
  }
}

// Runs cases one after the other, with copies of the traces of its own.
class Worker {
 public:
  Worker(const Options& options, const std::vector<BaseRun>& bases, int job,
         Slot* slots)
      : options_(options), bases_(bases), job_(job), slots_(slots) {}

  // From case `first` on. May not return.
  void Run(int64_t first) {
#if !defined(TTRACE_ADDRESS_SANITIZER)
    // The address sanitizer reserves terabytes of addresses for itself.
    const rlim_t bytes = static_cast<rlim_t>(options_.memory_mb) << 20;
    const rlimit limit = {bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
#endif
    const rlimit no_core = {0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::set_new_handler([] { ::_exit(kNoMemory); });
    for (size_t b = 0; b < bases_.size(); ++b) {
      const std::string to = options_.work + "/job-" + std::to_string(job_) +
                             "/" + std::to_string(b);
      fs::create_directories(to);
      Copy(bases_[b].reference, to + "/reference");
      Copy(bases_[b].candidate, to + "/candidate");
      Copy(bases_[b].other_run, to + "/other");
      fs::remove_all(to + "/other.away");
      pairs_.push_back({FindTraceFiles(to + "/reference"),
                        FindTraceFiles(to + "/candidate"),
                        FindTraceFiles(to + "/other")});
      before_.push_back(Check(pairs_.back()));
      TTRACE_CHECK(before_.back().ok, before_.back().error);
    }
    for (int64_t i = first; i < options_.cases; i += options_.jobs) Case(i);
  }

  static constexpr int kNoMemory = 99;

 private:
  void Case(int64_t i) {
    Slot& slot = slots_[i];
    std::seed_seq seed{options_.seed, static_cast<uint64_t>(i)};
    std::mt19937_64 random(seed);
    const auto& kinds = MutationKinds();
    slot.kind = static_cast<uint8_t>(random() % kinds.size());
    slot.base = static_cast<uint8_t>(random() % pairs_.size());
    const Pair& pair = pairs_[slot.base];
    Mutation mutation;
    mutation.Apply(pair, slot.kind, random);
    std::snprintf(slot.what, sizeof slot.what, "%s", mutation.what().c_str());
    const auto start = std::chrono::steady_clock::now();
    ::alarm(static_cast<unsigned>(options_.seconds));
    const Report now = Check(pair);
    ::alarm(0);
    slot.seconds =
        std::chrono::duration<float>(std::chrono::steady_clock::now() - start)
            .count();
    slot.outcome = Compare(before_[slot.base], now);
    slot.failed = Fails(kinds[slot.kind].expected, slot.outcome);
    if (options_.only >= 0) {
      std::printf("%s\n-> %s%s\n", slot.what,
                  now.ok ? std::string(ToString(now.verdict)).c_str()
                         : now.error.c_str(),
                  slot.failed ? " (FAILED)" : "");
      for (const std::string& culprit : now.culprits) {
        std::printf("   culprit %s\n", culprit.c_str());
      }
    }
  }

  const Options& options_;
  const std::vector<BaseRun>& bases_;
  const int job_;
  Slot* slots_;
  std::vector<Pair> pairs_;
  std::vector<Report> before_;
};

// One job: workers, one after the other, each from where the last one died.
void RunJob(const Options& options, const std::vector<BaseRun>& bases, int job,
            Slot* slots) {
  int64_t next = options.first + job;
  while (next < options.cases) {
    const pid_t child = ::fork();
    TTRACE_CHECK(child >= 0, "fork");
    if (child == 0) {
      Worker(options, bases, job, slots).Run(next);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    while (next < options.cases && slots[next].outcome != Outcome::kPending) {
      next += options.jobs;
    }
    if (next >= options.cases) return;
    Slot& died = slots[next];
    died.failed = true;
    died.outcome = Outcome::kCrash;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
      died.outcome = Outcome::kTimeout;
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == Worker::kNoMemory) {
      died.outcome = Outcome::kOutOfMemory;
    }
    next += options.jobs;
  }
}

// Kinds of damage that did nothing in any of many cases: they look for what the
// format no longer has.
int64_t CountMissing(const Options& options, const Slot* slots) {
  const auto kinds = static_cast<int64_t>(MutationKinds().size());
  if (options.only >= 0 || options.cases - options.first < 10 * kinds) return 0;
  std::vector<bool> happened(MutationKinds().size());
  for (int64_t i = options.first; i < options.cases; ++i) {
    if (slots[i].what[0] != '\0') happened[slots[i].kind] = true;
  }
  int64_t missing = 0;
  for (size_t kind = 0; kind < happened.size(); ++kind) {
    if (happened[kind]) continue;
    ++missing;
    std::printf("no case of: %s\n",
                std::string(MutationKinds()[kind].name).c_str());
  }
  return missing;
}

std::string Table(const Options& options, const std::vector<BaseRun>& bases,
                  const Slot* slots) {
  static constexpr const char* kNames[kOutcomes] = {
      "",          "error",   "inconclusive", "same report", "same verdict",
      "*verdict*", "*crash*", "*memory*",     "*timeout*"};
  std::string out = "| damage | cases |";
  for (int o = 1; o < kOutcomes; ++o)
    out += std::string(" ") + kNames[o] + " |";
  out += " failed |\n|---|---|";
  for (int o = 0; o < kOutcomes; ++o) out += "---|";
  out += "\n";
  std::vector<std::vector<int64_t>> counts(MutationKinds().size() + 1,
                                           std::vector<int64_t>(kOutcomes + 2));
  float slowest = 0;
  for (int64_t i = options.first; i < options.cases; ++i) {
    const Slot& slot = slots[i];
    // A place where nothing could be done is no case.
    if (slot.what[0] == '\0' && !slot.failed) continue;
    slowest = std::max(slowest, slot.seconds);
    for (const size_t row : {size_t{slot.kind}, counts.size() - 1}) {
      ++counts[row][0];
      ++counts[row][static_cast<size_t>(slot.outcome)];
      counts[row][kOutcomes] += slot.failed;
    }
  }
  for (size_t row = 0; row < counts.size(); ++row) {
    out += "| ";
    out += row + 1 == counts.size() ? std::string("all")
                                    : std::string(MutationKinds()[row].name);
    out += " |";
    for (int column = 0; column <= kOutcomes; ++column) {
      out +=
          " " + std::to_string(counts[row][static_cast<size_t>(column)]) + " |";
    }
    out += "\n";
  }
  out += "\nBase runs:";
  for (const BaseRun& base : bases) out += " " + base.name + ";";
  char text[200];
  std::snprintf(text, sizeof text,
                " seed %llu, at most %lld MiB of address space and %d s a "
                "case; the slowest took %.1f s.\n",
                static_cast<unsigned long long>(options.seed),
                static_cast<long long>(options.memory_mb), options.seconds,
                static_cast<double>(slowest));
  return out + text;
}

Options Parse(int argc, char** argv) {
  Options options;
  CLI::App app("Damages traces and checks them.");
  app.add_option("--cases", options.cases, "number of them");
  app.add_option("--case", options.only, "this one alone, with its report");
  app.add_flag("--list", options.list, "every case and what came of it");
  app.add_option("--jobs", options.jobs);
  app.add_option("--seed", options.seed);
  app.add_option("--memory", options.memory_mb, "MiB of address space");
  app.add_option("--timeout", options.seconds, "seconds a case");
  app.add_option("--work", options.work, "where copies are damaged");
  app.add_option("--pair", options.pairs, "NAME=REFERENCE,CANDIDATE[,OTHER]");
  app.add_option("--table", options.table, "file for the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (options.only >= 0) {
    options.first = options.only;
    options.cases = options.only + 1;
    options.jobs = 1;
  }
  return options;
}

int Main(int argc, char** argv) {
  Options options = Parse(argc, argv);
  std::string work = options.work + "/ttrace-damage-XXXXXX";
  TTRACE_CHECK(::mkdtemp(work.data()) != nullptr, work);
  options.work = work;
  std::vector<BaseRun> bases;
  for (const std::string& pair : options.pairs) {
    const size_t equals = pair.find('=');
    const std::vector<std::string> folders =
        CLI::detail::split(pair.substr(equals + 1), ',');
    TTRACE_CHECK(equals != std::string::npos && folders.size() >= 2, pair);
    bases.push_back(
        {pair.substr(0, equals), folders[0], folders[1], folders.back()});
  }
  if (bases.empty()) bases = WriteSmallRuns(work);

  const size_t bytes = sizeof(Slot) * static_cast<size_t>(options.cases);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TTRACE_CHECK(memory != MAP_FAILED, "shared memory");
  Slot* slots = static_cast<Slot*>(memory);
  for (int64_t i = 0; i < options.cases; ++i) new (slots + i) Slot;
  std::fflush(stdout);
  std::vector<pid_t> jobs;
  for (int job = 0; job < options.jobs; ++job) {
    const pid_t child = ::fork();
    TTRACE_CHECK(child >= 0, "fork");
    if (child == 0) {
      RunJob(options, bases, job, slots);
      ::_exit(0);
    }
    jobs.push_back(child);
  }
  for (const pid_t child : jobs) {
    int status = 0;
    ::waitpid(child, &status, 0);
  }
  fs::remove_all(work);

  int64_t failed = 0;
  for (int64_t i = options.first; i < options.cases; ++i) {
    failed += slots[i].failed;
    if (options.list || (slots[i].failed && failed <= 40)) {
      std::printf("case %lld: %s, outcome %d: %s\n", static_cast<long long>(i),
                  std::string(MutationKinds()[slots[i].kind].name).c_str(),
                  static_cast<int>(slots[i].outcome), slots[i].what);
    }
  }
  failed += CountMissing(options, slots);
  const std::string table = Table(options, bases, slots);
  if (options.only < 0) std::printf("%s", table.c_str());
  if (!options.table.empty()) WriteText(options.table, table);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) { return ttrace::Main(argc, argv); }
