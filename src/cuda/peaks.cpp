#include <string_view>

#include "compact/cuda/device.h"

namespace compact::cuda {

namespace {

// What may follow the entry in the driver's name.
enum class Rest {
  Nothing,
  Variant,  // size of memory, socket, ...: all have the same peaks
};

struct Card {
  std::string_view name;  // without "NVIDIA" and "GeForce"
  DevicePeaks teraflops;
  Rest rest = Rest::Nothing;
};

// GeForce cards accumulate bf16 products in fp32 at half the rate of their tensor cores, which comes to twice
// that of fp32 without tensor cores.
constexpr DevicePeaks geforce(double fp32) { return {2 * fp32, fp32}; }

// NVIDIA's data sheets and architecture papers, without sparsity, at boost clock.
constexpr Card kCards[] = {
    {"A100", {312, 19.5}, Rest::Variant},  // A100-SXM4-80GB, A100 80GB PCIe, ...
    {"A800", {312, 19.5}, Rest::Variant},
    {"A30", {165, 10.3}},
    {"A40", {149.7, 37.4}},
    {"A10", {125, 31.2}},
    {"H100 80GB HBM3", {989.4, 66.9}},
    {"H100 PCIe", {756, 51}},
    {"H100 NVL", {835.5, 60}},
    {"GH200", {989.4, 66.9}, Rest::Variant},
    {"H200", {989.4, 66.9}},
    {"H200 NVL", {835.5, 60}},
    {"B200", {2250, 75}},
    {"L4", {121, 30.3}},
    {"L40", {181, 90.5}},
    {"L40S", {362, 91.6}},
    {"RTX A6000", {154.8, 38.7}},
    {"RTX 6000 Ada Generation", {364.2, 91.1}},
    {"RTX 3060", geforce(12.7)},
    {"RTX 3060 Ti", geforce(16.2)},
    {"RTX 3070", geforce(20.3)},
    {"RTX 3070 Ti", geforce(21.7)},
    {"RTX 3080", geforce(29.8)},
    {"RTX 3080 Ti", geforce(34.1)},
    {"RTX 3090", geforce(35.6)},
    {"RTX 3090 Ti", geforce(40.0)},
    {"RTX 4060", geforce(15.1)},
    {"RTX 4060 Ti", geforce(22.1)},
    {"RTX 4070", geforce(29.1)},
    {"RTX 4070 SUPER", geforce(35.5)},
    {"RTX 4070 Ti", geforce(40.1)},
    {"RTX 4070 Ti SUPER", geforce(44.1)},
    {"RTX 4080", geforce(48.7)},
    {"RTX 4080 SUPER", geforce(52.2)},
    {"RTX 4090", geforce(82.6)},
    {"RTX 5060", geforce(19.2)},
    {"RTX 5060 Ti", geforce(23.7)},
    {"RTX 5070", geforce(30.9)},
    {"RTX 5070 Ti", geforce(43.9)},
    {"RTX 5080", geforce(56.3)},
    {"RTX 5090", geforce(104.8)},
};

bool is_variant(std::string_view rest) {
  // A slice of a card has a part of its multiprocessors.
  return (rest.starts_with(' ') || rest.starts_with('-')) && rest.find("MIG") == std::string_view::npos;
}

}  // namespace

std::optional<DevicePeaks> device_peaks(const std::string& name) {
  std::string_view rest = name;
  for (const std::string_view maker : {"NVIDIA ", "GeForce "})
    if (rest.starts_with(maker)) rest.remove_prefix(maker.size());
  for (const Card& card : kCards) {
    if (!rest.starts_with(card.name)) continue;
    const std::string_view after = rest.substr(card.name.size());
    if (!after.empty() && !(card.rest == Rest::Variant && is_variant(after))) continue;
    return DevicePeaks{card.teraflops.bf16 * 1e12, card.teraflops.fp32 * 1e12};
  }
  return std::nullopt;
}

}  // namespace compact::cuda
