#include "cudnn_calls.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include <initializer_list>
#include <thread>
#include <vector>

extern "C" {
int cudnnBackendCreateDescriptor(int, void**);
int cudnnBackendDestroyDescriptor(void*);
int cudnnBackendSetAttribute(void*, int, int, int64_t, const void*);
int cudnnBackendGetAttribute(const void*, int, int, int64_t, int64_t*, void*);
int cudnnBackendFinalize(void*);
int cudnnBackendExecute(void*, void*, void*);
int cudnnBackendPopulateCudaGraph(void*, void*, void*, void*);
}

namespace {

// The numbers are those of cudnn_graph_v9.h.
constexpr int kInt64 = 3, kDescriptor = 15;
constexpr int32_t kFloat = 0, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11;

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

using Dims = std::vector<int64_t>;

// Builds one graph and destroys all that it made.
class Builder {
 public:
  ~Builder() {
    for (void* descriptor : made_) cudnnBackendDestroyDescriptor(descriptor);
  }

  void* make(int type) {
    void* descriptor = nullptr;
    cudnnBackendCreateDescriptor(type, &descriptor);
    made_.push_back(descriptor);
    return descriptor;
  }
  static void set(void* descriptor, int attribute, void* other) {
    cudnnBackendSetAttribute(descriptor, attribute, kDescriptor, 1, &other);
  }
  static void set(void* descriptor, int attribute, const Dims& numbers) {
    cudnnBackendSetAttribute(descriptor, attribute, kInt64, static_cast<int64_t>(numbers.size()), numbers.data());
  }
  static void set_enum(void* descriptor, int attribute, int type, int32_t value) {
    cudnnBackendSetAttribute(descriptor, attribute, type, 1, &value);
  }
  static void set_flag(void* descriptor, int attribute, bool value) {
    cudnnBackendSetAttribute(descriptor, attribute, 2, 1, &value);
  }

  void* tensor(const Dims& dims, int32_t type, bool is_virtual = false, bool by_value = false) {
    void* made = make(17);
    set_enum(made, 901, 1, type);
    set(made, 902, dims);
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    set(made, 903, strides);
    set(made, 906, Dims{next_uid_++});
    set(made, 900, Dims{16});
    set_flag(made, 907, is_virtual);
    set_flag(made, 908, by_value);
    cudnnBackendFinalize(made);
    return made;
  }
  void* scalar() { return tensor({1, 1, 1, 1}, kFloat, false, true); }

  void* pointwise(int mode, void* x, void* b, void* t, void* y, int64_t axis = -1) {
    void* parameters = make(0);
    set_enum(parameters, 0, 14, mode);
    set_enum(parameters, 1, 1, kFloat);
    if (axis >= 0) set(parameters, 9, Dims{axis});
    cudnnBackendFinalize(parameters);
    void* operation = make(13);
    set(operation, 750, parameters);
    set(operation, 751, x);
    if (b != nullptr) set(operation, 752, b);
    set(operation, 753, y);
    if (t != nullptr) set(operation, 758, t);
    cudnnBackendFinalize(operation);
    return operation;
  }
  void* matmul(void* a, void* b, void* c) {
    void* parameters = make(18);
    set_enum(parameters, 1500, 1, kFloat);
    cudnnBackendFinalize(parameters);
    void* operation = make(19);
    set(operation, 1520, a);
    set(operation, 1521, b);
    set(operation, 1522, c);
    set(operation, 1523, parameters);
    cudnnBackendFinalize(operation);
    return operation;
  }
  void* reduction(void* x, void* y) {
    void* operation = make(22);
    set(operation, 1610, x);
    set(operation, 1611, y);
    cudnnBackendFinalize(operation);
    return operation;
  }

