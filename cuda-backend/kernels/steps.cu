// Steps of optimizers, checks and random numbers: ops that are more than a function of each element.
#include "adam.cuh"

// 16 bytes of neighbouring elements, which are one access to memory.
template <typename T> struct __align__(16) Vector {
    static const unsigned lanes = 16 / sizeof(T);
    T of[lanes];
};

// A variable with its moments and its gradient, and the blocks that update it.
template <typename T> struct Segment {
    Index first_block, blocks, elements;
    const T *w, *m, *v, *gradient, *learning_rate;
    const long long *iterations;
    T *new_w, *new_m, *new_v;
};

// The largest number of variables of a launch. A kernel has at most 4 KiB of parameters.
#define MOST_SEGMENTS 40
template <typename T> struct Segments { Segment<T> of[MOST_SEGMENTS]; };

// Steps of Adam on `count` variables. Each block belongs to one variable, and its first thread computes what is the same for all elements.
// A thread updates a vector of elements at a time. Seven accesses of 16 bytes, each about 10 operations: it waits for memory.
template <typename T>
__device__ inline void adam_steps(const AdamAttributes &by, unsigned count, const Segments<T> &segments) {
    __shared__ T alpha;
    bool reached = threadIdx.x < count && blockIdx.x >= segments.of[threadIdx.x].first_block;
    const Segment<T> &own = segments.of[__syncthreads_count(reached) - 1];
    if (threadIdx.x == 0) alpha = Adam<T>::corrected(*own.learning_rate, *own.iterations, by);
    __syncthreads();
    Adam<T> adam = {by.rate_1, by.rate_2, by.epsilon, alpha};
    typedef Vector<T> V;
    Index thread = (blockIdx.x - own.first_block) * blockDim.x + threadIdx.x, threads = own.blocks * blockDim.x;
    Index vectors = own.elements / V::lanes;
    for (Index i = thread; i < vectors; i += threads) {
        V w = ((const V *)own.w)[i], m = ((const V *)own.m)[i], v = ((const V *)own.v)[i], gradient = ((const V *)own.gradient)[i];
#pragma unroll
        for (unsigned lane = 0; lane < V::lanes; lane++) adam.step(w.of[lane], m.of[lane], v.of[lane], gradient.of[lane]);
        ((V *)own.new_w)[i] = w;
        ((V *)own.new_m)[i] = m;
        ((V *)own.new_v)[i] = v;
    }
    for (Index i = vectors * V::lanes + thread; i < own.elements; i += threads) {
        T w = own.w[i], m = own.m[i], v = own.v[i];
        adam.step(w, m, v, own.gradient[i]);
        own.new_w[i] = w;
        own.new_m[i] = m;
        own.new_v[i] = v;
    }
}

#define ADAM_STEP(dtype, T)                                                                                                                \
    extern "C" __global__ void adam_step_##dtype(unsigned *fault, unsigned step, AdamAttributes by, unsigned count,                        \
                                                 const __grid_constant__ Segments<T> segments) {                                           \
        GUARD;                                                                                                                             \
        adam_steps(by, count, segments);                                                                                                   \
    }
ADAM_STEP(f32, float)
ADAM_STEP(f64, double)

// Refuses an element that is infinite or NaN: all bits of its exponent are set. W is an integer of the element's size.
template <class W> __device__ void check_numerics(unsigned *fault, unsigned step, Index elements, const W *x, W exponent) {
    GUARD;
    bool refused = false;
    for (Index i = first_element(); i < elements; i += all_threads()) refused |= (x[i] & exponent) == exponent;
    if (refused) refuse(fault, step);
}

#define CHECK_NUMERICS(dtype, W, exponent)                                                                                                 \
    extern "C" __global__ void check_numerics_##dtype(unsigned *fault, unsigned step, Index elements, const W *x) {                        \
        check_numerics<W>(fault, step, elements, x, exponent);                                                                             \
    }
CHECK_NUMERICS(f32, unsigned, 0x7f800000)
CHECK_NUMERICS(f64, Index, 0x7ff0000000000000)
CHECK_NUMERICS(f16, unsigned short, 0x7c00)
CHECK_NUMERICS(bf16, unsigned short, 0x7f80)

// Refuses an element that is false.
extern "C" __global__ void assert_bool(unsigned *fault, unsigned step, Index elements, const Bool *x) {
    GUARD;
    bool refused = false;
    for (Index i = first_element(); i < elements; i += all_threads()) refused |= x[i] == 0;
    if (refused) refuse(fault, step);
}

// Random numbers by Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). A thread computes blocks of four
// numbers. The state is the seed and the stream.
extern "C" __global__ void random_uniform_i64(unsigned *fault, unsigned step, Index elements, const Index *state, float *out) {
    GUARD;
    Index seed = state[0], stream = state[1];
    for (Index block = first_element(); block * 4 < elements; block += all_threads()) {
        unsigned key[2] = {(unsigned)seed, (unsigned)(seed >> 32)};
        unsigned counter[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)stream, (unsigned)(stream >> 32)};
        for (int round = 0; round < 10; round++) {
            Index a = (Index)0xd2511f53 * counter[0], b = (Index)0xcd9e8d57 * counter[2];
            counter[0] = (unsigned)(b >> 32) ^ counter[1] ^ key[0];
            counter[1] = (unsigned)b;
            counter[2] = (unsigned)(a >> 32) ^ counter[3] ^ key[1];
            counter[3] = (unsigned)a;
            key[0] += 0x9e3779b9;
            key[1] += 0xbb67ae85;
        }
        // A number is a multiple of 2⁻²⁴ below 1.
        for (int k = 0; k < 4; k++) {
            if (block * 4 + k < elements) out[block * 4 + k] = (counter[k] >> 8) * 0x1p-24f;
        }
    }
}
