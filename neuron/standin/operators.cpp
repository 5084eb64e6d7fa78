// Operators of the stand-in device: torch's CPU kernels on CPU tensors that share the device tensors' memory.
#include "standin.h"

#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <set>

namespace trncheck::standin {
namespace {

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kNeuron;
}

// A storage of `device` over the memory of `source`, which it keeps alive.
c10::Storage share(const c10::Storage& source, c10::Device device, c10::Allocator* allocator) {
  const auto bytes = static_cast<int64_t>(source.nbytes());
  struct Kept {
    c10::Storage source;
    int64_t counted;
  };
  // Results of CPU kernels are host memory that becomes the device's here, and so counts as such.
  auto* kept = new Kept{source, device.type() == kNeuron ? bytes : 0};
  count_memory(kept->counted);
  c10::DataPtr data(
      const_cast<void*>(source.data()),
      kept,
      [](void* context) {
        auto* kept = static_cast<Kept*>(context);
        count_memory(-kept->counted);
        delete kept;
      },
      device);
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/true);
}

at::Tensor view_of(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) {
    view._set_conj(true);
  }
  if (like.is_neg()) {
    view._set_neg(true);
  }
  return view;
}

// The tensors of one operator call on both sides. A tensor or storage that occurs twice has one counterpart, so that
// in-place operators, out= arguments and views come back as what they are.
class Bridge {
 public:
  std::optional<c10::Device> device; // of the first device tensor or argument

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!on_device(tensor)) {
      return tensor;
    }
    if (!device) {
      device = tensor.device();
    }
    for (const auto& [ours, host] : tensors_) {
      if (ours.is_same(tensor)) {
        return host;
      }
    }
    const auto storage = counterpart(tensor.storage(), c10::kCPU, c10::GetCPUAllocator());
    return tensors_.emplace_back(tensor, view_of(storage, tensor, c10::DispatchKey::CPU)).second;
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != c10::kCPU) {
      return tensor;
    }
    for (const auto& [ours, host] : tensors_) {
      if (host.is_same(tensor)) {
        return ours;
      }
    }
    const auto where = device && device->has_index() ? *device : c10::Device(kNeuron, current_device());
    return view_of(counterpart(tensor.storage(), where, allocator()), tensor, c10::DispatchKey::PrivateUse1);
  }

  // Gives out= tensors the shape, and where the CPU kernel has allocated memory also the values, of their counterparts.
  void settle() {
    for (const auto& [ours, host] : tensors_) {
      if (ours.sizes() == host.sizes() && ours.strides() == host.strides()) {
        continue;
      }
      at::native::resize_(ours, host.sizes(), std::nullopt);
      ours.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), ours.storage_offset());
      if (ours.storage().data() != host.storage().data() && host.numel()) {
        const auto bytes = host.storage().nbytes() - host.storage_offset() * host.itemsize();
        std::memcpy(ours.mutable_data_ptr(), host.const_data_ptr(), bytes);
      }
    }
  }

 private:
  c10::Storage counterpart(const c10::Storage& storage, c10::Device where, c10::Allocator* allocator) {
    for (const auto& [left, right] : storages_) {
      for (const auto& [from, to] : {std::pair(left, right), std::pair(right, left)}) {
        if (from.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
          return to;
        }
      }
    }
    return storages_.emplace_back(storage, share(storage, where, allocator)).second;
  }

  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_; // device, host
};

// --- which operators were executed

std::mutex g_names_lock;
std::set<std::string> g_executed, g_fallen_back, g_falling_back, g_denied;

void note(const std::string& name) {
  std::lock_guard<std::mutex> guard(g_names_lock);
  TORCH_CHECK_NOT_IMPLEMENTED(!g_denied.count(name), "stand-in: operator ", name, " is not implemented on this device");
  (g_falling_back.count(name) ? g_fallen_back : g_executed).insert(name);
}

