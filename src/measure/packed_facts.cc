#include "src/measure/packed_facts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "src/base/check.h"
#include "src/measure/packed.h"

namespace ttrace {
namespace {

std::string Pack(const TensorFacts& facts) {
  thread_local Packer packer;
  packer.Clear();
  packer.Add(facts);
  return packer.bytes();  // a copy, which has no room to spare
}

}  // namespace

PackedFacts::PackedFacts(const std::vector<TensorFacts>& facts) {
  packed_.reserve(facts.size());
  for (const TensorFacts& one : facts) push_back(one);
}

TensorFacts PackedFacts::operator[](size_t i) const {
  TensorFacts facts;
  Unpacker unpacker(packed_[i]);
  unpacker.Take(&facts);
  TTRACE_CHECK(unpacker.done(), "facts are unpacked as they were packed");
  return facts;
}

void PackedFacts::push_back(const TensorFacts& facts) {
  packed_.push_back(Pack(facts));
}

void PackedFacts::Set(size_t i, const TensorFacts& facts) {
  packed_[i] = Pack(facts);
}

void PackedFacts::Append(PackedFacts other) {
  std::move(other.packed_.begin(), other.packed_.end(),
            std::back_inserter(packed_));
}

void PackedFacts::Sort() {
  std::vector<std::pair<int64_t, size_t>> order;
  order.reserve(size());
  for (size_t i = 0; i < size(); ++i) order.emplace_back((*this)[i].order, i);
  std::sort(order.begin(), order.end());
  std::vector<std::string> sorted;
  sorted.reserve(size());
  for (const auto& [of, i] : order) sorted.push_back(std::move(packed_[i]));
  packed_ = std::move(sorted);
}

size_t PackedFacts::bytes() const {
  size_t bytes = packed_.capacity() * sizeof(std::string);
  for (const std::string& one : packed_) bytes += one.capacity();
  return bytes;
}

}  // namespace ttrace
