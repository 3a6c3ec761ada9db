#include "src/check/trace_digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>

#include "src/measure/packed.h"
#include "src/trace/rank_meta.h"

namespace ttrace {
namespace {

class Digest {
 public:
  Digest() { XXH3_64bits_reset(&state_); }
  void Add(Packer* packed) {
    XXH3_64bits_update(&state_, packed->bytes().data(), packed->bytes().size());
    packed->Clear();
  }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

void Pack(const RankTrace& rank, Packer* out) {
  const auto meta = EncodeRankMeta(rank.meta);
  out->Add(meta.ok() ? *meta : meta.error().message());
  out->Add(rank.sealed);
  out->Add(rank.closed);
  out->Add(rank.complete);
  out->Add(rank.incomplete_reason);
  for (const Note& note : rank.notes) {
    out->Add(note.kind);
    out->Add(note.json);
  }
}

void Pack(const Record& record, Packer* out) {
  out->Add(record.rank());
  out->Add(record.sequence());
  out->Add(ToString(record.id()));
  out->Add(record.leg());
  out->Add(record.micro_batch());
  out->Add(record.dtype());
  out->Add(record.local_shape());
  out->Add(ToString(record.placements()));
  out->Add(record.grid());
  out->Add(record.scale().numerator);
  out->Add(record.scale().denominator);
  out->Add(record.layout().global_shape());
  out->Add(record.rows() ? record.rows()->begin : -1);
  out->Add(record.extent().segment);
  out->Add(record.extent().offset);
  out->Add(record.extent().bytes);
  out->Add(record.extent().xxh3);
}

}  // namespace

uint64_t DigestOf(const Side& side) {
  Digest digest;
  Packer packed;
  for (const Trace* trace : side.traces()) {
    packed.Add(trace->manifest_json());
    for (const RankTrace& rank : trace->ranks()) Pack(rank, &packed);
    digest.Add(&packed);
    for (const Record& record : trace->records()) {
      Pack(record, &packed);
      digest.Add(&packed);
    }
  }
  return digest.value() == 0 ? 1 : digest.value();
}

}  // namespace ttrace
