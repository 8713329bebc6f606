#pragma once

namespace compact::cuda {

/// True where this build has code for the current device, or PTX that its driver has compiled for it.
bool has_code_for_device();

}  // namespace compact::cuda
