#include "src/trace/segments/safetensors_header.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/trace/format.h"

namespace ttrace::safetensors_header_test {
namespace {

std::string WithLength(uint64_t length, const std::string& json) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>((length >> (8 * i)) & 0xff);
  }
  return bytes + json;
}

Result<std::vector<SafetensorsEntry>> Decode(const std::string& beginning,
                                             int64_t data_bytes) {
  return DecodeSafetensorsHeader(
      std::as_bytes(std::span(beginning)),
      static_cast<int64_t>(beginning.size()) + data_bytes);
}

Result<std::vector<SafetensorsEntry>> DecodeJson(const std::string& json,
                                                 int64_t data_bytes) {
  return Decode(WithLength(json.size(), json), data_bytes);
}

TEST(SafetensorsHeader, RoundTrips) {
  const std::vector<SafetensorsEntry> entries = {
      {3, DType::kBF16, {2, 3}, 0, 12},
      {4, DType::kF64, {}, 12, 20},
      {9, DType::kBool, {0, 5}, 20, 20},
      {10, DType::kU8, {7}, 20, 27}};
  SafetensorsHeader header;
  for (const SafetensorsEntry& entry : entries) ASSERT_TRUE(header.Add(entry));
  const std::string bytes = header.Bytes();
  EXPECT_EQ(bytes.size(), static_cast<size_t>(kSegmentHeaderBytes));
  const auto decoded = Decode(bytes, 27);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(*decoded, entries);
}

TEST(SafetensorsHeader, BytesAreExactlyThese) {
  SafetensorsHeader header;
  header.Add({0, DType::kF32, {2, 3}, 0, 24});
  header.Add({1, DType::kI64, {}, 24, 32});
  const std::string bytes = header.Bytes();
  EXPECT_EQ(bytes.substr(0, 8), std::string("\xf8\xff\x03\0\0\0\0\0", 8));
  const std::string json =
      R"({"0":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("1":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})";
  EXPECT_EQ(bytes.substr(8, json.size()), json);
  EXPECT_EQ(bytes.find_first_not_of(' ', 8 + json.size()), std::string::npos);
}

TEST(SafetensorsHeader, StopsTakingEntriesBeforeItOverflows) {
  SafetensorsHeader header;
  int64_t count = 0;
  while (
      header.Add({count, DType::kF32, {1, 1, 1}, 4 * count, 4 * count + 4})) {
    ++count;
  }
  EXPECT_GT(count, 2500);
  EXPECT_EQ(header.Bytes().size(), static_cast<size_t>(kSegmentHeaderBytes));
  const auto decoded = Decode(header.Bytes(), 4 * count);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(static_cast<int64_t>(decoded->size()), count);
}

TEST(SafetensorsHeader, MetadataAndUnknownKeysAreIgnored) {
  const auto decoded = DecodeJson(
      R"({"__metadata__":{"a":"b"},)"
      R"("5":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":[]}})",
      2);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->size(), 1u);
}

TEST(SafetensorsHeader, BrokenRulesAreCorrupt) {
  const std::vector<std::pair<const char*, int64_t>> cases = {
      {"", 0},
      {"[]", 0},
      {" {}", 0},
      {"{", 0},
      {"{}", 1},  // bytes that nobody owns
      {R"({"0":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1},
      {R"({"0":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", 3},
      {R"({"0":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3},
      {R"({"0":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2},
      {R"({"0":{"dtype":"U8","shape":[2],"data_offsets":[0]}})", 2},
      {R"({"0":{"dtype":"U9","shape":[2],"data_offsets":[0,2]}})", 2},
      {R"({"0":{"dtype":"uint8","shape":[2],"data_offsets":[0,2]}})", 2},
      {R"({"0":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", 2},
      {R"({"0":{"shape":[2],"data_offsets":[0,2]}})", 2},
      {R"({"0":[]})", 0},
      {R"({"../x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2},
      {R"({"00":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2},
      {R"({"-1":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2},
      {R"({"0":{"dtype":"U8","shape":[4294967296,4294967296,4294967296],)"
       R"("data_offsets":[0,0]}})",
       0},
      {R"({"1":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("0":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2},
      {R"({"0":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("0":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2},
  };
  for (const auto& [json, data_bytes] : cases) {
    const auto decoded = DecodeJson(json, data_bytes);
    ASSERT_FALSE(decoded.ok()) << json;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << json;
  }
  EXPECT_FALSE(Decode(WithLength(~uint64_t{0}, "{}"), 0).ok());
  EXPECT_FALSE(Decode(WithLength(3, "{}"), 0).ok());
  EXPECT_FALSE(Decode("short", 0).ok());
}

}  // namespace
}  // namespace ttrace::safetensors_header_test
