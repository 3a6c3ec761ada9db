#include "src/trace/index/index_chain.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/check.h"
#include "src/trace/hex_digest.h"

namespace ttrace {
namespace {

// What Add puts in place of the line's last brace, around the digits.
constexpr std::string_view kBefore = ",\"chain\":\"";
constexpr std::string_view kAfter = "\"}";
constexpr size_t kSuffix = kBefore.size() + kHexDigits + kAfter.size();
static_assert(kSuffix - 1 == IndexChain::kAddedBytes);

uint64_t Next(uint64_t last, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), last);
}

}  // namespace

IndexChain::IndexChain(std::string_view meta_json)
    : last_(Next(0, meta_json)) {}

void IndexChain::Add(std::string& line) {
  TTRACE_CHECK(line.ends_with("}\n"), "a line is an object");
  line.resize(line.size() - 2);
  last_ = Next(last_, line);
  line.append(kBefore).append(HexDigest(last_)).append(kAfter).append("\n");
}

bool IndexChain::EndsWithKey(std::string_view line) {
  if (line.size() < kSuffix || !line.ends_with(kAfter)) return false;
  return line.substr(line.size() - kSuffix).starts_with(kBefore);
}

Status IndexChain::Check(std::string_view line) {
  if (EndsWithKey(line)) {
    const std::string_view text = line.substr(0, line.size() - kSuffix);
    last_ = Next(last_, text);
    const std::string_view digits =
        line.substr(text.size() + kBefore.size(), kHexDigits);
    if (IsHexDigest(digits, last_)) return Done{};
  }
  return Error(ErrorCode::kCorrupt,
               "not what was written there: this line, one before it or "
               "meta.json was changed, removed or belongs to another rank");
}

}  // namespace ttrace
