#include "src/trace/index/plain_line.h"

#include <cstddef>
#include <cstring>

#include "src/trace/format.h"
#include "src/trace/hex_digest.h"

namespace ttrace {
namespace {

constexpr std::string_view kChain = ",\"chain\":\"";

// Each method reads what comes before a value and the value, or gives false and
// leaves the rest of the line in no particular state. They are inlined, so that
// what comes before is compared as the constant that it is where it is called.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : rest_(line) {}

  // As our writer writes it: no plus, no leading zero, no "-0".
  [[gnu::always_inline]] bool Number(std::string_view before, int64_t* value) {
    if (!Literal(before)) return false;
    const bool negative = Literal("-");
    constexpr size_t kMostDigits = 18;  // of which each is an int64_t
    size_t digits = 0;
    int64_t sum = 0;
    for (; digits < kMostDigits && IsDigit(digits); ++digits) {
      sum = 10 * sum + (rest_[digits] - '0');
    }
    if (digits == 0 || IsDigit(digits)) return false;
    if (rest_.front() == '0' && (digits > 1 || negative)) return false;
    Skip(digits);
    *value = negative ? -sum : sum;
    return true;
  }

  // True without a value if what comes before one is not there.
  [[gnu::always_inline]] bool Perhaps(std::string_view before,
                                      std::optional<int64_t>* value) {
    return !rest_.starts_with(before) || Number(before, &value->emplace());
  }

  // What a string says if it says it literally, and its closing quote.
  [[gnu::always_inline]] bool Text(std::string_view before,
                                   std::string_view* text) {
    if (!Literal(before)) return false;
    size_t size = 0;
    while (size < rest_.size() && rest_[size] >= ' ' && rest_[size] <= '~' &&
           rest_[size] != '"' && rest_[size] != '\\') {
      ++size;
    }
    if (size == rest_.size() || rest_[size] != '"') return false;
    *text = rest_.substr(0, size);
    Skip(size + 1);
    return true;
  }

  // 16 digits, letters in lower case, and a quote.
  [[gnu::always_inline]] bool Digest(std::string_view before, uint64_t* value) {
    if (!Literal(before) || rest_.size() <= kHexDigits ||
        rest_[kHexDigits] != '"') {
      return false;
    }
    const auto digest = ParseHexDigest(rest_.substr(0, kHexDigits));
    if (!digest) return false;
    Skip(kHexDigits + 1);
    *value = *digest;
    return true;
  }

  // The chain, of which only the form is looked at, and the end of the line.
  bool Chain() {
    uint64_t any = 0;
    return Digest(kChain, &any) && rest_ == "}";
  }

  void Skip(size_t bytes) { rest_.remove_prefix(bytes); }
  std::string_view rest() const { return rest_; }

 private:
  [[gnu::always_inline]] bool Literal(std::string_view text) {
    if (rest_.size() < text.size() ||
        std::memcmp(rest_.data(), text.data(), text.size()) != 0) {
      return false;
    }
    Skip(text.size());
    return true;
  }

  bool IsDigit(size_t at) const {
    return at < rest_.size() && rest_[at] >= '0' && rest_[at] <= '9';
  }

  std::string_view rest_;
};

}  // namespace

std::optional<PlainRecordLine> ReadPlainRecordLine(std::string_view line) {
  if (line.size() > kMaxIndexLineBytes) return std::nullopt;
  Cursor at(line);
  PlainRecordLine out;
  if (!at.Number(R"({"type":"record","sequence":)", &out.sequence) ||
      !at.Number(R"(,"spec":)", &out.spec) ||
      !at.Text(R"(,"leg":")", &out.leg) ||
      !at.Number(R"(,"iteration":)", &out.iteration) ||
      !at.Number(R"(,"call":)", &out.call) ||
      !at.Text(R"(,"pass":")", &out.pass) ||
      !at.Number(R"(,"micro_batch":)", &out.micro_batch) ||
      !at.Perhaps(R"(,"row":)", &out.row) ||
      !at.Perhaps(R"(,"same_as":)", &out.same_as) ||
      !at.Number(R"(,"segment":)", &out.segment) ||
      !at.Number(R"(,"offset":)", &out.offset) ||
      !at.Number(R"(,"bytes":)", &out.bytes) ||
      !at.Digest(R"(,"xxh3":")", &out.xxh3) || !at.Chain()) {
    return std::nullopt;
  }
  return out;
}

std::optional<PlainSpecLine> ReadPlainSpecLine(std::string_view line) {
  constexpr size_t kChainBytes = kChain.size() + kHexDigits + 2;
  if (line.size() > kMaxIndexLineBytes) return std::nullopt;
  Cursor at(line);
  PlainSpecLine out;
  if (!at.Number(R"({"type":"spec","number":)", &out.number) ||
      !at.Text(R"(,"fqn":")", &out.fqn) || at.rest().size() < kChainBytes) {
    return std::nullopt;
  }
  out.rest = at.rest().substr(0, at.rest().size() - kChainBytes);
  at.Skip(out.rest.size());
  if (!at.Chain()) return std::nullopt;
  return out;
}

}  // namespace ttrace
