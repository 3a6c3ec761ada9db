#include "src/check/part_file.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "src/measure/packed.h"
#include "src/measure/sound_facts.h"
#include "src/trace/file.h"

namespace ttrace {

// Found by the packer, so not in the unnamed namespace.
template <typename A>
void VisitFields(A& field, GradientSquare& s) {
  field("sum", s.sum);
  field("failure", s.failure);
}

// All but what has a chunk of its own.
template <typename A>
void VisitFields(A& field, Measurements& m) {
  field("unequal_updates", m.unequal_updates);
  field("damage", m.damage);
  field("reference_damage", m.reference_damage);
  field("bytes_compared", m.bytes_compared);
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "ttrace part\n";
constexpr std::string_view kExtension = ".ttpart";
constexpr int64_t kChunkHead = 9;
constexpr int64_t kEndBytes = kChunkHead + 8;

enum class Chunk : char {
  kHead = 'H',
  kFailure = 'F',
  kFacts = 'T',
  kSquare = 'Q',
  kStep = 'S',
  kReferenceStep = 'R',
  kRest = 'O',
  kEnd = 'E',
};

std::string NumberBytes(uint64_t number) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(number >> 8 * i));
  return out;
}

uint64_t NumberAt(const char* bytes) {
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) {
    number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << 8 * i;
  }
  return number;
}

// A file that nobody sees before it is whole.
class PartWriter {
 public:
  static Result<PartWriter> Create(const std::string& path) {
    PartWriter writer;
    writer.path_ = path;
    // Of two machines with one process number the names differ too.
    writer.temporary_ =
        fmt::format("{}.{:08x}{:08x}.tmp", path, std::random_device()(),
                    std::random_device()());
    TTRACE_ASSIGN_OR_RETURN(writer.file_, File::Create(writer.temporary_));
    XXH3_64bits_reset(&writer.hash_);
    writer.Append(kMagic);
    return writer;
  }
  PartWriter(PartWriter&& other) = default;
  PartWriter& operator=(PartWriter&&) = delete;
  ~PartWriter() {
    std::error_code ignored;
    if (file_.is_open()) fs::remove(temporary_, ignored);
  }

  template <typename T>
  Status Add(Chunk kind, const T& value) {
    packed_.Clear();
    packed_.Add(value);
    AppendChunk(kind, packed_.bytes());
    constexpr size_t kBuffer = 4 << 20;
    return pending_.size() < kBuffer ? Status(Done{}) : Flush();
  }

  Status Finish() {
    AppendChunk(Chunk::kEnd, NumberBytes(XXH3_64bits_digest(&hash_)));
    TTRACE_RETURN_IF_ERROR(Flush());
    TTRACE_RETURN_IF_ERROR(file_.Sync());
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) return Error(ErrorCode::kIo, path_ + ": " + error.message());
    file_ = File();
    return Done{};
  }

 private:
  PartWriter() = default;

  void Append(std::string_view bytes) {
    XXH3_64bits_update(&hash_, bytes.data(), bytes.size());
    pending_ += bytes;
  }
  void AppendChunk(Chunk kind, std::string_view bytes) {
    Append(static_cast<char>(kind) + NumberBytes(bytes.size()));
    Append(bytes);
  }
  Status Flush() {
    TTRACE_RETURN_IF_ERROR(
        file_.WriteAt(std::as_bytes(std::span(pending_)), written_));
    written_ += static_cast<int64_t>(pending_.size());
    pending_.clear();
    return Done{};
  }

  std::string path_;
  std::string temporary_;
  File file_;
  int64_t written_ = 0;
  std::string pending_;
  XXH3_state_t hash_;
  Packer packed_;
};

bool IsPart(const File& file) {
  std::string start(kMagic.size(), '\0');
  const auto got = file.ReadAt(std::as_writable_bytes(std::span(start)), 0);
  return got.ok() && *got == start.size() && start == kMagic;
}

// Somebody's file is not overwritten, whatever was typed.
Status MayReplace(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return Done{};
  const auto there = File::Open(path, Links::kFollow);
  if (there.ok() && IsPart(*there)) return Done{};
  return Error(ErrorCode::kInvalidArgument,
               "'" + path +
                   "' is there and is no part of a check: it is not "
                   "replaced");
}

Result<PartWriter> Begin(const std::string& path, const PartHead& head) {
  TTRACE_RETURN_IF_ERROR(MayReplace(path));
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) {
    return Error(ErrorCode::kIo, folder.string() + ": " + error.message());
  }
  TTRACE_ASSIGN_OR_RETURN(PartWriter writer, PartWriter::Create(path));
  TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kHead, head));
  return writer;
}

