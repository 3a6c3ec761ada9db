// Values as bytes and back, exactly: doubles by their bits without the zeros
// that these end with, integers of any size in as few bytes as they need, texts
// of any bytes.
//
// No names and no types are written: both ends have to be the same program, as
// parts of one check are (check/part_file.h). What the reader is given may be
// anything all the same: it reads no byte beyond the end and takes no memory
// that the bytes do not account for.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_MEASURE_PACKED_H_
#define TTRACE_SRC_MEASURE_PACKED_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/measure/fields.h"
#include "src/step/step_formula.h"
#include "src/step/step_rule.h"
#include "ttrace/dtype.h"
#include "ttrace/leg.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class Packer {
 public:
  template <typename T>
  void operator()(const char*, T& value) {
    Add(value);
  }

  template <typename T>
  void Add(const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      AddBits(std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      out_.push_back(value ? 1 : 0);
    } else if constexpr (std::is_enum_v<T> || std::integral<T>) {
      AddNumber(static_cast<int64_t>(value));
    } else {
      AddParts(value);
    }
  }

  const std::string& bytes() const { return out_; }
  void Clear() { out_.clear(); }

 private:
  // How many bytes, and these from the top: of most doubles that are measured
  // where nothing differs, none.
  void AddBits(uint64_t bits) {
    const int bytes = bits == 0 ? 0 : 8 - std::countr_zero(bits) / 8;
    out_.push_back(static_cast<char>(bytes));
    for (int i = 0; i < bytes; ++i) {
      out_.push_back(static_cast<char>(bits >> (56 - 8 * i)));
    }
  }
  // Small ones of either sign in one byte.
  void AddNumber(int64_t value) {
    auto rest = (static_cast<uint64_t>(value) << 1) ^
                static_cast<uint64_t>(value >> 63);
    for (; rest >= 0x80; rest >>= 7) {
      out_.push_back(static_cast<char>(rest | 0x80));
    }
    out_.push_back(static_cast<char>(rest));
  }
  template <typename Range>
  void AddRange(const Range& range) {
    AddNumber(static_cast<int64_t>(range.size()));
    for (const auto& element : range) Add(element);
  }

  void AddParts(const Leg& leg) { Add(leg.name()); }
  void AddParts(const std::string& text) {
    AddNumber(static_cast<int64_t>(text.size()));
    out_ += text;
  }
  template <typename T>
  void AddParts(const std::vector<T>& values) {
    AddRange(values);
  }
  template <typename T>
  void AddParts(const std::set<T>& values) {
    AddRange(values);
  }
  template <typename K, typename V>
  void AddParts(const std::map<K, V>& values) {
    AddRange(values);
  }
  template <typename A, typename B>
  void AddParts(const std::pair<A, B>& pair) {
    Add(pair.first);
    Add(pair.second);
  }
  template <typename T, size_t N>
  void AddParts(const std::array<T, N>& values) {
    for (const T& value : values) Add(value);
  }
  template <typename T>
  void AddParts(const std::optional<T>& value) {
    Add(value.has_value());
    if (value) Add(*value);
  }
  template <typename T>
  void AddParts(const T& object) {
    // The description serves the reader too; nothing is changed here.
    VisitFields(*this, const_cast<T&>(object));
  }

  std::string out_;
};

class Unpacker {
 public:
  // `bytes` have to stay.
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  // What was asked for was there.
  bool good() const { return good_; }
  // ... and nothing else is.
  bool done() const { return good_ && rest_.empty(); }

  template <typename T>
  void operator()(const char*, T& value) {
    Take(&value);
  }

  template <typename T>
  void Take(T* value) {
    if (!good_) return;
    if constexpr (std::is_same_v<T, double>) {
      *value = std::bit_cast<double>(TakeBits());
    } else if constexpr (std::is_same_v<T, bool>) {
      const int64_t number = TakeByte();
      good_ = good_ && number <= 1;
      *value = number == 1;
    } else if constexpr (std::is_enum_v<T>) {
      const int64_t number = TakeNumber();
      good_ = good_ && number >= 0 && number < CountOf(T{});
      if (good_) *value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      *value = static_cast<uint64_t>(TakeNumber());
    } else if constexpr (std::integral<T>) {
      const int64_t number = TakeNumber();
      good_ = good_ && std::in_range<T>(number);
      *value = static_cast<T>(number);
    } else {
      TakeParts(value);
    }
  }

 private:
  uint8_t TakeByte() {
    if (rest_.empty()) {
      good_ = false;
      return 0;
    }
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  uint64_t TakeBits() {
    const int bytes = TakeByte();
    good_ = good_ && bytes <= 8;
    uint64_t bits = 0;
    for (int i = 0; i < bytes && good_; ++i) {
      bits |= static_cast<uint64_t>(TakeByte()) << (56 - 8 * i);
    }
    return bits;
  }
  int64_t TakeNumber() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = TakeByte();
      number |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        return static_cast<int64_t>(number >> 1) ^
               -static_cast<int64_t>(number & 1);
      }
    }
    good_ = false;
    return 0;
  }
  // Of elements that take a byte each at least.
  size_t TakeCount() {
    const int64_t count = TakeNumber();
    good_ = good_ && count >= 0 && std::cmp_less_equal(count, rest_.size());
    return good_ ? static_cast<size_t>(count) : 0;
  }

  void TakeParts(Leg* leg) {
    std::string name;
    Take(&name);
    *leg = Leg(std::move(name));
  }
  void TakeParts(std::string* text) {
    const size_t size = TakeCount();
    *text = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  template <typename T>
  void TakeParts(std::vector<T>* values) {
    values->clear();
    // One by one: elements are larger here than there.
    for (size_t n = TakeCount(); n > 0 && good_; --n) {
      Take(&values->emplace_back());
    }
  }
  template <typename T>
  void TakeParts(std::set<T>* values) {
    values->clear();
    for (size_t n = TakeCount(); n > 0 && good_; --n) {
      T value;
      Take(&value);
      values->insert(std::move(value));
    }
  }
  template <typename K, typename V>
  void TakeParts(std::map<K, V>* values) {
    values->clear();
    for (size_t n = TakeCount(); n > 0 && good_; --n) {
      std::pair<K, V> entry;
      Take(&entry);
      values->insert(std::move(entry));
    }
  }
  template <typename A, typename B>
  void TakeParts(std::pair<A, B>* pair) {
    Take(&pair->first);
    Take(&pair->second);
  }
  template <typename T, size_t N>
  void TakeParts(std::array<T, N>* values) {
    for (T& value : *values) Take(&value);
  }
  template <typename T>
  void TakeParts(std::optional<T>* value) {
    bool there = false;
    Take(&there);
    value->reset();
    if (there) Take(&value->emplace());
  }
  template <typename T>
  void TakeParts(T* object) {
    VisitFields(*this, *object);
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_MEASURE_PACKED_H_
