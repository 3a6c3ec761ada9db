#include "src/run/capture_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/run/capture_watch.h"
#include "src/run/process_messages.h"
#include "src/trace/format.h"
#include "src/trace/note_json.h"
#include "src/trace/reader.h"

namespace ttrace {
namespace {

// The value of a note's string field, or "".
std::string NoteField(const Note& note, const char* key) {
  const auto json = ParseJson(note.json);
  if (!json.is_object()) return "";
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : "";
}

int SealedIterations(const RankTrace& rank, const Leg& leg) {
  std::set<int> iterations;
  for (const auto& [iteration, sealed_leg] : rank.sealed) {
    if (sealed_leg == leg) iterations.insert(iteration);
  }
  return static_cast<int>(iterations.size());
}

// Of a loop that capture was attached to and that never came to what was asked.
std::string TooFewIterations(int64_t ran, const IterationRange& asked) {
  if (ran == 0) {
    return "capture was attached to the loop, which came to the end of no "
           "iteration: its optimizer took no step.";
  }
  return fmt::format(
      "the loop ran {}, and iterations {}:{} were asked for, which count from "
      "0.\n  Let it run longer, or give --iterations 0:{}.",
      Counted(ran, "iteration"), asked.begin, asked.end,
      std::min<int64_t>(ran, 2));
}

// Why no rank has a trace, as far as the processes themselves said.
std::string NoRank(const ProcessMessages& messages,
                   const IterationRange& asked) {
  if (!messages.refusals.empty()) {
    std::string text = "capture refused:";
    for (const std::string& refusal : messages.refusals) {
      text += (messages.refusals.size() == 1 ? " " : "\n  - ") + refusal;
    }
    return text;
  }
  if (messages.loaded == 0) {
    return "no Python process of the command loaded capture.\n"
           "  Capture gets in by PYTHONPATH; python -I, -E and -S, sudo, "
           "containers and job\n"
           "  submissions drop it. Pass PYTHONPATH and the TTRACE_* variables "
           "on, or put\n"
           "  `import ttrace; ttrace.attach(model, optimizer)` into the "
           "script.";
  }
  // What is missing in a script is not known of one that did not get there.
  if (!messages.errors.empty()) {
    std::string text = "the command failed before anything could be captured.";
    if (messages.iterations > 0) {
      text +=
          "\n  Before that, " + TooFewIterations(messages.iterations, asked);
    }
    return text;
  }
  if (messages.iterations >= 0 && messages.iterations <= asked.begin) {
    return TooFewIterations(messages.iterations, asked);
  }
  if (messages.with_framework > 0) {
    return "capture was loaded and megatron.core imported, but no training "
           "step began.";
  }
  if (messages.with_torch > 0) {
    return "capture was loaded and torch imported, but nothing that is "
           "captured by itself (megatron.core is).\n"
           "  A plain torch loop needs one line after its optimizer is built:\n"
           "  `import ttrace; ttrace.attach(model, optimizer)`.";
  }
  if (messages.ended > 0) {
    return "capture was loaded by the command's Python, which imported "
           "neither torch nor megatron.core.";
  }
  return "capture was loaded, but the command ended before its first training "
         "step.";
}

// Sentences and the ranks that each holds for, in the order of the first.
class ByRank {
 public:
  void Add(const std::string& text, int rank) {
    for (auto& [known, ranks] : texts_) {
      if (known != text) continue;
      if (ranks.back() != rank) ranks.push_back(rank);
      return;
    }
    texts_.push_back({text, {rank}});
  }

  // "ranks 0-3<between>text", at most `most`.
  std::vector<std::string> Lines(int world_size, const char* between,
                                 size_t most) const {
    std::vector<std::string> lines;
    for (const auto& [text, ranks] : texts_) {
      if (lines.size() == most) break;
      lines.push_back(FormatRanks(ranks, world_size) + between +
                      ShortenMiddle(Printable(text), 600));
    }
    return lines;
  }

