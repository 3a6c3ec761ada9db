#include "src/check/row_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace ttrace {
namespace {

RunNote Open(std::string what, std::string reason, std::string way_out) {
  RunNote note;
  note.kind = NoteKind::kUnsupported;
  note.names = {std::move(what)};
  note.reason = std::move(reason);
  note.way_out = std::move(way_out);
  return note;
}

// Calls of the model in a micro-batch, and micro-batches, of each iteration.
std::map<int, std::pair<int, size_t>> CallsOf(const FedRows& fed) {
  std::map<int, std::pair<int, size_t>> out;
  for (const auto& [call, parts] : fed.calls()) {
    if (call.is_data) continue;
    auto& [calls, micro_batches] = out[call.iteration];
    calls = std::max(calls, call.call + 1);
    micro_batches = std::max(micro_batches, parts.size());
  }
  return out;
}

std::string Times(int count) {
  return count == 1   ? "once"
         : count == 2 ? "twice"
                      : fmt::format("{} times", count);
}

void NoteOtherCalls(const Side& reference, const Side& candidate,
                    std::vector<RunNote>* out) {
  const auto theirs = CallsOf(reference.fed_rows());
  for (const auto& [iteration, own] : CallsOf(candidate.fed_rows())) {
    const auto found = theirs.find(iteration);
    if (found == theirs.end() || found->second.first == own.first) continue;
    out->push_back(Open(
        "a model that is called otherwise in a micro-batch",
        fmt::format("in iteration {} the reference calls it {} before it "
                    "computes gradients, the candidate {}",
                    iteration, Times(found->second.first), Times(own.first)),
        "let both loops call the model and compute gradients in the same "
        "order"));
    return;
  }
}

}  // namespace

std::vector<RunNote> RowNotes(const Side& reference, const Side& candidate,
                              const RowAlignment& rows) {
  std::vector<RunNote> out;
  NoteOtherCalls(reference, candidate, &out);
  std::set<int> iterations;
  std::set<std::string> said;
  bool said_foreign = false;
  for (const auto& [id, call] : rows.calls) {
    iterations.insert(id.iteration);
    for (const std::string& arg : call.other) {
      if (!said.insert(arg).second) continue;
      out.push_back(
          Open(fmt::format("{} '{}' of other values for the same rows",
                           id.is_data ? "data" : "an input", arg),
               fmt::format("in iteration {} it holds values that the reference "
                           "has for none of the rows",
                           id.iteration),
               "have both runs make it alike: of the same random seed, for "
               "whole batches, before rows are dealt to ranks"));
    }
    if (id.is_data || call.foreign.empty() || said_foreign ||
        !candidate.data_grafted()) {
      continue;
    }
    said_foreign = true;
    out.push_back(
        Open("inputs of the model that the loop makes of other values",
             fmt::format("in iteration {} {} of its rows are not the "
                         "reference's, though its data was given to the loop",
                         id.iteration, call.foreign.size()),
             "have both runs draw what they add to the data from the same "
             "random seed, and read the same rows "
             "(DistributedSampler(shuffle=False), or one seed)"));
  }
  RunNote reordered;
  reordered.kind = NoteKind::kRowsReordered;
  for (const int iteration : iterations) {
    if (rows.Reorders(iteration)) reordered.numbers.push_back(iteration);
  }
  if (!reordered.numbers.empty()) out.push_back(std::move(reordered));
  return out;
}

}  // namespace ttrace
