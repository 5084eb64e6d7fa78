// The process group of the stand-in, gloo on the memory of device tensors, and what Python sees of the rest.
#include "standin.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

namespace trncheck::standin {
namespace {

using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;
using Work = c10::intrusive_ptr<c10d::Work>;

at::Tensor host(const at::Tensor& tensor) {
  return host_alias(tensor);
}

Tensors host(const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) {
    all.push_back(host_alias(tensor));
  }
  return all;
}

std::vector<Tensors> host(const std::vector<Tensors>& lists) {
  std::vector<Tensors> all;
  for (const auto& tensors : lists) {
    all.push_back(host(tensors));
  }
  return all;
}

// gloo has no PREMUL_SUM, with which FSDP averages: scales first, then sums. Whether Neuron has it is not known.
template <typename Options>
Options plain(const Options& options, Tensors& tensors, bool in_place) {
  auto changed = options;
  if (options.reduceOp.op_ != ReduceOp::PREMUL_SUM) {
    return changed;
  }
  const auto* factor = dynamic_cast<c10d::NCCLPreMulSumSupplement*>(options.reduceOp.supplement_.get());
  TORCH_CHECK(factor, "stand-in: PREMUL_SUM without a factor");
  for (auto& tensor : tensors) {
    const auto scaled = factor->tensor_factor.defined() ? tensor.mul(host(factor->tensor_factor).to(tensor.dtype()))
                                                        : tensor.mul(factor->double_factor);
    if (in_place) {
      tensor.copy_(scaled);
    } else {
      tensor = scaled;
    }
  }
  changed.reduceOp = ReduceOp::SUM;
  return changed;
}

// Hands every collective on to an inner backend. Memory is shared: results are in place, nothing is copied.
struct HostBackend final : c10d::Backend {
  HostBackend(c10::intrusive_ptr<Backend> inner, std::string name)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), name_(std::move(name)) {}

  const std::string getBackendName() const override {
    return name_;
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return inner_->getBackendOptions();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    inner_->setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {
    inner_->setSequenceNumberForGroup();
  }
  uint64_t getSequenceNumberForGroup() override {
    return inner_->getSequenceNumberForGroup();
  }
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    auto in = host(tensors);
    return inner_->broadcast(in, options);
  }
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto in = host(tensors);
    return inner_->allreduce(in, plain(options, in, true));
  }
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    auto in = host(tensors);
    return inner_->allreduce_coalesced(in, plain(options, in, true));
  }
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    auto in = host(tensors);
    return inner_->reduce(in, plain(options, in, true));
  }
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto out = host(outputs);
    auto in = host(inputs);
    return inner_->allgather(out, in, options);
  }
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    auto out = host(output), in = host(input);
    return inner_->_allgather_base(out, in, options);
  }
  Work allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto out = host(outputs), in = host(inputs);
    return inner_->allgather_into_tensor_coalesced(out, in, options);
  }
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    auto out = host(outputs);
    auto in = host(inputs);
    return inner_->gather(out, in, options);
  }
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    auto out = host(outputs);
    auto in = host(inputs);
    return inner_->scatter(out, in, options);
  }
  Work reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override {
    auto out = host(outputs);
    auto in = host(inputs);
    return inner_->reduce_scatter(out, in, options);
  }
  Work _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    auto out = host(output);
    Tensors in{host(input)};
    const auto changed = plain(options, in, false);
    return inner_->_reduce_scatter_base(out, in[0], changed);
  }
  Work reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    auto out = host(outputs), in = host(inputs);
    const auto changed = plain(options, in, false);
    return inner_->reduce_scatter_tensor_coalesced(out, in, changed);
  }
  Work alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    auto out = host(output), in = host(input);
    return inner_->alltoall_base(out, in, output_sizes, input_sizes, options);
  }
  Work send(Tensors& tensors, int to, int tag) override {
    auto in = host(tensors);
    return inner_->send(in, to, tag);
  }
  Work recv(Tensors& tensors, int from, int tag) override {
    auto out = host(tensors);
    return inner_->recv(out, from, tag);
  }
  Work recvAnysource(Tensors& tensors, int tag) override {
    auto out = host(tensors);
    return inner_->recvAnysource(out, tag);
  }
  Work barrier(const c10d::BarrierOptions&) override {
    return inner_->barrier(c10d::BarrierOptions()); // gloo refuses the ids of devices
  }

 private:
  c10::intrusive_ptr<Backend> inner_;
  std::string name_;
};

} // namespace
} // namespace trncheck::standin

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace trncheck::standin;
  register_hooks();
  m.doc() = "trncheck's stand-in for a Neuron device: it computes on the host and says nothing about Trainium.";
  m.def("device_count", [] { return static_cast<int>(device_count()); });
  m.def("set_device_count", &set_device_count);
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int index) { set_current_device(static_cast<c10::DeviceIndex>(index)); });
  m.def("in_bad_fork", &in_bad_fork);
  m.def("memory", &memory, "Bytes now, and at their peak.");
  m.def("reset_peak_memory", &reset_peak_memory);
  m.def("default_generator", [](int index) { return default_generator(static_cast<c10::DeviceIndex>(index)); });
  m.def("host_alias", &host_alias, "The CPU tensor over the memory of a device tensor.");
  m.def("device_alias", &device_alias, "The device tensor over the memory of a CPU tensor.");
  m.def("executed_operators", &executed_operators);
  m.def("fallen_back_operators", &fallen_back_operators);
  m.def("clear_operators", &clear_operators);
  m.def("set_fallback_operators", &set_fallback_operators);
  m.def("set_denied_operators", &set_denied_operators);
  m.def("wrap_backend", [](c10::intrusive_ptr<c10d::Backend> inner, std::string name) {
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<HostBackend>(std::move(inner), std::move(name)));
  });
}