std::vector<std::string> listed(const std::set<std::string>& names) {
  std::lock_guard<std::mutex> guard(g_names_lock);
  return {names.begin(), names.end()};
}

// --- every operator that has no kernel below

// Replaces an argument by what a CPU kernel takes. Returns whether it is a host tensor beside which no device tensor
// may stand; scalars may, as everywhere in torch.
bool lower(c10::IValue& value, const c10::Argument& argument, Bridge& bridge) {
  bool host = false;
  const auto take = [&](const at::Tensor& tensor) {
    host |= tensor.defined() && tensor.device().type() == c10::kCPU && tensor.dim() > 0;
    return bridge.to_host(tensor);
  };
  if (value.isTensor()) {
    value = take(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(take(tensor));
    }
    value = tensors;
  } else if (value.isOptionalTensorList()) {
    // Indices: torch takes those of a CPU for tensors of any device.
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor ? std::optional(bridge.to_host(*tensor)) : tensor);
    }
    value = tensors;
  } else if (value.isDevice() && value.toDevice().type() == kNeuron) {
    bridge.device = value.toDevice();
    value = c10::Device(c10::kCPU);
  } else if (value.isGenerator() && value.toGenerator().device().type() == kNeuron) {
    value = draw(value.toGenerator());
  } else if (value.isNone() && *argument.type() == *c10::OptionalType::create(c10::GeneratorType::get())) {
    value = draw(default_generator(-1));
  }
  return host;
}

void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  note(schema.name());
  Bridge bridge;
  bool host = false;
  const auto first = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    host |= lower((*stack)[first + i], schema.arguments()[i], bridge);
  }
  TORCH_CHECK(
      !(host && bridge.device),
      "stand-in: expected all tensors of ", schema.name(), " on one device, got ",
      bridge.device.value_or(c10::Device(kNeuron)), " and cpu");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  bridge.settle();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    if (value.isTensor()) {
      value = bridge.to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        tensors.push_back(bridge.to_device(tensor));
      }
      value = tensors;
    }
  }
}

// --- what the CPU's kernels cannot do: memory of this device

at::Tensor empty(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size),
      allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype),
      format);
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size),
      C10_AS_INTARRAYREF_SLOW(stride),
      allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  Bridge bridge;
  bridge.to_host(target).copy_(bridge.to_host(source));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::native::resize_(target, source.sizes(), std::nullopt);
  return copy_from(source, target, false);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor& set_storage_offset(
    at::Tensor& self,
    c10::Storage source,
    c10::SymInt offset,
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  if (stride.size() == size.size()) {
    impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  } else { // no strides given
    impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, c10::SymIntArrayRef(std::vector<c10::SymInt>{elements}), {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source.storage());
  impl->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  return self;
}

void record_stream(at::Tensor&, c10::Stream) {}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("record_stream", &record_stream);
}

// Torch resolves a lazily conjugated or negated tensor by a copy, which must not ask for that again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

// Autocast treats each operator as on CUDA, which the Neuron documentation promises too.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
  AT_FORALL_PROMOTE(PROMOTE)
}

} // namespace

at::Tensor host_alias(const at::Tensor& tensor) {
  return Bridge().to_host(tensor);
}

at::Tensor device_alias(const at::Tensor& tensor) {
  return Bridge().to_device(tensor);
}

std::vector<std::string> executed_operators() {
  return listed(g_executed);
}

std::vector<std::string> fallen_back_operators() {
  return listed(g_fallen_back);
}

void clear_operators() {
  std::lock_guard<std::mutex> guard(g_names_lock);
  g_executed.clear();
  g_fallen_back.clear();
}

void set_fallback_operators(std::vector<std::string> names) {
  std::lock_guard<std::mutex> guard(g_names_lock);
  g_falling_back = {names.begin(), names.end()};
}

void set_denied_operators(std::vector<std::string> names) {
  std::lock_guard<std::mutex> guard(g_names_lock);
  g_denied = {names.begin(), names.end()};
}

} // namespace trncheck::standin
