#include "src/check/merge_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "src/base/format.h"
#include "src/check/check.h"
#include "src/check/part_file.h"
#include "src/check/trace_digest.h"
#include "src/measure/packed.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// As a shell reads it back. Names come from files.
std::string Quoted(const std::string& word) {
  const bool plain =
      !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c >= '0' && c <= '9') ||
               std::string_view("_./:=+,@%-").find(c) != std::string_view::npos;
      });
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return Printable(out + "'");
}

std::string Name(const PartSummary& part) {
  const Share& share = part.head.share;
  const std::string path = Quoted(part.path);
  return share.part == 0
             ? path
             : fmt::format("part {} of {} ({})", share.part, share.of, path);
}

uint64_t DigestOrZero(const Side* side) {
  return side == nullptr ? 0 : DigestOf(*side);
}

// What all parts of one check have in common.
std::string KeyOf(PartHead head) {
  head.share.part = 0;
  head.working_folder.clear();
  Packer packed;
  packed.Add(head);
  return packed.bytes();
}

// How a part's check differs from the one of most parts.
std::string Difference(const PartHead& one, const PartHead& most) {
  if (one.share.of != most.share.of) {
    return fmt::format("is of a check in {} parts, not in {}", one.share.of,
                       most.share.of);
  }
  if (one.reference != most.reference ||
      one.reference_legs != most.reference_legs) {
    return fmt::format("has the reference {}, not {}", Quoted(one.reference),
                       Quoted(most.reference));
  }
  if (one.candidate != most.candidate ||
      one.candidate_legs != most.candidate_legs) {
    return fmt::format("has the candidate {}, not {}", Quoted(one.candidate),
                       Quoted(most.candidate));
  }
  if (one.iterations != most.iterations) {
    return "was measured with other --iterations";
  }
  if (one.legs != most.legs) return "was measured with other --legs";
  if (one.risk != most.risk) {
    return fmt::format("was measured with --risk {}, not {}", one.risk,
                       most.risk);
  }
  return fmt::format(
      "was measured when another trace lay in {}",
      Quoted(one.reference_digest != most.reference_digest ? one.reference
                                                           : one.candidate));
}

class Merger {
 public:
  explicit Merger(const MergeOptions& options) : options_(options) {}

  Result<CheckResult> Merge() {
    const auto start = std::chrono::steady_clock::now();
    Find();
    FindLead();
    CheckHeads();
    if (!problems_.empty()) return Problems();
    CheckOptions options = OptionsOf(lead_->head);
    options.threads = options_.threads;
    auto opened = OpenRuns::Open(options);
    if (!opened.ok()) return opened.error().WithContext(WhereTracesAre());
    const std::unique_ptr<const OpenRuns> runs = *std::move(opened);
    CheckTraces(*runs);
    if (!problems_.empty()) return Problems();
    std::vector<Measurements> shares;
    for (const PartSummary* part : parts_of_lead_) {
      auto share = ReadPart(*part);
      if (share.ok()) {
        shares.push_back(*std::move(share));
      } else {
        Blame(*part, share.error().message());
      }
    }
    if (!problems_.empty()) return Problems();
    TTRACE_ASSIGN_OR_RETURN(Measurements measured,
                            JoinShares(runs->context, std::move(shares)));
    TTRACE_ASSIGN_OR_RETURN(
        CheckResult result,
        JudgeAndExplain(options, *runs, std::move(measured)));
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    return result;
  }

