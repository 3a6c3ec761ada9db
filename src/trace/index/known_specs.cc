#include "src/trace/index/known_specs.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

namespace ttrace {

size_t KnownSpecs::HashOfText::operator()(std::string_view text) const {
  return XXH3_64bits(text.data(), text.size());
}

RecordSpec KnownSpecs::spec(size_t number) const {
  RecordSpec spec = kind(number).spec;
  spec.fqn = fqn(number);
  return spec;
}

void KnownSpecs::Add(RecordSpec spec, SpecFacts facts) {
  specs_.push_back({spec.fqn, static_cast<uint32_t>(kinds_.size())});
  kinds_.push_back({std::move(spec), std::move(facts)});
}

bool KnownSpecs::AddAlike(const PlainSpecLine& line) {
  if (line.number != static_cast<int64_t>(specs_.size()) ||
      line.number >= kMaxSequence) {
    return false;
  }
  const auto found = by_text_.find(line.rest);
  if (found == by_text_.end()) return false;
  specs_.push_back({std::string(line.fqn), found->second});
  return true;
}

void KnownSpecs::NameLast(const PlainSpecLine& line) {
  by_text_.emplace(line.rest, specs_.back().kind);
}

}  // namespace ttrace
