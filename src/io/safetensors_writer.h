#pragma once
#include <map>
#include <string>
#include <vector>

#include "compact/io/safetensors.h"
#include "hashed_file.h"

namespace compact {

/// write_safetensors, which also tells size and hash of what it wrote. `read` may be empty.
FileDigest write_hashed_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    const HostReader& read);

}  // namespace compact