  void* graph(const std::vector<void*>& operations) {
    void* made = make(15);
    cudnnBackendSetAttribute(made, 801, kDescriptor, static_cast<int64_t>(operations.size()), operations.data());
    cudnnBackendFinalize(made);
    return made;
  }
  void* heuristic_config(void* of_graph) {
    void* heuristics = make(4);
    set(heuristics, 201, of_graph);
    cudnnBackendFinalize(heuristics);
    void* configs[] = {make(3), make(3)};
    int64_t count = 0;
    cudnnBackendGetAttribute(heuristics, 202, kDescriptor, 2, &count, configs);
    return configs[0];
  }
  void* own_config(void* of_graph) {
    void* engine = make(2);
    set(engine, 1300, of_graph);
    set(engine, 1301, Dims{0});
    cudnnBackendFinalize(engine);
    void* config = make(3);
    set(config, 300, engine);
    cudnnBackendFinalize(config);
    return config;
  }
  // Outlives the builder.
  static void* plan(void* config) {
    void* made = nullptr;
    cudnnBackendCreateDescriptor(5, &made);
    if (config != nullptr) set(made, 401, config);
    cudnnBackendFinalize(made);
    return made;
  }

 private:
  std::vector<void*> made_;
  int64_t next_uid_ = 1;
};

// A convolution of two groups with bias and ReLU behind it.
void* convolution_plan() {
  Builder b;
  void* parameters = b.make(1);
  Builder::set_enum(parameters, 100, 1, kFloat);
  Builder::set_enum(parameters, 101, 7, 1);
  Builder::set(parameters, 106, Dims{2});
  for (int attribute : {103, 104, 105, 102})
    Builder::set(parameters, attribute, attribute == 103 ? Dims{2, 2} : Dims{1, 1});
  cudnnBackendFinalize(parameters);
  void* x = b.tensor({8, 64, 56, 56}, kHalf);
  void* w = b.tensor({128, 32, 3, 3}, kHalf);
  // What cuDNN refuses changes nothing.
  Builder::set(w, 902, Dims{1, 1, 1, 1});
  void* y = b.tensor({8, 128, 28, 28}, kFloat, true);
  void* with_bias = b.tensor({8, 128, 28, 28}, kFloat, true);
  void* out = b.tensor({8, 128, 28, 28}, kHalf);
  void* operation = b.make(10);
  Builder::set(operation, 702, parameters);
  Builder::set(operation, 704, x);
  Builder::set(operation, 703, w);
  Builder::set(operation, 705, y);
  const float one = 1, zero = 0;
  cudnnBackendSetAttribute(operation, 700, 4, 1, &one);
  cudnnBackendSetAttribute(operation, 701, 4, 1, &zero);
  cudnnBackendFinalize(operation);
  void* bias = b.pointwise(0, y, b.tensor({1, 128, 1, 1}, kHalf), nullptr, with_bias);
  void* relu = b.pointwise(100, with_bias, nullptr, nullptr, out);
  return Builder::plan(b.heuristic_config(b.graph({operation, bias, relu})));
}

// Two products around a softmax, with a causal mask: 32 heads for queries, 8 for keys.
void* attention_plan(int64_t queries) {
  Builder b;
  const int64_t keys = queries, batch = 2;
  const Dims scores = {batch, 32, queries, keys}, row = {batch, 32, queries, 1};
  void* q = b.tensor({batch, 32, queries, 64}, kBfloat16);
  void* k = b.tensor({batch, 8, 64, keys}, kBfloat16);
  void* v = b.tensor({batch, 8, keys, 64}, kBfloat16);
  void* o = b.tensor({batch, 32, queries, 64}, kBfloat16);
  void* s = b.tensor(scores, kFloat, true);
  void* scaled = b.tensor(scores, kFloat, true);
  void* rows = b.tensor(scores, kInt32, true);
  void* columns = b.tensor(scores, kInt32, true);
  void* visible = b.tensor(scores, kBoolean, true);
  void* masked = b.tensor(scores, kFloat, true);
  void* largest = b.tensor(row, kFloat, true);
  void* less = b.tensor(scores, kFloat, true);
  void* raised = b.tensor(scores, kFloat, true);
  void* sum = b.tensor(row, kFloat, true);
  void* weights = b.tensor(scores, kBfloat16, true);
  std::vector<void*> operations = {b.matmul(q, k, s),
                                   b.pointwise(1, s, b.scalar(), nullptr, scaled),
                                   b.pointwise(501, scaled, nullptr, nullptr, rows, 2),
                                   b.pointwise(501, scaled, nullptr, nullptr, columns, 3),
                                   b.pointwise(303, rows, columns, nullptr, visible),
                                   b.pointwise(601, scaled, b.scalar(), visible, masked),
                                   b.reduction(masked, largest),
                                   b.pointwise(9, masked, largest, nullptr, less),
                                   b.pointwise(13, less, nullptr, nullptr, raised),
                                   b.reduction(raised, sum),
                                   b.pointwise(6, raised, sum, nullptr, weights),
                                   b.matmul(weights, v, o)};
  return Builder::plan(b.heuristic_config(b.graph(operations)));
}

// The single operation of 9.13: one query, 513 keys.
void* sdpa_plan() {
  Builder b;
  void* operation = b.make(41);
  Builder::set(operation, 2800, b.tensor({1, 32, 1, 128}, kBfloat16));
  Builder::set(operation, 2801, b.tensor({1, 8, 513, 128}, kBfloat16));
  Builder::set(operation, 2802, b.tensor({1, 8, 513, 96}, kBfloat16));
  Builder::set(operation, 2803, b.tensor({1, 32, 1, 96}, kBfloat16));
  Builder::set(operation, 2805, b.scalar());
  cudnnBackendFinalize(operation);
  return Builder::plan(b.own_config(b.graph({operation})));
}

// Four batches through the same weights.
void* matmul_plan() {
  Builder b;
  void* operation =
      b.matmul(b.tensor({4, 16, 512}, kHalf), b.tensor({1, 512, 1024}, kHalf), b.tensor({4, 16, 1024}, kHalf));
  return Builder::plan(b.own_config(b.graph({operation})));
}

// A normalisation: nothing to count.
void* norm_plan() {
  Builder b;
  void* operation = b.make(29);
  Builder::set(operation, 2002, b.tensor({1, 512, 1, 1}, kHalf));
  cudnnBackendFinalize(operation);
  return Builder::plan(b.own_config(b.graph({operation})));
}

int execute(void* plan, uintptr_t handle = 1, bool overrides = false) {
  void* pack = nullptr;
  cudnnBackendCreateDescriptor(16, &pack);
  Builder::set(pack, 1000, Dims{1, 2});
  if (overrides) Builder::set(pack, 1011, Dims{4, 16, 8});
  cudnnBackendFinalize(pack);
  errno = 0;
  int status = cudnnBackendExecute(at(handle), plan, pack);
  const int seen = errno;
  cudnnBackendDestroyDescriptor(pack);
  errno = seen;
  return status;
}

void print_call(const char* what, int status) { printf("%s %d errno %d\n", what, status, errno); }

}  // namespace

