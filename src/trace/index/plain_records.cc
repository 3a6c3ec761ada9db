#include "src/trace/index/plain_records.h"

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

uint32_t PlainRecords::NumberOfLeg(std::string_view leg) {
  if (last_leg_ == legs_.end() || last_leg_->first != leg) {
    const auto number = static_cast<uint32_t>(legs_.size());
    last_leg_ = legs_.find(leg);
    if (last_leg_ == legs_.end()) last_leg_ = legs_.emplace(leg, number).first;
  }
  return last_leg_->second;
}

bool PlainRecords::LookUp(const PlainRecordLine& line, Pass pass, uint32_t kind,
                          uint32_t leg, LastParts* last) {
  const int64_t row = line.row.value_or(0);
  auto form = forms_.find({kind, leg});
  auto place = places_.find({kind, line.micro_batch, row});
  if (form == forms_.end() || place == places_.end()) {
    Occurrence occurrence;
    occurrence.leg = Leg(line.leg);
    occurrence.pass = pass;
    occurrence.micro_batch = static_cast<int>(line.micro_batch);
    occurrence.row_begin = row;
    const SpecKind& like = specs_.kind(static_cast<size_t>(line.spec));
    const Result<RecordFields> fields =
        MakeRecord(meta_, like.spec, like.facts, occurrence);
    if (!fields.ok()) return false;
    form = forms_.try_emplace({kind, leg}, table_.NumberOfForm(*fields)).first;
    place = places_
                .try_emplace({kind, line.micro_batch, row},
                             table_.NumberOfPlace(*fields))
                .first;
  }
  *last = {leg, form->second, {{line.micro_batch, row}}, place->second};
  return true;
}

std::optional<RecordTable::Parts> PlainRecords::PartsOf(
    const PlainRecordLine& line, Pass pass) {
  const auto number = static_cast<size_t>(line.spec);
  const uint32_t kind = specs_.kind_number(number);
  const SpecKind& like = specs_.kind(number);
  if (last_.size() <= kind) last_.resize(kind + size_t{1});
  LastParts& parts = last_[kind];
  const uint32_t leg = NumberOfLeg(line.leg);
  if (parts.leg != leg ||
      parts.lies != std::pair(line.micro_batch, line.row.value_or(0))) {
    if (!LookUp(line, pass, kind, leg, &parts)) return std::nullopt;
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
  return RecordTable::Parts{last.number, parts.form, parts.place};
}

}  // namespace ttrace
