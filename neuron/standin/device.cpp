// Memory, random numbers, streams and hooks of the stand-in device.
#include "standin.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace trncheck::standin {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kMostDevices = 127; // torch counts them in 8 bits
constexpr int64_t kStateBytes = 16;

c10::DeviceIndex g_count = 1;
thread_local c10::DeviceIndex g_current = 0;

void check_index(c10::DeviceIndex index) {
  TORCH_CHECK(
      index >= 0 && index < g_count, "stand-in: device neuron:", int(index), " does not exist, there are ", int(g_count));
}

c10::DeviceIndex or_current(c10::DeviceIndex index) {
  return index < 0 ? g_current : index;
}

// --- memory

std::mutex g_memory_lock;
int64_t g_bytes = 0;
int64_t g_peak_bytes = 0;

// A runtime that holds a device does not survive a fork.
std::atomic<bool> g_used = false;
std::atomic<bool> g_forked = false;

void use_device() {
  TORCH_CHECK(
      !g_forked, "stand-in: this process was forked from one that had used device neuron; use spawn, or fork before");
  if (!g_used.exchange(true)) {
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  }
}

struct Block {
  void* data;
  size_t bytes;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  count_memory(-static_cast<int64_t>(block->bytes));
  std::free(block->data);
  delete block;
}

// torch.accelerator's memory functions need a DeviceAllocator; a plain Allocator carries the rest.
struct HostAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kNeuron, g_current);
    use_device();
    if (bytes == 0) {
      return {nullptr, device};
    }
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, kAlignment, bytes) == 0, "stand-in: out of host memory for ", bytes, " bytes");
    count_memory(static_cast<int64_t>(bytes));
    return {data, new Block{data, bytes}, &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr; // a pointer alone does not lead to its Block
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const auto [now, peak] = memory();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* counter : {&stats.allocated_bytes[0], &stats.reserved_bytes[0], &stats.active_bytes[0]}) {
      counter->current = now;
      counter->peak = peak;
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    reset_peak_memory();
  }
};

HostAllocator g_allocator;
REGISTER_ALLOCATOR(kNeuron, &g_allocator)

// --- devices and streams: one stream, on which everything is done when the call returns

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kNeuron;
  }
  c10::Device getDevice() const override {
    return {kNeuron, g_current};
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      set_current_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) {
      g_current = device.index();
    }
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return g_count;
  }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, {kNeuron, or_current(device.index())});
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getStream(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override {
    return 0;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// --- random numbers

// The state is a seed and an offset, 8 bytes each: DTensor's tracker takes every state apart in this layout.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : GeneratorImpl({kNeuron, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  at::Generator next() {
    // One CPU stream per operator; the mixing keeps neighbouring seeds and offsets apart.
    uint64_t x = seed_ + 0x9E3779B97F4A7C15ull * (offset_ + 1);
    x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93ull;
    auto cpu = at::detail::createCPUGenerator(x ^ (x >> 32));
    offset_ += 4; // DTensor advances by multiples of 4
    return cpu;
  }
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override {
    offset_ = offset;
  }
  uint64_t get_offset() const override {
    return offset_;
  }
  uint64_t current_seed() const override {
    return seed_;
  }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(
        state.numel() == kStateBytes && state.itemsize() == 1,
        "stand-in: a state of random numbers has ", kStateBytes, " bytes, not ", state.numel() * state.itemsize());
    const auto* data = static_cast<const char*>(state.data());
    std::memcpy(&seed_, data, 8);
    std::memcpy(&offset_, data + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({kStateBytes}, at::kByte);
    auto* data = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(data, &seed_, 8);
    std::memcpy(data + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

 private:
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<Generator>(or_current(index));
}

// --- hooks

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return g_count > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override {
    return g_count;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return g_current;
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_current_device(index);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = g_current;
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? g_current : exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    return {kNeuron, g_current};
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetCPUAllocator();
  }
  // FSDP frees the storage of gathered parameters and grows it again through this.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto fresh = g_allocator.allocate(bytes);
    if (const auto kept = std::min(bytes, storage.nbytes())) {
      std::memcpy(fresh.get(), storage.data(), kept);
    }
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

} // namespace

void register_hooks() {
  static Hooks hooks; // torch keeps the pointer
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

c10::DeviceIndex device_count() {
  return g_count;
}

void set_device_count(int count) {
  TORCH_CHECK(count >= 0 && count <= kMostDevices, "stand-in: ", count, " devices; at most ", kMostDevices);
  g_count = static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex current_device() {
  return g_current;
}

void set_current_device(c10::DeviceIndex index) {
  check_index(index);
  g_current = index;
}

bool in_bad_fork() {
  return g_forked;
}

c10::Allocator* allocator() {
  return &g_allocator;
}

std::pair<int64_t, int64_t> memory() {
  std::lock_guard<std::mutex> guard(g_memory_lock);
  return {g_bytes, g_peak_bytes};
}

void reset_peak_memory() {
  std::lock_guard<std::mutex> guard(g_memory_lock);
  g_peak_bytes = g_bytes;
}

void count_memory(int64_t bytes) {
  std::lock_guard<std::mutex> guard(g_memory_lock);
  g_bytes += bytes;
  g_peak_bytes = std::max(g_peak_bytes, g_bytes);
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const std::vector<at::Generator> all = [] {
    std::vector<at::Generator> generators;
    for (int i = 0; i < kMostDevices; ++i) {
      generators.push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i)));
    }
    return generators;
  }();
  return all.at(or_current(index));
}

at::Generator draw(at::Generator generator) {
  std::lock_guard<std::mutex> guard(generator.mutex());
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->next();
}

} // namespace trncheck::standin
