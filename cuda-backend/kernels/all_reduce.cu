// Combination of the tensors of replicas whose devices share a GPU.
#include "numbers.cuh"

// Number of words of a table, so that the parameters of a launch stay below 4096 bytes.
#define WORDS 480

// The tensors of a launch. A tensor has the number of its packs of 16 bytes (0 if an address is no multiple of 16), that of its elements,
// the addresses of the operands of all replicas, and those of their results.
struct Table {
    Index of[WORDS];
};

// N elements that are read and written together.
template <typename T, unsigned N> struct alignas(N * sizeof(T)) Pack {
    T of[N];
};

// Combines pack `i` of all replicas. A thread reads all operands before it writes the results, which may be in their place.
template <typename T, unsigned N>
__device__ inline void combine(const Table &table, unsigned inputs, unsigned operands, unsigned replicas, unsigned divisor, Index i) {
    Pack<T, N> sum = ((const Pack<T, N> *)table.of[inputs])[i];
#pragma unroll 1
    for (unsigned k = 1; k < operands; k++) {
        Pack<T, N> next = ((const Pack<T, N> *)table.of[inputs + k])[i];
        for (unsigned e = 0; e < N; e++) sum.of[e] = add(sum.of[e], next.of[e]);
    }
    if (divisor > 1) {
        for (unsigned e = 0; e < N; e++) sum.of[e] = sum.of[e] / (T)divisor;
    }
#pragma unroll 1
    for (unsigned k = 0; k < replicas; k++) ((Pack<T, N> *)table.of[inputs + replicas + k])[i] = sum;
}

// Writes the sum of the first `operands` replicas, in their order, divided by `divisor`, to all replicas. The threads of a row of blocks
// share a tensor.
template <typename T>
__device__ void all_reduce(const Table &table, unsigned operands, unsigned replicas, unsigned divisor) {
    const unsigned N = 16 / sizeof(T);
    unsigned row = blockIdx.y * (2 + 2 * replicas), inputs = row + 2;
    Index packs = table.of[row], elements = table.of[row + 1];
    for (Index i = first_element(); i < packs; i += all_threads()) combine<T, N>(table, inputs, operands, replicas, divisor, i);
    for (Index i = packs * N + first_element(); i < elements; i += all_threads()) {
        combine<T, 1>(table, inputs, operands, replicas, divisor, i);
    }
}

#define ALL_REDUCE(dtype, T)                                                                                                               \
    extern "C" __global__ void all_reduce_##dtype(unsigned *fault, unsigned step, unsigned operands, unsigned replicas, unsigned divisor,  \
                                                  Table table) {                                                                           \
        GUARD;                                                                                                                             \
        all_reduce<T>(table, operands, replicas, divisor);                                                                                 \
    }
FOR_FLOATS(ALL_REDUCE)
ALL_REDUCE(i32, int)
ALL_REDUCE(i64, long long)
