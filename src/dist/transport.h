#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compact/dist/communicator.h"

namespace compact {

/// Bytes to or from one other rank.
struct Message {
  int peer = 0;
  void* data = nullptr;
  std::int64_t bytes = 0;
};

/// How bytes get from rank to rank; HostCommunicator makes everything else of it. Calls come from one thread
/// at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual RankPlace place() const = 0;
  /// Sends and receives; between two ranks messages match in the order given, over all calls. Returns when
  /// all are done. Ends the run by `fail` where that takes longer than the patience, with the ranks missing.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives) = 0;
  virtual void set_patience(Patience patience) = 0;
  [[noreturn]] virtual void fail(int code, const std::string& text) = 0;
};

/// Ranks that talk through `transport`, tensors in host memory.
std::unique_ptr<Communicator> make_host_communicator(std::unique_ptr<Transport> transport);

}  // namespace compact
