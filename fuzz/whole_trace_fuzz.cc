// Any index, with checksums that fit, in place of one rank's of the candidate
// or of the reference: the check gives a report or an Error, and neither the
// declared sizes nor the notes in it cost memory or time. The first byte says
// whose index it is; the rest is its text without the checksums.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/small_runs.h"
#include "fuzz/trace_files.h"
#include "src/base/check.h"
#include "src/check/check.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

struct Place {
  std::string index;
  std::string meta;
  std::string original;  // of the index
};

class Traces {
 public:
  Traces() {
    std::string name = "/dev/shm/ttrace-fuzz-XXXXXX";
    TTRACE_CHECK(::mkdtemp(name.data()) != nullptr, name);
    folder_ = name;
    SmallReference().Write(folder_ + "/reference");
    SmallWrongCandidate().Write(folder_ + "/candidate");
    for (const char* side : {"/reference", "/candidate"}) {
      for (const RankFiles& rank : FindTraceFiles(folder_ + side).ranks) {
        places_.push_back(
            {rank.index, ReadText(rank.meta), ReadText(rank.index)});
      }
    }
  }
  ~Traces() { fs::remove_all(folder_); }

  // Real indices, for a corpus to start from.
  void WriteSeeds(const std::string& folder) const {
    fs::create_directories(folder);
    for (size_t i = 0; i < places_.size(); ++i) {
      std::string seed(1, static_cast<char>(i));
      for (const std::string& line : SplitLines(places_[i].original)) {
        const size_t at = line.rfind(",\"chain\"");
        seed += at == std::string::npos ? line : line.substr(0, at) + "}\n";
      }
      WriteText(folder + "/rank-" + std::to_string(i), seed);
    }
  }

  void Check(uint8_t chosen, const std::string& text) const {
    const Place& place = places_[chosen % places_.size()];
    WriteText(place.index, Chained(place.meta, SplitLines(text)));
    CheckOptions options;
    options.reference = folder_ + "/reference";
    options.candidate = folder_ + "/candidate";
    options.threads = 1;
    static_cast<void>(RunCheck(options));
    WriteText(place.index, place.original);
  }

 private:
  std::string folder_;
  std::vector<Place> places_;
};

const Traces& TheTraces() {
  static const Traces traces;
  return traces;
}

}  // namespace
}  // namespace ttrace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* seeds = std::getenv("TTRACE_FUZZ_SEEDS");
  if (seeds != nullptr) ttrace::TheTraces().WriteSeeds(seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  ttrace::TheTraces().Check(
      data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
