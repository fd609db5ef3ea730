// Steps of optimizers, checks and random numbers: ops that are more than a function of each element.
#include "adam.cuh"

// A step of Adam. A thread updates elements of the variable w and of its moments m and v. The first thread of each block computes what is
// the same for all elements.
#define ADAM_STEP(dtype, T)                                                                                                                \
    extern "C" __global__ void adam_step_##dtype(unsigned *fault, unsigned step, Index elements, AdamAttributes by, const T *w,            \
                                                 const T *m, const T *v, const T *gradient, const T *learning_rate,                        \
                                                 const long long *iterations, T *new_w, T *new_m, T *new_v) {                              \
        GUARD;                                                                                                                             \
        __shared__ T alpha;                                                                                                                \
        if (threadIdx.x == 0) alpha = Adam<T>::corrected(*learning_rate, *iterations, by);                                                 \
        __syncthreads();                                                                                                                   \
        Adam<T> adam = {by.rate_1, by.rate_2, by.epsilon, alpha};                                                                          \
        for (Index i = first_element(); i < elements; i += all_threads()) {                                                                \
            T own_w = w[i], own_m = m[i], own_v = v[i];                                                                                    \
            adam.step(own_w, own_m, own_v, gradient[i]);                                                                                   \
            new_w[i] = own_w;                                                                                                              \
            new_m[i] = own_m;                                                                                                              \
            new_v[i] = own_v;                                                                                                              \
        }                                                                                                                                  \
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