Error Cut() {
  return Error(ErrorCode::kCorrupt, "is cut: it was not written to its end");
}
Error Damaged() {
  return Error(ErrorCode::kCorrupt,
               "is damaged: its bytes are not those that were written");
}

// The chunks of a part one after the other.
class PartReader {
 public:
  static Result<PartReader> Open(const std::string& path) {
    TTRACE_ASSIGN_OR_RETURN(File file, File::Open(path, Links::kFollow));
    TTRACE_ASSIGN_OR_RETURN(const int64_t size, file.Size());
    if (!IsPart(file)) {
      return Error(ErrorCode::kInvalidArgument,
                   "is no part of a check: `ttrace check --part` writes those");
    }
    return PartReader(std::move(file), size);
  }

  // Whether the end is there. Nothing is said of what lies before it.
  Result<bool> HasEnd() const {
    if (size_ < static_cast<int64_t>(kMagic.size()) + kEndBytes) return false;
    std::string end(kEndBytes, '\0');
    TTRACE_RETURN_IF_ERROR(ReadAt(size_ - kEndBytes, &end));
    return end.substr(0, kChunkHead) ==
           static_cast<char>(Chunk::kEnd) + NumberBytes(8);
  }

  // The next chunk, which `bytes` become. Fails with kCorrupt for one that does
  // not fit in the file.
  Result<Chunk> Next(std::string* bytes) {
    std::string head(kChunkHead, '\0');
    if (size_ - position_ < kChunkHead) return Cut();
    TTRACE_RETURN_IF_ERROR(ReadAt(position_, &head));
    const uint64_t length = NumberAt(head.data() + 1);
    if (std::cmp_greater(length, size_ - position_ - kChunkHead)) return Cut();
    bytes->resize(static_cast<size_t>(length));
    TTRACE_RETURN_IF_ERROR(ReadAt(position_ + kChunkHead, bytes));
    position_ += kChunkHead + static_cast<int64_t>(length);
    const auto kind = static_cast<Chunk>(head.front());
    if (kind == Chunk::kEnd) {
      const bool same = bytes->size() == 8 && position_ == size_ &&
                        NumberAt(bytes->data()) == XXH3_64bits_digest(&hash_);
      if (!same) return Damaged();
      return kind;
    }
    XXH3_64bits_update(&hash_, head.data(), head.size());
    XXH3_64bits_update(&hash_, bytes->data(), bytes->size());
    return kind;
  }

 private:
  PartReader(File file, int64_t size) : file_(std::move(file)), size_(size) {
    XXH3_64bits_reset(&hash_);
    XXH3_64bits_update(&hash_, kMagic.data(), kMagic.size());
  }

  Status ReadAt(int64_t offset, std::string* out) const {
    TTRACE_ASSIGN_OR_RETURN(
        const size_t got,
        file_.ReadAt(std::as_writable_bytes(std::span(*out)), offset));
    if (got < out->size()) return Cut();
    return Done{};
  }

  File file_;
  int64_t size_;
  int64_t position_ = static_cast<int64_t>(kMagic.size());
  XXH3_state_t hash_;
};

template <typename T>
bool Unpack(const std::string& bytes, T* value) {
  Unpacker unpacker(bytes);
  unpacker.Take(value);
  return unpacker.done();
}

// Null: there is no such value.
template <typename T>
std::unique_ptr<T> Unpacked(const std::string& bytes) {
  auto value = std::make_unique<T>();
  return Unpack(bytes, value.get()) ? std::move(value) : nullptr;
}

// False: no chunk of this version.
bool Take(Chunk kind, const std::string& bytes, Measurements* out) {
  switch (kind) {
    case Chunk::kFacts: {
      const auto facts = Unpacked<TensorFacts>(bytes);
      if (facts == nullptr || !IsSound(*facts)) return false;
      out->facts.push_back(*facts);
      return true;
    }
    case Chunk::kSquare: {
      const auto square = Unpacked<std::pair<TensorId, GradientSquare>>(bytes);
      if (square != nullptr) out->squares.insert(*square);
      return square != nullptr;
    }
    case Chunk::kStep:
    case Chunk::kReferenceStep: {
      const auto step = Unpacked<ReplayedStep>(bytes);
      if (step == nullptr) return false;
      ReplayedSteps& steps =
          kind == Chunk::kStep ? out->steps : out->reference_steps;
      const StepOfParameter key = step->step;
      steps.emplace(key, std::move(*step));
      return true;
    }
    case Chunk::kRest:
      return Unpack(bytes, out);
    case Chunk::kHead:
    case Chunk::kFailure:
    case Chunk::kEnd:
      return false;
  }
  return false;
}

