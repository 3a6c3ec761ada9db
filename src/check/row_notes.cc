#include "src/check/row_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/base/rank_words.h"
#include "src/experiment/mask_of_lengths.h"
#include "src/experiment/twin_ranks.h"

namespace ttrace {
namespace {

RunNote Open(const std::string& what, const std::string& reason,
             std::string way_out) {
  return {NoteKind::kOtherRows, fmt::format("{}: {}", what, reason),
          std::move(way_out)};
}

RunNote Fed(const std::vector<int>& ranks, const std::string& what) {
  return {NoteKind::kRowsFed,
          ranks.empty() ? what : fmt::format("{}: {}", RankWords(ranks), what),
          ""};
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

std::optional<RunNote> OtherCalls(const Side& reference,
                                  const Side& candidate) {
  const auto theirs = CallsOf(reference.fed_rows());
  for (const auto& [iteration, own] : CallsOf(candidate.fed_rows())) {
    const auto found = theirs.find(iteration);
    if (found == theirs.end() || found->second.first == own.first) continue;
    return Open(
        "a model that is called otherwise in a micro-batch",
        fmt::format("in iteration {} the reference calls it {} before it "
                    "computes gradients, the candidate {}",
                    iteration, Times(found->second.first), Times(own.first)),
        "let both loops call the model and compute gradients in the same "
        "order");
  }
  return std::nullopt;
}

// The reference's iteration that has all rows of a part, other than the one
// that it was read in.
std::optional<int> WhereElse(const FedRows& reference, const FedCall& call,
                             const FedPart& part) {
  for (const auto& [other, parts] : reference.calls()) {
    if (other.is_data != call.is_data || other.call != call.call ||
        other.iteration == call.iteration) {
      continue;
    }
    const RowsOfCall placed = PlaceRows(parts, part, call.is_data);
    if (!placed.spaces.empty() && placed.foreign.empty()) {
      return other.iteration;
    }
  }
  return std::nullopt;
}

// Of which ranks the data are not the reference's, and whose they are. Those of
// all ranks may be shuffled otherwise, and it is said that they were replaced;
// of some ranks alone they are more likely dealt wrongly.
void NoteForeignData(const Side& reference, const Side& candidate,
                     const FedCall& call, const RowsOfCall& rows,
                     std::vector<RunNote>* out) {
  const FedRows::Parts* parts = candidate.fed_rows().Find(call);
  if (parts == nullptr) return;
  std::map<int, std::set<int>> found;  // rank -> iterations of the reference
  for (const auto& [micro_batch, part] : *parts) {
    std::set<int>& iterations = found[part.rank];
    if (!rows.foreign_of.contains(part.rank)) continue;
    if (const auto where = WhereElse(reference.fed_rows(), call, part)) {
      iterations.insert(*where);
    }
  }
  if (rows.foreign_of.size() == found.size()) return;
  for (const auto& [rank, count] : rows.foreign_of) {
    const std::set<int>& iterations = found[rank];
    out->push_back(Fed(
        {rank},
        fmt::format("in iteration {} it read {} rows that the reference does "
                    "not read, and other ranks none{}",
                    call.iteration, count,
                    iterations.empty()
                        ? ""
                        : fmt::format("; the reference reads them in "
                                      "iteration {}",
                                      fmt::join(iterations, ", ")))));
  }
}

RunNote OfAnotherSize(int iteration, const RowsOfCall& call) {
  return Open("a batch of another size",
              fmt::format("in iteration {} the model is fed {} rows on all "
                          "ranks together, in the reference {}",
                          iteration, call.fed, call.fed_in_reference),
              "divide the batch of a step by the number of data-parallel "
              "ranks, so that all of them read as many rows as the reference");
}

// Rows of the micro-batches of a call.
std::set<int64_t> SizesOf(const Side& side, const FedCall& call) {
  std::set<int64_t> out;
  const FedRows::Parts* parts = side.fed_rows().Find(call);
  if (parts == nullptr) return out;
  for (const auto& [micro_batch, part] : *parts) out.insert(part.rows);
  return out;
}

// Iterations before that of `call` whose rows are the reference's without
// having been replaced by them.
std::set<int> KnownBefore(const Side& candidate, const RowAlignment& rows,
                          const FedCall& call) {
  std::set<int> out;
  for (const auto& [id, of] : rows.calls) {
    if (!id.is_data && !of.spaces.empty() && id.iteration < call.iteration) {
      out.insert(id.iteration);
    }
  }
  for (const int iteration : candidate.facts().replaced_data)
    out.erase(iteration);
  return out;
}

// What a loop makes by other models, as the output of a generator is, rounds
// otherwise in batches of another size, and once these models were stepped.
RunNote MadeOtherwise(const Side& reference, const Side& candidate,
                      const RowAlignment& rows, const FedCall& call,
                      size_t foreign) {
  const std::string what =
      "inputs of the model that the loop makes of other values";
  const std::string reason = fmt::format(
      "in iteration {} {} of its rows are not the reference's, though its data "
      "was given to the loop",
      call.iteration, foreign);
  if (SizesOf(reference, call) != SizesOf(candidate, call)) {
    return Open(what, reason,
                "cut the batch into micro-batches of one size in both runs, so "
                "that what another model makes of them rounds alike, and draw "
                "what is added to the data from one random seed");
  }
  const std::set<int> before = KnownBefore(candidate, rows, call);
  if (!before.empty()) {
    return Open(what,
                reason +
                    "; before it all are, so that what makes them may "
                    "have been stepped since",
                fmt::format("compare what comes before alone (--iterations "
                            "{}:{}), or draw all that is added to the data "
                            "from one random seed",
                            *before.begin(), call.iteration));
  }
  return Open(what, reason,
              "have both runs read the same rows (one seed of the sampler, or "
              "DistributedSampler(shuffle=False)), draw what they add to them "
              "from one seed, and pack them alike on any number of ranks");
}

// What a loop has its model generate depends on random draws, and on the rows
// that are generated together.
bool MayBeGenerated(const Side& reference, const Side& candidate,
                    int iteration) {
  return reference.facts().called_without_gradients.contains(iteration) &&
         candidate.facts().called_without_gradients.contains(iteration);
}

RunNote Generated(int iteration, size_t foreign) {
  return Open(
      "inputs of the model that the loop may make by calling it",
      fmt::format("in iteration {} {} of its rows are not the reference's, and "
                  "the loop calls the model without gradients as well, as to "
                  "generate what it learns from",
                  iteration, foreign),
      "have both runs learn from the same rows, as from completions that were "
      "written to a file; or evaluate between other iterations");
}

// A finding of its own, which the values themselves are.
RunNote Repeated(const std::string& arg, int iteration) {
  return Fed({}, fmt::format("in iteration {} '{}' holds what the reference "
                             "has for some rows beside other rows as well, and "
                             "not what it has for these: ranks may draw the "
                             "same random numbers",
                             iteration, arg));
}

bool IsMaskInBoth(const Side& reference, const Side& candidate,
                  const FedCall& call, const std::string& arg) {
  TensorId id;
  id.fqn = call.is_data ? "data" : "";
  id.role = call.is_data ? Role::kData : Role::kInput;
  id.iteration = call.iteration;
  id.call = call.call;
  id.arg = arg;
  const auto is_mask = [&](const Side& side) {
    const TensorPieces* pieces = side.Find(kReal, id);
    return pieces != nullptr && IsMaskOfLengths(*pieces);
  };
  return is_mask(reference) && is_mask(candidate);
}

}  // namespace

std::vector<RunNote> RowNotes(const Side& reference, const Side& candidate,
                              const RowAlignment& rows) {
  std::vector<RunNote> out;
  const std::optional<RunNote> other_calls = OtherCalls(reference, candidate);
  if (other_calls) out.push_back(*other_calls);
  std::set<int> iterations;
  std::set<std::string> said;
  // Of ranks that read the same rows, which is a finding, those of later steps
  // are the reference's of another step.
  bool said_data =
      std::any_of(rows.calls.begin(), rows.calls.end(), [](const auto& call) {
        return call.first.is_data && !call.second.repeated.ranks.empty();
      });
  // Of calls that are numbered otherwise the same number has other rows, though
  // the step may have them all.
  bool said_foreign = said_data || other_calls;
  for (const auto& [id, call] : rows.calls) {
    iterations.insert(id.iteration);
    for (const auto& [arg, ranks, repeats] : call.other) {
      if (said.contains(arg) || IsMaskInBoth(reference, candidate, id, arg)) {
        continue;
      }
      said.insert(arg);
      if (repeats) {
        out.push_back(Repeated(arg, id.iteration));
        continue;
      }
      out.push_back(
          Open(fmt::format("{} '{}' of other values for the same rows",
                           id.is_data ? "data" : "an input", arg),
               ranks.empty()
                   ? fmt::format("in iteration {} it holds other values than "
                                 "the reference's, on all ranks together",
                                 id.iteration)
                   : fmt::format("in iteration {} it holds values on {} that "
                                 "the reference has for none of the rows",
                                 id.iteration, RankWords(ranks)),
               "have both runs make it alike: of the same random seed, for "
               "whole batches, before rows are dealt to ranks"));
    }
    if (id.is_data && !call.foreign.empty() && !said_data) {
      said_data = true;
      NoteForeignData(reference, candidate, id, call, &out);
    }
    if (id.is_data || call.foreign.empty() || said_foreign) continue;
    if (!candidate.facts().data_grafted) {
      if (MayBeGenerated(reference, candidate, id.iteration)) {
        said_foreign = true;
        out.push_back(Generated(id.iteration, call.foreign.size()));
      }
      continue;
    }
    said_foreign = true;
    out.push_back(call.fed != call.fed_in_reference
                      ? OfAnotherSize(id.iteration, call)
                      : MadeOtherwise(reference, candidate, rows, id,
                                      call.foreign.size()));
  }
  std::erase_if(iterations, [&](int i) { return !rows.Reorders(i); });
  if (!iterations.empty()) {
    out.push_back({NoteKind::kRowsReordered,
                   fmt::format("iteration{} {}: the candidate sees the "
                               "reference's rows in another order; they were "
                               "matched by content",
                               iterations.size() == 1 ? "" : "s",
                               fmt::join(iterations, ", ")),
                   ""});
  }
  return out;
}

std::vector<RunNote> TwinNotes(const Side& candidate) {
  for (const auto& [call, parts] : candidate.fed_rows().calls()) {
    if (call.is_data) continue;
    const std::vector<int> ranks = RanksFedAlike(parts);
    if (ranks.empty()) continue;
    return {Fed(ranks,
                fmt::format("in iteration {} they feed the model the same "
                            "rows, which is right only if each counts a part "
                            "of them in its loss; rows of data-parallel ranks "
                            "are compared with a reference alone",
                            call.iteration))};
  }
  return {};
}

}  // namespace ttrace