 private:
  void Find() {
    for (const std::string& given : options_.parts) {
      const auto paths = FindParts(given);
      if (!paths.ok()) {
        problems_.push_back(paths.error().message());
        continue;
      }
      for (const std::string& path : *paths) {
        auto summary = ReadPartSummary(path);
        if (summary.ok()) {
          parts_.push_back(*std::move(summary));
        } else {
          problems_.push_back(Quoted(path) + " cannot be merged: it " +
                              summary.error().message());
        }
      }
    }
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const PartSummary& a, const PartSummary& b) {
                       return a.head.share.part < b.head.share.part;
                     });
  }

  // The check that most parts are of is the one that is meant.
  void FindLead() {
    std::map<std::string, int> votes;
    int most = 0;
    for (const PartSummary& part : parts_) {
      if (part.wrong.empty()) most = std::max(most, ++votes[KeyOf(part.head)]);
    }
    for (const PartSummary& part : parts_) {
      if (lead_ == nullptr && part.wrong.empty() &&
          votes[KeyOf(part.head)] == most) {
        lead_ = &part;
      }
    }
  }

  void CheckHeads() {
    std::map<int, const PartSummary*> seen;
    for (const PartSummary& part : parts_) {
      if (!part.wrong.empty()) {
        Blame(part, part.wrong);
        if (lead_ != nullptr && part.head.share.of == lead_->head.share.of) {
          seen.emplace(part.head.share.part, &part);
        }
        continue;
      }
      if (KeyOf(part.head) != KeyOf(lead_->head)) {
        Blame(part, Difference(part.head, lead_->head));
        continue;
      }
      const auto [first, is_new] = seen.emplace(part.head.share.part, &part);
      if (is_new) {
        parts_of_lead_.push_back(&part);
      } else {
        problems_.push_back(
            fmt::format("{} comes twice: also as {}; leave one of them out",
                        Name(*first->second), Quoted(part.path)));
      }
    }
    if (lead_ == nullptr) {
      if (problems_.empty()) problems_.push_back("no part of a check is given");
      return;
    }
    NameMissing(seen);
  }

  void NameMissing(const std::map<int, const PartSummary*>& seen) {
    constexpr int kNamed = 10;
    int missing = 0;
    for (Share share{1, lead_->head.share.of}; share.part <= share.of;
         ++share.part) {
      if (seen.contains(share.part) || ++missing > kNamed) continue;
      const std::string folder =
          fs::path(lead_->path).parent_path().string() + "/";
      problems_.push_back(
          fmt::format("part {} of {} is missing\n  {}", share.part, share.of,
                      Command(share, folder == "/" ? "./" : folder)));
    }
    if (missing > kNamed) {
      problems_.push_back(
          fmt::format("... and {} more parts are missing", missing - kNamed));
    }
  }

  // They may have changed since they were measured.
  void CheckTraces(const OpenRuns& runs) {
    const auto check = [&](const std::string& side, const std::string& folder,
                           uint64_t measured, uint64_t now) {
      if (measured == now) return;
      problems_.push_back(fmt::format(
          "the {} in {} is not the trace that the parts measured; run all "
          "parts again, the first by\n  {}",
          side, Quoted(folder),
          Command({1, lead_->head.share.of}, lead_->path)));
    };
    const PartHead& head = lead_->head;
    check("reference", head.reference, head.reference_digest,
          DigestOrZero(runs.context.reference));
    check("candidate", head.candidate, head.candidate_digest,
          DigestOf(*runs.candidate));
  }

  void Blame(const PartSummary& part, const std::string& what) {
    std::string problem = Name(part) + " " + Printable(what);
    const Share& share = part.head.share;
    const PartHead* head = lead_ != nullptr ? &lead_->head : nullptr;
    if (head == nullptr && share.part > 0) head = &part.head;
    if (head != nullptr && share.part > 0 && share.of == head->share.of) {
      problem += "\n  " + Command(share, part.path, *head);
    }
    problems_.push_back(std::move(problem));
  }

  std::string Command(const Share& share, const std::string& out) const {
    return Command(share, out, lead_->head);
  }

  // That measures the part again.
  std::string Command(const Share& share, const std::string& out,
                      const PartHead& head) const {
    std::string words;
    std::string place = out;
    if (head.working_folder != options_.working_folder) {
      words = fmt::format("cd {} && ", Quoted(head.working_folder));
      place = (fs::path(options_.working_folder) / out).string();
    }
    words += "ttrace check";
    for (const std::string& folder : {head.reference, head.candidate}) {
      if (!folder.empty()) words += fmt::format(" {}", Quoted(folder));
    }
    if (head.iterations) {
      words += fmt::format(" --iterations {}:{}", head.iterations->first,
                           head.iterations->second);
    }
    if (head.legs) {
      words += fmt::format(" --legs {}", fmt::join(NamesOf(*head.legs), ","));
    }
    if (head.risk != kRunRisk) words += fmt::format(" --risk {}", head.risk);
    return words + fmt::format(" --part {} --out-part {}", ToString(share),
                               Quoted(place));
  }

  std::string WhereTracesAre() const {
    const std::string& folder = lead_->head.working_folder;
    return folder == options_.working_folder
               ? "the traces of the parts"
               : fmt::format(
                     "the traces of the parts, which were measured in "
                     "{}: merge them there",
                     Quoted(folder));
  }

  Error Problems() const {
    std::string text = "the parts do not make a result";
    for (const std::string& problem : problems_) text += "\n" + problem;
    return Error(ErrorCode::kInvalidArgument, text);
  }

  const MergeOptions& options_;
  std::vector<PartSummary> parts_;  // by number
  const PartSummary* lead_ = nullptr;
  std::vector<const PartSummary*> parts_of_lead_;
  std::vector<std::string> problems_;
};

Result<Measurements> Measure(const CheckOptions& options, PartHead* head) {
  TTRACE_ASSIGN_OR_RETURN(const auto runs, OpenRuns::Open(options));
  head->reference_digest = DigestOrZero(runs->context.reference);
  head->candidate_digest = DigestOf(*runs->candidate);
  return MeasureRun(runs->context, head->share);
}

}  // namespace

Status RunPart(const CheckOptions& options, const PartHead& head,
               const std::string& path) {
  PartHead own = head;
  auto measured = Measure(options, &own);
  if (measured.ok()) return WritePart(path, own, &*measured);
  // The measuring's Error is the one to report, whatever becomes of this one.
  (void)WriteFailedPart(path, own, measured.error().message()).ok();
  return measured.error();
}

Result<CheckResult> MergeParts(const MergeOptions& options) {
  return Merger(options).Merge();
}

}  // namespace ttrace