namespace client {

int run_cudnn() {
  void* convolution = convolution_plan();
  void* attention = attention_plan(128);
  void* sdpa = sdpa_plan();
  void* matmul = matmul_plan();
  void* norm = norm_plan();
  print_call("convolution", execute(convolution));
  for (int i = 0; i < 3; ++i) print_call("attention", execute(attention));
  print_call("sdpa", execute(sdpa));
  print_call("matmul", execute(matmul));
  print_call("refused", execute(matmul, 0xBAD));
  print_call("other sizes", execute(matmul, 1, true));
  print_call("norm", execute(norm));
  print_call("graph", cudnnBackendPopulateCudaGraph(at(1), sdpa, nullptr, at(2)));
  cudnnBackendDestroyDescriptor(attention);
  void* unknown = Builder::plan(nullptr);  // likely where the other one was
  print_call("unknown", execute(unknown));
  for (void* plan : {convolution, sdpa, matmul, norm, unknown}) cudnnBackendDestroyDescriptor(plan);
  return 0;
}

// Four threads that build plans of their own, execute one of all, and destroy theirs.
int run_cudnn_threads() {
  void* shared = attention_plan(64);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([=] {
      for (int64_t i = 0; i < 25; ++i) {
        void* own = attention_plan(128 + t);
        execute(own);
        execute(shared);
        cudnnBackendDestroyDescriptor(own);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  cudnnBackendDestroyDescriptor(shared);
  return 0;
}

}  // namespace client
