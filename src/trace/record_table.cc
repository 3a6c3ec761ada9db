#include "src/trace/record_table.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "src/base/check.h"
#include "src/trace/format.h"
#include "src/trace/hasher.h"

namespace ttrace {
namespace {

constexpr uint64_t kMaxSegment = 0xfffff;
static_assert(kMaxSegments <= kMaxSegment);

}  // namespace

size_t RecordTable::HashOfId::operator()(const TensorId& id) const {
  Hasher hash;
  hash.Add(id.fqn);
  hash.Add(id.arg);
  hash.Add(static_cast<uint64_t>(id.role) << 8 |
           static_cast<uint64_t>(id.pass));
  hash.Add(static_cast<uint64_t>(id.iteration) << 32 |
           static_cast<uint32_t>(id.call));
  return hash.Take();
}

size_t RecordTable::HashOfForm::operator()(const Form& form) const {
  Hasher hash;
  hash.Add(form.leg.name());
  hash.Add(static_cast<uint64_t>(form.dtype));
  for (const auto& [dim, placement] : form.placements) {
    hash.Add(dim);
    hash.Add(placement.index());
  }
  hash.Add(static_cast<uint64_t>(form.scale.denominator));
  hash.Add(static_cast<uint64_t>(form.bytes));
  if (form.routed) {
    hash.Add(form.routed->by);
    hash.Add(static_cast<uint64_t>(form.routed->expert));
  }
  return hash.Take();
}

size_t RecordTable::HashOfParts::operator()(const Parts& parts) const {
  Hasher hash;
  hash.Add(uint64_t{parts.id} << 32 | parts.form);
  hash.Add(uint64_t{parts.place});
  return hash.Take();
}

size_t RecordTable::HashOfPlace::operator()(const Place& place) const {
  Hasher hash;
  hash.Add(static_cast<uint64_t>(place.micro_batch));
  hash.Add(place.local_shape);
  if (place.rows) hash.Add(static_cast<uint64_t>(place.rows->begin));
  for (const DimLayout& dim : place.layout.dims) {
    hash.Add(static_cast<uint64_t>(dim.global_size));
    hash.Add(uint64_t{dim.segments.size()});
    if (!dim.segments.empty()) {
      hash.Add(static_cast<uint64_t>(dim.segments.front().begin));
      hash.Add(static_cast<uint64_t>(dim.segments.back().begin));
    }
  }
  return hash.Take();
}

uint32_t RecordTable::NumberOfForm(const RecordFields& fields) {
  return forms_.NumberOf({fields.leg, fields.dtype, fields.placements,
                          fields.grid, fields.scale, fields.reduced_over,
                          fields.routed, WithoutOrigin(fields.payload),
                          fields.holds_values() ? -1 : fields.extent.bytes});
}

uint32_t RecordTable::NumberOfPlace(const RecordFields& fields) {
  return places_.NumberOf({fields.micro_batch, fields.local_shape, fields.rows,
                           fields.box, fields.layout});
}

Record RecordTable::Append(const RecordFields& fields) {
  const Parts parts = {ids_.NumberOf(fields.id), NumberOfForm(fields),
                       NumberOfPlace(fields)};
  const Own own = {fields.rank,           fields.sequence,
                   fields.extent.segment, fields.extent.offset,
                   fields.extent.xxh3,    OriginOf(fields.payload)};
  Add(parts, own);
  const auto place = static_cast<int64_t>(size_) - 1;
  if (fields.number >= 0 && fields.number != place && numbers_.empty()) {
    for (int64_t n = 0; n < place; ++n) numbers_.push_back(n);
    numbers_.push_back(fields.number);
  } else if (!numbers_.empty()) {
    numbers_.push_back(fields.number >= 0 ? fields.number : place);
  }
  return back();
}

Record RecordTable::Append(const Parts& parts, const Own& own) {
  TTRACE_CHECK(numbers_.empty(), "records are numbered by their places");
  Add(parts, own);
  return back();
}

void RecordTable::Add(const Parts& parts, const Own& own) {
  TTRACE_CHECK(own.sequence >= 0 && own.sequence < kMaxSequence &&
                   own.offset >= 0 && own.offset <= kMaxOffset &&
                   size_ < kMaxRecords,
               "the reader refuses what a row has no room for");
  Row row;
  row.xxh3 = own.xxh3;
  row.segment = static_cast<uint64_t>(own.segment) & kMaxSegment;
  row.offset = static_cast<uint64_t>(own.offset) & kMaxOffset;
  if (own.origin) row.origin = static_cast<uint32_t>(*own.origin);
  row.parts = parts_.NumberOf(parts);
  AddRow(row, static_cast<uint32_t>(own.rank),
         static_cast<uint32_t>(own.sequence));
}

void RecordTable::AddRow(const Row& row, uint32_t rank, uint32_t sequence) {
  const auto place = static_cast<uint32_t>(size_);
  if (runs_.empty() || runs_.back().rank != rank ||
      uint64_t{runs_.back().sequence} + (place - runs_.back().first) !=
          sequence) {
    runs_.push_back({place, rank, sequence});
  }
  if (size_ == blocks_.size() << kBlockShift) {
    blocks_.push_back(std::make_unique<Row[]>(kBlockRows));
    first_run_.push_back(static_cast<uint32_t>(runs_.size() - 1));
  }
  blocks_[size_ >> kBlockShift][size_ & (kBlockRows - 1)] = row;
  ++size_;
}

void RecordTable::Append(const RecordTable& other) {
  TTRACE_CHECK(numbers_.empty() && other.numbers_.empty() &&
                   other.size_ <= kMaxRecords - size_,
               "tables of whole ranks are joined, and there is room");
  const auto own_numbers = [](const auto& theirs, auto* own) {
    std::vector<uint32_t> numbers;
    for (uint32_t n = 0; n < theirs.size(); ++n) {
      numbers.push_back(own->NumberOf(theirs[n]));
    }
    return numbers;
  };
  const std::vector<uint32_t> ids = own_numbers(other.ids_, &ids_);
  const std::vector<uint32_t> forms = own_numbers(other.forms_, &forms_);
  const std::vector<uint32_t> places = own_numbers(other.places_, &places_);
  std::vector<uint32_t> parts;
  for (uint32_t n = 0; n < other.parts_.size(); ++n) {
    const Parts& theirs = other.parts_[n];
    parts.push_back(parts_.NumberOf(
        {ids[theirs.id], forms[theirs.form], places[theirs.place]}));
  }
  for (uint32_t n = 0; n < other.size_; ++n) {
    Row row = other.row(n);
    row.parts = parts[row.parts];
    const Run& run = other.run(n);
    AddRow(row, run.rank, run.sequence + (n - run.first));
  }
}

void RecordTable::Truncate(size_t count) {
  size_ = std::min(size_, count);
  blocks_.resize((size_ + kBlockRows - 1) >> kBlockShift);
  first_run_.resize(blocks_.size());
  while (!runs_.empty() && runs_.back().first >= size_) runs_.pop_back();
  if (numbers_.size() > size_) numbers_.resize(size_);
}

std::optional<Record> RecordTable::Find(int rank, int64_t sequence) const {
  const std::pair<int64_t, int64_t> wanted(rank, sequence);
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), wanted,
      [](const std::pair<int64_t, int64_t>& place, const Run& run) {
        return place < std::pair<int64_t, int64_t>(run.rank, run.sequence);
      });
  if (after == runs_.begin()) return std::nullopt;
  const Run& run = *std::prev(after);
  const size_t end = after == runs_.end() ? size_ : after->first;
  const int64_t place = int64_t{run.first} + sequence - run.sequence;
  if (run.rank != wanted.first || place >= static_cast<int64_t>(end)) {
    return std::nullopt;
  }
  return (*this)[static_cast<size_t>(place)];
}

