#include "src/trace/plain_records.h"

#include <limits>

#include "src/trace/format.h"

namespace ttrace {
namespace {

bool IsSmall(int64_t value, int64_t min) {
  return value >= min && value <= std::numeric_limits<int>::max();
}

Extent ExtentOf(const PlainRecordLine& line) {
  return {static_cast<int>(line.segment), line.offset, line.bytes, line.xxh3};
}

}  // namespace

std::optional<PlainRecords::Row> PlainRecords::Read(std::string_view text) {
  const std::optional<PlainRecordLine> line = ReadPlainRecordLine(text);
  if (!line || !InRange(*line)) return std::nullopt;
  const std::optional<Pass> pass = ParsePass(line->pass);
  if (!pass) return std::nullopt;
  if (!table_.empty() && line->sequence <= table_.back().sequence()) {
    return std::nullopt;
  }
  if (line->same_as && !RepeatsEarlierOne(*line)) return std::nullopt;
  const std::optional<RecordTable::Parts> parts = PartsOf(*line, *pass);
  if (!parts) return std::nullopt;
  return Row{*parts,
             {meta_.rank, line->sequence, static_cast<int>(line->segment),
              line->offset, line->xxh3, line->same_as}};
}

// What a row has room for, and what its spec and the format allow.
bool PlainRecords::InRange(const PlainRecordLine& line) const {
  if (line.spec < 0 || line.spec >= static_cast<int64_t>(specs_.size()) ||
      table_.size() == RecordTable::kMaxRecords) {
    return false;
  }
  const SpecKind& kind = specs_.kind(static_cast<size_t>(line.spec));
  return line.sequence >= 0 && line.sequence < kMaxSequence &&
         !line.leg.empty() && IsSmall(line.iteration, 0) &&
         IsSmall(line.call, 0) && IsSmall(line.micro_batch, -1) &&
         line.row.has_value() == (kind.spec.batch_dim >= 0) &&
         line.segment >= 0 && line.segment < kMaxSegments &&
         line.offset >= kSegmentHeaderBytes && line.offset <= kMaxOffset &&
         line.bytes == kind.facts.bytes;
}

// As rank_reader.cc demands it of any record.
bool PlainRecords::RepeatsEarlierOne(const PlainRecordLine& line) const {
  const std::optional<Record> owner = table_.Find(meta_.rank, *line.same_as);
  return owner && owner->holds_values() && !owner->same_as() &&
         owner->dtype() ==
             specs_.kind(static_cast<size_t>(line.spec)).spec.dtype &&
         owner->extent() == ExtentOf(line);
}

std::optional<RecordTable::Parts> PlainRecords::PartsOf(
    const PlainRecordLine& line, Pass pass) {
  const auto number = static_cast<size_t>(line.spec);
  const uint32_t kind = specs_.kind_number(number);
  const SpecKind& like = specs_.kind(number);
  auto leg = forms_.find(line.leg);
  if (leg == forms_.end())
    leg = forms_.try_emplace(std::string(line.leg)).first;
  const Place place = {kind, line.micro_batch, line.row.value_or(0)};
  auto form = leg->second.find(kind);
  auto lies = places_.find(place);
  if (form == leg->second.end() || lies == places_.end()) {
    Occurrence occurrence;
    occurrence.leg = line.leg;
    occurrence.pass = pass;
    occurrence.micro_batch = static_cast<int>(line.micro_batch);
    occurrence.row_begin = line.row.value_or(0);
    const Result<RecordFields> fields =
        MakeRecord(meta_, like.spec, like.facts, occurrence);
    if (!fields.ok()) return std::nullopt;
    form = leg->second.emplace(kind, table_.NumberOfForm(*fields)).first;
    lies = places_.emplace(place, table_.NumberOfPlace(*fields)).first;
  }
  ids_.resize(specs_.size());
  LastId& last = ids_[number];
  if (last.iteration != line.iteration || last.call != line.call ||
      last.pass != pass) {
    id_.fqn = specs_.fqn(number);
    id_.role = like.spec.role;
    id_.arg = like.spec.arg;
    id_.iteration = static_cast<int>(line.iteration);
    id_.call = static_cast<int>(line.call);
    id_.pass = pass;
    last = {line.iteration, line.call, pass, table_.NumberOfId(id_)};
  }
  return RecordTable::Parts{last.number, form->second, lies->second};
}

}  // namespace ttrace
