// What the parts of the stand-in share.
//
// Device "neuron" (PrivateUse1) with host memory for its own: an operator runs torch's CPU kernel on CPU tensors that
// share the memory of the device tensors. Nothing here says anything about Trainium.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trncheck::standin {

constexpr auto kNeuron = c10::DeviceType::PrivateUse1;

// --- device.cpp
void register_hooks();
c10::DeviceIndex device_count();
void set_device_count(int count);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index); // refuses an index that does not exist
bool in_bad_fork(); // whether a parent had used the device before it forked this process

c10::Allocator* allocator();
std::pair<int64_t, int64_t> memory(); // bytes of this process now and at their peak
void reset_peak_memory();
void count_memory(int64_t bytes); // memory of the device that another allocator holds

const at::Generator& default_generator(c10::DeviceIndex index); // -1: of the current device
at::Generator draw(at::Generator generator); // a CPU generator for the next operator

// --- operators.cpp
at::Tensor host_alias(const at::Tensor& tensor);   // CPU tensor over the memory of a device tensor
at::Tensor device_alias(const at::Tensor& tensor); // device tensor over the memory of a CPU tensor

std::vector<std::string> executed_operators();
std::vector<std::string> fallen_back_operators();
void clear_operators();
void set_fallback_operators(std::vector<std::string> names); // reported as run on the CPU
void set_denied_operators(std::vector<std::string> names);   // refused, as a device without them does

} // namespace trncheck::standin
