#include "src/run/capture_summary.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "src/base/format.h"
#include "src/trace/file.h"
#include "src/trace/format.h"
#include "src/trace/index_line.h"
#include "src/trace/rank_meta.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Whether the last line of the index at `path`, of `size` bytes, is the end
// line. Anything unreadable is "not yet": the reader judges it later.
bool EndsWithEndLine(const fs::path& path, int64_t size, const RankMeta& meta) {
  // An end line holds one sentence; a longer last line is a record being
  // written.
  constexpr int64_t kLongest = 64 << 10;
  const Result<File> file = File::Open(path.string());
  if (!file.ok()) return false;
  std::string tail(static_cast<size_t>(std::min(size, kLongest)), '\0');
  const Result<size_t> got =
      file->ReadAt(std::as_writable_bytes(std::span<char>(tail)),
                   size - static_cast<int64_t>(tail.size()));
  if (!got.ok() || *got != tail.size()) return false;
  if (tail.empty() || tail.back() != '\n') return false;
  tail.pop_back();
  std::string line = tail.substr(tail.rfind('\n') + 1);
  const size_t length = line.size();
  line.append(simdjson::SIMDJSON_PADDING, '\0');
  IndexLineDecoder decoder(meta);
  const Result<IndexLine> decoded =
      decoder.DecodePadded(std::string_view(line).substr(0, length));
  return decoded.ok() && std::holds_alternative<EndLine>(*decoded);
}

Result<RankMeta> ReadMeta(const fs::path& rank_folder) {
  TTRACE_ASSIGN_OR_RETURN(
      const std::string json,
      ReadWholeFile((rank_folder / kMetaFile).string(), kMaxJsonFileBytes));
  return DecodeRankMeta(json);
}

// The value of a note's string field, or "".
std::string NoteField(const Note& note, const char* key) {
  const auto json = nlohmann::json::parse(note.json, nullptr, false);
  if (!json.is_object()) return "";
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : "";
}

int SealedIterations(const RankTrace& rank, const std::string& leg) {
  std::set<int> iterations;
  for (const auto& [iteration, sealed_leg] : rank.sealed) {
    if (sealed_leg == leg) iterations.insert(iteration);
  }
  return static_cast<int>(iterations.size());
}

constexpr std::string_view kNothingCaptured =
    "no process of the command started to capture. One of these holds:\n"
    "  - capture refused: a line `ttrace: rank 0: capture stopped: ...` above "
    "says why;\n"
    "  - the command's Python does not see PYTHONPATH, by which capture gets "
    "in:\n"
    "    python -I, -E and -S, sudo, containers and job submissions drop it.\n"
    "    Pass PYTHONPATH and the TTRACE_* variables on, or put\n"
    "    `import ttrace; ttrace.attach(model, optimizer)` into the script;\n"
    "  - the script's framework is not recognised (megatron-core 0.16 is; "
    "plain\n"
    "    torch needs the line above);\n"
    "  - the command ended before its first training step.";

std::string NothingSealed(const Trace& trace, const std::string& leg) {
  std::string text =
      "capture started, but no rank completed a training iteration";
  if (leg != "real") text += " of leg " + leg;
  for (const RankTrace& rank : trace.ranks()) {
    if (!rank.incomplete_reason.empty()) {
      return text + ": rank " + std::to_string(rank.meta.rank) + ": " +
             Printable(rank.incomplete_reason);
    }
  }
  return text +
         ". The command may have ended, or failed, before the end of its first "
         "optimizer step.";
}

void AddWarnings(const Trace& trace, int asked, CaptureSummary& summary) {
  if (!trace.missing_ranks().empty()) {
    summary.warnings.push_back(
        FormatRanks(trace.missing_ranks(), trace.world_size()) + " of " +
        std::to_string(trace.world_size()) + " left no trace");
  }
  if (summary.iterations < asked) {
    summary.warnings.push_back("only " + std::to_string(summary.iterations) +
                               " of the " + std::to_string(asked) +
                               " iterations asked for were captured");
  }
  for (const RankTrace& rank : trace.ranks()) {
    const std::string who = "rank " + std::to_string(rank.meta.rank);
    if (!rank.closed) {
      summary.warnings.push_back(who +
                                 " ended before its capture was complete");
    } else if (!rank.complete) {
      summary.warnings.push_back(
          who + " stopped capturing: " + Printable(rank.incomplete_reason));
    }
  }
}

}  // namespace

void CaptureWatch::Update() {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_, ignored)) {
    const auto name = ParseRankFolderName(entry.path().filename().string());
    if (!name) continue;
    RankIndex& rank = ranks_[name->rank];
    if (name->restart < rank.restart) continue;
    if (name->restart > rank.restart) rank = {name->restart, -1, false};
    const fs::path index = entry.path() / kIndexFile;
    std::error_code missing;
    const auto size = static_cast<int64_t>(fs::file_size(index, missing));
    if (missing || size == rank.bytes) continue;
    const Result<RankMeta> meta = ReadMeta(entry.path());
    if (!meta.ok()) continue;
    rank.bytes = size;
    rank.closed = EndsWithEndLine(index, size, *meta);
    world_size_ = std::max(world_size_, meta->world_size);
  }
  ranks_closed_ = static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(),
                    [](const auto& rank) { return rank.second.closed; }));
}

CaptureSummary SummarizeCapture(const std::string& folder,
                                const std::string& leg, int iterations_asked) {
  CaptureSummary summary;
  const Result<std::shared_ptr<const Trace>> opened = Trace::Open(folder);
  if (!opened.ok()) {
    CaptureWatch watch(folder);
    watch.Update();
    summary.problem =
        watch.world_size() == 0 && opened.error().code() == ErrorCode::kNotFound
            ? std::string(kNothingCaptured)
            : opened.error().message();
    return summary;
  }
  const Trace& trace = **opened;
  if (trace.ranks().empty()) {
    summary.problem = kNothingCaptured;
    return summary;
  }
  summary.world_size = trace.world_size();
  summary.iterations = iterations_asked;
  std::set<std::string> skipped;
  for (const RankTrace& rank : trace.ranks()) {
    summary.iterations =
        std::min(summary.iterations, SealedIterations(rank, leg));
    for (const Note& note : rank.notes) {
      if (note.kind == "replayer") {
        summary.one_launch_per_leg |= NoteField(note, "name") == "none";
      } else if (note.kind == "leg_skipped") {
        skipped.insert(NoteField(note, "leg"));
      }
    }
  }
  summary.skipped_legs.assign(skipped.begin(), skipped.end());
  if (summary.iterations == 0) {
    summary.problem = NothingSealed(trace, leg);
    return summary;
  }
  AddWarnings(trace, iterations_asked, summary);
  return summary;
}

}  // namespace ttrace
