#include "state_collection.h"

#include "compact/core/error.h"

namespace compact {

bool StateCollection::one_more(bool mine) {
  double more = mine ? 1 : 0;
  communicator_.sum({&more, 1});
  return more > 0;
}

std::span<const std::byte> StateCollection::bytes_of(const NamedTensor& part) {
  if (part.data.elements() == 0) return {};
  return {static_cast<const std::byte*>(host_.read(part.data)), static_cast<std::size_t>(part.data.bytes())};
}

const void* StateCollection::whole(const NamedTensor& part) {
  one_more(true);
  whole_ = communicator_.collect(bytes_of(part));
  const std::int64_t expected = part.shape().elements() * size_of(part.data.dtype);
  require(static_cast<std::int64_t>(whole_.size()) == expected, "StateCollection",
          "ranks do not have all rows");
  return whole_.data();
}

void StateCollection::serve(const std::vector<NamedTensor>& parts) {
  for (std::size_t i = 0; one_more(false); ++i) {
    require(i < parts.size(), "StateCollection", "more tensors are asked for than there are");
    communicator_.collect(bytes_of(parts[i]));
  }
}

void StateCollection::end() { one_more(false); }

}  // namespace compact