 private:
  std::vector<std::pair<std::string, std::vector<int>>> texts_;
};

constexpr size_t kMostReasons = 4;

// What a note says of something that is not supported.
std::string UnsupportedWords(const Note& note) {
  std::string text = NoteField(note, "what") + " is not supported";
  if (const auto why = NoteField(note, "reason"); !why.empty()) {
    text += ": " + why;
  }
  if (const auto way = NoteField(note, "way_out"); !way.empty()) {
    text += "; " + way;
  }
  return text;
}

std::vector<std::string> Unsupported(const Trace& trace) {
  ByRank found;
  for (const RankTrace& rank : trace.ranks()) {
    for (const Note& note : rank.notes) {
      if (note.kind != "unsupported") continue;
      found.Add(UnsupportedWords(note), rank.meta.rank);
    }
  }
  return found.Lines(trace.world_size(), ": ", kMostReasons);
}

// What the ranks gave as the reason why they have nothing.
std::string StopReasons(const Trace& trace) {
  ByRank reasons;
  for (const RankTrace& rank : trace.ranks()) {
    // The end of a capture that was refused repeats what the refusal says.
    bool is_said = rank.incomplete_reason.empty();
    for (const Note& note : rank.notes) {
      if (note.kind != "unsupported") continue;
      is_said |= rank.incomplete_reason.find(NoteField(note, "what")) !=
                 std::string::npos;
      reasons.Add(UnsupportedWords(note), rank.meta.rank);
    }
    if (!is_said) {
      reasons.Add(rank.incomplete_reason, rank.meta.rank);
    }
  }
  const std::vector<std::string> lines =
      reasons.Lines(trace.world_size(), ": ", kMostReasons);
  std::string text;
  for (const std::string& line : lines) {
    text += (lines.size() == 1 ? " " : "\n  - ") + line;
  }
  return text;
}

std::string NothingSealed(const Trace& trace, const Leg& leg) {
  std::string text = "no rank completed a training iteration";
  if (leg != kReal) text += " of leg " + leg.name();
  const std::string reasons = StopReasons(trace);
  if (!reasons.empty()) return text + ":" + reasons;
  return text +
         ": the processes ended before the end of their first optimizer "
         "step.";
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
  ByRank ends;
  for (const RankTrace& rank : trace.ranks()) {
    if (!rank.closed) {
      ends.Add("ended before its capture was complete", rank.meta.rank);
    } else if (!rank.complete) {
      ends.Add("stopped capturing: " + rank.incomplete_reason, rank.meta.rank);
    }
  }
  constexpr size_t kMostEnds = 8;
  for (std::string& line : ends.Lines(trace.world_size(), " ", kMostEnds)) {
    summary.warnings.push_back(std::move(line));
  }
}

}  // namespace

CaptureSummary SummarizeCapture(const std::string& folder, const Leg& leg,
                                const IterationRange& asked) {
  CaptureSummary summary;
  const ProcessMessages messages = ReadProcessMessages(folder);
  summary.errors = messages.errors;
  const Result<std::shared_ptr<const Trace>> opened = Trace::Open(folder);
  if (!opened.ok()) {
    CaptureWatch watch(folder);
    watch.Update();
    summary.problem =
        watch.world_size() == 0 && opened.error().code() == ErrorCode::kNotFound
            ? NoRank(messages, asked)
            : opened.error().message();
    return summary;
  }
  const Trace& trace = **opened;
  if (trace.ranks().empty()) {
    summary.problem = NoRank(messages, asked);
    return summary;
  }
  summary.world_size = trace.world_size();
  summary.iterations = asked.count();
  std::set<Leg> skipped;
  for (const RankTrace& rank : trace.ranks()) {
    summary.iterations =
        std::min(summary.iterations, SealedIterations(rank, leg));
    for (const Note& note : rank.notes) {
      if (note.kind == "replayer") {
        if (NoteField(note, "name") != "none") continue;
        summary.one_launch_per_leg = true;
        if (summary.why_launches.empty()) {
          summary.why_launches = NoteField(note, "reason");
        }
      } else if (note.kind == "leg_skipped") {
        skipped.insert(Leg(NoteField(note, "leg")));
      } else if (note.kind == "graft_begins") {
        summary.replaced.insert(NoteField(note, "what"));
      }
    }
  }
  summary.skipped_legs.assign(skipped.begin(), skipped.end());
  summary.unsupported = Unsupported(trace);
  if (summary.iterations == 0) {
    summary.problem = NothingSealed(trace, leg);
    return summary;
  }
  AddWarnings(trace, asked.count(), summary);
  return summary;
}

std::string ReplacedWords(const CaptureSummary& summary,
                          const std::string& option) {
  const bool weights = summary.replaced.contains("weights");
  const bool data = summary.replaced.contains("data");
  if (!weights && !data) return "";
  const std::string ran = "it ran with the reference's ";
  if (!data) {
    return ran + "weights in place of its own, which may be why; with " +
           option + " none it keeps its own";
  }
  return ran + (weights ? "weights and data" : "data") +
         " in place of its own, which may be why: data that count within their "
         "own batch, as indices and offsets do, fit no other; with " +
         option + (weights ? " weights" : " none") + " it keeps its own data";
}

}  // namespace ttrace