// The first fields of a head, which every version has.
struct AnyHead {
  int format = 0;
  std::string version;
};

std::optional<AnyHead> ReadAnyHead(const std::string& bytes) {
  // Whatever follows, the reader is not asked whether that is all.
  AnyHead head;
  Unpacker unpacker(bytes);
  unpacker.Take(&head.format);
  unpacker.Take(&head.version);
  if (!unpacker.good()) return std::nullopt;
  return head;
}

}  // namespace

std::string PartPath(const std::string& out, const Share& share) {
  std::error_code ignored;
  if (!out.ends_with('/') && !fs::is_directory(out, ignored)) return out;
  return (fs::path(out) / fmt::format("part-{:05}-of-{:05}{}", share.part,
                                      share.of, kExtension))
      .string();
}

Result<std::vector<std::string>> FindParts(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector{path};
  std::vector<std::string> parts;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    // Others are ours but not whole yet, or not ours.
    if (it->path().extension() == kExtension) {
      parts.push_back(it->path().string());
    }
  }
  if (error) return Error(ErrorCode::kIo, path + ": " + error.message());
  if (parts.empty()) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("'{}': no part of a check ({}) lies there", path,
                             kExtension));
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

Status WritePart(const std::string& path, const PartHead& head,
                 Measurements* measured) {
  TTRACE_ASSIGN_OR_RETURN(PartWriter writer, Begin(path, head));
  for (size_t i = 0; i < measured->facts.size(); ++i) {
    TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kFacts, measured->facts[i]));
    measured->facts.Forget(i);
  }
  for (const auto& square : measured->squares) {
    TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kSquare, square));
  }
  for (const auto& [key, step] : measured->steps) {
    TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kStep, step));
  }
  for (const auto& [key, step] : measured->reference_steps) {
    TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kReferenceStep, step));
  }
  TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kRest, *measured));
  return writer.Finish();
}

Status WriteFailedPart(const std::string& path, const PartHead& head,
                       const std::string& failure) {
  TTRACE_ASSIGN_OR_RETURN(PartWriter writer, Begin(path, head));
  TTRACE_RETURN_IF_ERROR(writer.Add(Chunk::kFailure, failure));
  return writer.Finish();
}

Result<PartSummary> ReadPartSummary(const std::string& path) {
  auto opened = PartReader::Open(path);
  if (!opened.ok()) return opened.error();
  PartReader reader = *std::move(opened);
  PartSummary out;
  out.path = path;
  std::string bytes;
  const auto first = reader.Next(&bytes);
  if (!first.ok()) {
    if (first.error().code() != ErrorCode::kCorrupt) return first.error();
    out.wrong = first.error().message();
    out.head.share.part = 0;
    return out;
  }
  const auto any = ReadAnyHead(bytes);
  if (*first != Chunk::kHead || !any) {
    out.wrong = Damaged().message();
    out.head.share.part = 0;
    return out;
  }
  out.head.format = any->format;
  out.head.version = any->version;
  if (any->format != kPartFormat || any->version != kVersion) {
    out.head.share.part = 0;
    out.wrong = fmt::format(
        "was measured by ttrace {} (part format {}), this "
        "is {} ({})",
        any->version, any->format, kVersion, kPartFormat);
  }
  PartHead head;
  if (any->format == kPartFormat) {
    if (!Unpack(bytes, &head) || head.share.part < 1 ||
        head.share.of < head.share.part || head.share.of > kMostParts) {
      out.wrong = Damaged().message();
      out.head.share.part = 0;
      return out;
    }
    out.head = std::move(head);
  }
  if (!out.wrong.empty()) return out;
  TTRACE_ASSIGN_OR_RETURN(const bool ended, reader.HasEnd());
  if (!ended) {
    out.wrong = Cut().message();
    return out;
  }
  const auto second = reader.Next(&bytes);
  std::string failure;
  if (second.ok() && *second == Chunk::kFailure && Unpack(bytes, &failure)) {
    out.wrong = "failed: " + failure;
  }
  return out;
}

Result<Measurements> ReadPart(const PartSummary& part) {
  auto opened = PartReader::Open(part.path);
  if (!opened.ok()) return opened.error();
  PartReader reader = *std::move(opened);
  Measurements out;
  std::string bytes;
  TTRACE_RETURN_IF_ERROR(reader.Next(&bytes));  // the head
  for (;;) {
    TTRACE_ASSIGN_OR_RETURN(const Chunk kind, reader.Next(&bytes));
    if (kind == Chunk::kEnd) return out;
    if (!Take(kind, bytes, &out)) return Damaged();
  }
}

}  // namespace ttrace
