// Names and numbers of the trace format. docs/trace_format.md describes it to
// the byte and has to change with this file.

#ifndef TTRACE_SRC_TRACE_FORMAT_H_
#define TTRACE_SRC_TRACE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

inline constexpr std::string_view kFormatName = "ttrace";
// Rises with every change that a reader of the version before would get wrong.
// New keys do not raise it: readers ignore keys that they do not know.
inline constexpr int kFormatVersion = 4;

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kMetaFile = "meta.json";
inline constexpr std::string_view kIndexFile = "index.jsonl";

// Bytes before the first tensor of a segment: the 8-byte length of the
// safetensors header and the header itself. Reserved when the segment is
// created, so that tensors never move; some 2,500 entries fit.
inline constexpr int64_t kSegmentHeaderBytes = 256 * 1024;
// A segment takes no further tensor that would make it longer than this. A
// tensor that is longer on its own gets a segment of its own.
inline constexpr int64_t kMaxSegmentBytes = 64 * 1024 * 1024;
inline constexpr int kMaxSegments = 1'000'000;
// Of a tensor in its segment. Only a segment of one tensor is longer than
// kMaxSegmentBytes.
inline constexpr int64_t kMaxOffset = (int64_t{1} << 44) - 1;

// Bounds that keep a hostile file from costing more than its own size.
inline constexpr size_t kMaxIndexLineBytes = 1024 * 1024;
inline constexpr size_t kMaxJsonFileBytes = 16 * 1024 * 1024;
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr int kMaxWorldSize = 1 << 20;
inline constexpr int kMaxMeshDims = 16;
inline constexpr int kMaxMeshViews = 16;
inline constexpr size_t kMaxComparedLegs = 4;
inline constexpr size_t kMaxComparedLegBytes = 32;
inline constexpr int kMaxRestarts = 100'000;

// "rank-00003.r0": the folder of rank 3's first start.
struct RankFolder {
  int rank = 0;
  int restart = 0;
};
std::string RankFolderName(RankFolder folder);
// Nothing unless `name` is exactly what RankFolderName gives.
std::optional<RankFolder> ParseRankFolderName(std::string_view name);

// "segment-00000.safetensors"
std::string SegmentFileName(int segment);

// `text` with no more than 120 bytes of it, for messages.
std::string Abridged(std::string_view text);

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_FORMAT_H_
