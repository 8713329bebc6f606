#include "compact/train/cuda_device.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "compact/core/error.h"
#include "compact/dist/launcher.h"
#include "compact/memory/ledger.h"
#include "compact/train/machine.h"
#include "kernels/attention_cuda.h"

namespace compact {

namespace {
/// What the driver takes beside the arena once the run has started: modules, cuBLASLt's kernels, the graph.
constexpr std::int64_t kBesideArena = std::int64_t{768} << 20;

std::unique_ptr<cuda::Queue> queue_on(const CudaConfig& c, int card) {
  return std::make_unique<cuda::Queue>(cuda::QueueOptions{card, c.graph, c.sync_checks, c.tf32});
}

/// What the ranks of a machine have found there.
struct CardsOfMachine {
  int ranks = 0, without = 0, shown = 0;  // shown: cards, to the rank that sees the most
  bool failed = false;                    // a rank has an error of its own to tell
  std::set<std::string> taken;            // bus ids
};
constexpr const char *kNoCard = "none", *kFailed = "failed";

/// `bus`: of the rank's card, kNoCard, or kFailed where it could not be looked at.
std::map<std::string, CardsOfMachine> cards_by_machine(Communicator& ranks, const std::string& bus,
                                                       int shown) {
  std::map<std::string, CardsOfMachine> machines;
  // No word of these has a blank in it.
  for (const std::string& text : ranks.gather_texts(fmt::format("{} {} {}", host_name(), bus, shown))) {
    std::istringstream words(text);
    std::string name, card;
    int count = 0;
    words >> name >> card >> count;
    CardsOfMachine& machine = machines[name];
    ++machine.ranks;
    machine.shown = std::max(machine.shown, count);
    if (card == kNoCard)
      ++machine.without;
    else if (card == kFailed)
      machine.failed = true;
    else
      machine.taken.insert(card);
  }
  return machines;
}
}  // namespace

int choose_card(Communicator& ranks, int first) {
  int shown = 0, card = first;
  std::string bus = kNoCard;
  std::exception_ptr error;
  try {
    shown = cuda::device_count();
    // One that is shown alone is the rank's own; device_info says what is wrong with `first` then.
    if (shown > 1) card = first + ranks.place().local_rank;
    if (card < shown || card == first) bus = cuda::device_info(card).pci_bus;
  } catch (const std::runtime_error&) {
    error = std::current_exception();
    bus = kFailed;
  }
  const std::map<std::string, CardsOfMachine> machines = cards_by_machine(ranks, bus, shown);
  if (error) std::rethrow_exception(error);
  for (const auto& [name, m] : machines) {
    const auto distinct = static_cast<int>(m.taken.size());
    if (m.failed || (m.without == 0 && distinct == m.ranks)) continue;
    const int usable = std::max(distinct, m.shown - first);
    input_error(
        "device \"cuda\": machine {} has {} ranks and {} CUDA device{}{}, and every rank needs one of its "
        "own; start at most {} there (mpirun --map-by ppr:{}:node, srun --ntasks-per-node={}), or let the "
        "launcher show each rank another card",
        name, m.ranks, usable, usable == 1 ? "" : "s",
        first == 0 ? "" : fmt::format(" from cuda.device {} on", first), usable, usable, usable);
  }
  return card;
}

std::unique_ptr<cuda::Queue> open_queue(const RunConfig& run) {
  if (run.device != "cuda") return nullptr;
  return queue_on(run.cuda, static_cast<int>(run.cuda.device));
}

std::unique_ptr<cuda::Queue> open_queue(const RunConfig& run, Communicator& ranks) {
  if (run.device != "cuda" || ranks.size() == 1) return open_queue(run);
  return queue_on(run.cuda, choose_card(ranks, static_cast<int>(run.cuda.device)));
}

std::unique_ptr<cuda::Queue> open_queue(const std::string& device) {
  RunConfig run;
  run.device = device;
  return open_queue(run);
}

void check_cuda_computes(const ModelConfig& model, const std::string& where) {
  if (model.head_width() > cuda::kMostHeadWidth)
    input_error(
        "{}: the model's heads are {} wide (hidden_size / num_attention_heads) and the CUDA kernels take at "
        "most {}; use device \"cpu\"",
        where, model.head_width(), cuda::kMostHeadWidth);
}

void require_memory(cuda::Queue* queue, std::int64_t bytes, const std::string& table) {
  if (queue == nullptr) return require_available(bytes, table);
  const cuda::DeviceInfo info = cuda::device_info(queue->options().device);
  const std::int64_t room = std::max<std::int64_t>(0, info.free_memory - kBesideArena);
  if (bytes <= room) return;
  run_error(
      "not enough memory on {}: the run needs {} and {} of {} are free, of which the driver takes up to {} "
      "for its "
      "own. It needs\n{}Less is needed with memory.preset \"block\", a smaller batch.micro_batch, or "
      "optimizer.name "
      "\"compact\"; `compact plan --fit {}` finds the fastest settings that fit.",
      info.name, human_bytes(bytes), human_bytes(info.free_memory), human_bytes(info.memory),
      human_bytes(kBesideArena), table, room);
}

}  // namespace compact
