#include "src/run/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/format.h"

namespace ttrace {

Result<FolderLock> FolderLock::Take(const std::string& folder) {
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FolderLock(-1);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return FolderLock(descriptor);
  const int error = errno;
  close(descriptor);
  if (error != EWOULDBLOCK) return FolderLock(-1);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is in use: another ttrace is writing there. "
                           "Wait for it, or choose another folder",
                           Printable(folder)));
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool MayBeLocked(const std::string& folder) {
  const Result<FolderLock> lock = FolderLock::Take(folder);
  return !lock.ok() || !lock->held();
}

}  // namespace ttrace