Extent Record::extent() const {
  const RecordTable::Row& row = table_->row(place_);
  const RecordTable::Parts& parts = table_->parts_[row.parts];
  const RecordTable::Form& form = table_->forms_[parts.form];
  Extent out;
  out.segment = static_cast<int>(row.segment);
  out.offset = static_cast<int64_t>(row.offset);
  out.xxh3 = row.xxh3;
  out.bytes = form.bytes >= 0
                  ? form.bytes
                  : table_->places_[parts.place].layout.local_count() *
                        Info(form.dtype).itemsize;
  return out;
}

Payload Record::payload() const {
  const RecordTable::Row& row = table_->row(place_);
  const bool refers = row.origin != RecordTable::kNoOrigin;
  return WithOrigin(table_->form(place_).payload,
                    refers ? std::optional<int64_t>(row.origin) : std::nullopt);
}

std::optional<int64_t> Record::same_as() const {
  const RecordTable::Row& row = table_->row(place_);
  if (row.origin == RecordTable::kNoOrigin || measured()) return std::nullopt;
  return row.origin;
}

std::optional<KeptDifference> Record::measured() const {
  if (!std::holds_alternative<KeptDifference>(table_->form(place_).payload)) {
    return std::nullopt;
  }
  return KeptDifference{table_->row(place_).origin};
}

std::optional<Summary> Record::summary() const {
  const auto* of = std::get_if<KeptSummary>(&table_->form(place_).payload);
  return of == nullptr ? std::nullopt : std::optional(of->kind);
}

const ComparedWith& Record::compared_with() const {
  static const ComparedWith none;
  const auto* of = std::get_if<KeptComparison>(&table_->form(place_).payload);
  return of == nullptr ? none : of->legs;
}

RecordFields Record::fields() const {
  RecordFields out;
  out.rank = rank();
  out.sequence = sequence();
  out.id = id();
  out.leg = leg();
  out.micro_batch = micro_batch();
  out.dtype = dtype();
  out.local_shape = local_shape();
  out.placements = placements();
  out.grid = grid();
  out.scale = scale();
  out.reduced_over = reduced_over();
  out.rows = rows();
  out.box = box();
  out.routed = routed();
  out.layout = layout();
  out.extent = extent();
  out.payload = payload();
  out.number = number();
  return out;
}

}  // namespace ttrace
