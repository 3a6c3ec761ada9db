#include "src/align/fed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

constexpr size_t kDigits = 16;  // of a digest

std::optional<int64_t> IntAt(const Json& note, const char* key) {
  const auto found = note.find(key);
  if (found == note.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

std::optional<std::string> WordAt(const Json& note, const char* key) {
  const auto found = note.find(key);
  if (found == note.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

// Nothing unless it is one digest for each row.
std::vector<uint64_t> DigestsAt(const Json& note, const char* key,
                                int64_t rows) {
  const auto text = WordAt(note, key);
  if (!text || text->size() != static_cast<size_t>(rows) * kDigits) return {};
  return ParseDigests(*text);
}

struct Place {
  FedCall call;
  int micro_batch = 0;
};

constexpr int64_t kMostCalls = 1 << 24;

std::optional<Place> PlaceOf(const Json& note) {
  const auto fed = WordAt(note, "fed");
  const auto iteration = IntAt(note, "iteration");
  const auto micro_batch = IntAt(note, "micro_batch");
  const auto call = IntAt(note, "call");
  const auto is_count = [](const auto& n) {
    return n && *n >= 0 && *n < kMostCalls;
  };
  if (!fed || !is_count(iteration) || !is_count(micro_batch) ||
      !is_count(call)) {
    return std::nullopt;
  }
  return Place{
      {*fed == "data", static_cast<int>(*iteration), static_cast<int>(*call)},
      static_cast<int>(*micro_batch)};
}

void ReadCall(const Json& note, FedPart* part) {
  part->rows = std::max<int64_t>(0, IntAt(note, "rows").value_or(0));
  part->root = WordAt(note, "root").value_or("");
  const auto calls = note.find("calls");
  if (calls == note.end() || !calls->is_object()) return;
  for (const auto& [fqn, count] : calls->items()) {
    if (count.is_number_integer()) {
      part->calls_before[fqn] = count.get<int>();
    }
  }
}

void ReadTensor(const Json& note, FedPart* part) {
  const auto arg = WordAt(note, "arg");
  const auto dim = IntAt(note, "dim");
  const auto rows = IntAt(note, "rows");
  if (!arg || !dim || !rows || *rows < 0 || *dim < kListDim || *dim > 64) {
    return;
  }
  FedTensor tensor;
  tensor.rows = *rows;
  tensor.width = std::max<int64_t>(0, IntAt(note, "width").value_or(0));
  const auto relative = note.find("relative");
  tensor.is_relative =
      relative != note.end() && relative->is_boolean() && relative->get<bool>();
  tensor.digests.whole = DigestsAt(note, "whole", *rows);
  tensor.digests.without_end = DigestsAt(note, "without_end", *rows);
  tensor.digests.without_begin = DigestsAt(note, "without_begin", *rows);
  tensor.digests.cut_end = DigestsAt(note, "cut_end", *rows);
  tensor.digests.cut_begin = DigestsAt(note, "cut_begin", *rows);
  part->tensors.emplace(FedName(*arg, static_cast<int>(*dim)),
                        std::move(tensor));
}

// Where a loop calls several models, each has its calls.
bool IsOfRoot(const std::string& fqn, const std::string& root) {
  return root.empty() || fqn == root || fqn.starts_with(root + ".");
}

}  // namespace

std::string DigestText(const std::vector<uint64_t>& digests) {
  std::string out;
  out.reserve(digests.size() * kDigits);
  for (const uint64_t digest : digests) {
    fmt::format_to(std::back_inserter(out), "{:016x}", digest);
  }
  return out;
}

std::vector<uint64_t> ParseDigests(std::string_view text) {
  std::vector<uint64_t> out;
  out.reserve(text.size() / kDigits);
  for (size_t at = 0; at + kDigits <= text.size(); at += kDigits) {
    uint64_t digest = 0;
    const char* begin = text.data() + at;
    const auto [end, problem] =
        std::from_chars(begin, begin + kDigits, digest, 16);
    if (problem != std::errc() || end != begin + kDigits) return {};
    out.push_back(digest);
  }
  return text.size() % kDigits == 0 ? out : std::vector<uint64_t>();
}

FedRows FedRows::Read(const Trace& trace) {
  FedRows out;
  ForEachNote(trace, {"fed_call", "fed_rows"}, [&](const ParsedNote& note) {
    const auto place = PlaceOf(note.json);
    if (!place) return;
    const auto [found, is_new] =
        out.calls_[place->call].try_emplace(place->micro_batch);
    FedPart& part = found->second;
    if (is_new) part.rank = note.rank;
    // Ranks of one micro-batch, as those of a tensor-parallel group, are fed
    // the same.
    if (part.rank != note.rank) return;
    if (note.kind == "fed_call") {
      ReadCall(note.json, &part);
    } else {
      ReadTensor(note.json, &part);
    }
    if (!place->call.is_data) {
      int& most = out.most_calls_[place->call.iteration];
      most = std::max(most, place->call.call);
    }
  });
  return out;
}

const FedRows::Parts* FedRows::Find(const FedCall& call) const {
  const auto found = calls_.find(call);
  return found == calls_.end() ? nullptr : &found->second;
}

FedCall FedRows::CallOf(const TensorId& id, int micro_batch) const {
  if (id.role == Role::kData) return {true, id.iteration, id.call};
  FedCall of{false, id.iteration, 0};
  const auto most = most_calls_.find(id.iteration);
  if (most == most_calls_.end()) return of;
  for (int call = most->second; call > 0; --call) {
    const Parts* parts = Find({false, id.iteration, call});
    if (parts == nullptr) continue;
    const auto part = parts->find(micro_batch);
    if (part == parts->end() || !IsOfRoot(id.fqn, part->second.root)) continue;
    const auto before = part->second.calls_before.find(id.fqn);
    const int count =
        before == part->second.calls_before.end() ? 0 : before->second;
    if (count <= id.call) {
      of.call = call;
      break;
    }
  }
  return of;
}

}  // namespace ttrace
