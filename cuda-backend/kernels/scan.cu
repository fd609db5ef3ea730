// Cumulative sums and products along one axis. Each lane is accumulated in order, by one thread.
#include "numbers.cuh"
#include "teams.cuh"

// The number of threads of a block that computes one lane, and the number of elements that it brings into shared memory at a time.
#define THREADS 256
#define PIECE 1024
#define WARP 32

template <typename T> struct Sum {
    __device__ static T start() { return 0; }
    __device__ static T both(T a, T b) { return add(a, b); }
};
template <typename T> struct Product {
    __device__ static T start() { return 1; }
    __device__ static T both(T a, T b) { return mul(a, b); }
};

// The form of a scan, as in the op's attributes.
struct Form {
    unsigned exclusive;
    unsigned reverse;
};

// Lane `number`, in the order in which it is accumulated. A reversed lane begins with its last element, and its stride is negative.
__device__ inline Lane ordered(const Lanes &lanes, Index number, const Form &form) {
    Lane own = lane(lanes, number);
    if (form.reverse) own = {own.at(own.extent - 1), 0 - own.stride, own.extent};
    return own;
}

// Adds `x` to `total`, and returns what stands at the position of `x`.
template <typename Rule, typename T>
__device__ inline T accumulate(T &total, T x, const Form &form) {
    T before = total;
    total = Rule::both(total, x);
    return form.exclusive ? before : total;
}

// A thread computes a lane. x and y may be the same.
template <typename Rule, typename T>
__device__ inline void scan(const T *x, T *y, const Lanes &lanes, const Form &form) {
    for (Index number = first_element(); number < lanes.count; number += all_threads()) {
        Lane own = ordered(lanes, number, form);
        T total = Rule::start();
#pragma unroll 1
        for (Index turn = 0; turn < own.extent; turn++) {
            Index at = own.at(turn);
            y[at] = accumulate<Rule>(total, x[at], form);
        }
    }
}

// A block computes a lane. Its threads move the elements, and the first one accumulates them in shared memory.
template <typename Rule, typename T>
__device__ inline void scan_long(const T *x, T *y, const Lanes &lanes, const Form &form) {
    __shared__ T piece[PIECE];
    for (Index number = blockIdx.x; number < lanes.count; number += gridDim.x) {
        Lane own = ordered(lanes, number, form);
        T total = Rule::start();
        for (Index first = 0; first < own.extent; first += PIECE) {
            unsigned count = own.extent - first < PIECE ? (unsigned)(own.extent - first) : PIECE;
#pragma unroll 1
            for (unsigned i = threadIdx.x; i < count; i += THREADS) piece[i] = x[own.at(first + i)];
            __syncthreads();
            if (threadIdx.x == 0) {
#pragma unroll 4
                for (unsigned i = 0; i < count; i++) piece[i] = accumulate<Rule>(total, piece[i], form);
            }
            __syncthreads();
            // A thread reads the places that it writes next, so no barrier is needed before the next piece.
#pragma unroll 1
            for (unsigned i = threadIdx.x; i < count; i += THREADS) y[own.at(first + i)] = piece[i];
        }
    }
}

// The sum of the values of all earlier threads of the block. Adds the values of all threads to `total`.
template <typename T>
__device__ inline T earlier(T value, T &total) {
    __shared__ T warps[THREADS / WARP];
    T sum = value;
#pragma unroll 1
    for (unsigned distance = 1; distance < WARP; distance *= 2) {
        T other = __shfl_up_sync(~0u, sum, distance);
        if (threadIdx.x % WARP >= distance) sum = add(other, sum);
    }
    if (threadIdx.x % WARP == WARP - 1) warps[threadIdx.x / WARP] = sum;
    __syncthreads();
    T before = total;
#pragma unroll 1
    for (unsigned warp = 0; warp < THREADS / WARP; warp++) {
        if (warp == threadIdx.x / WARP) before = total;
        total = add(total, warps[warp]);
    }
    T own = __shfl_up_sync(~0u, sum, 1);
    return threadIdx.x % WARP == 0 ? before : add(before, own);
}

// A block computes the sums of a lane together, in an order of their own, for devices that allow it. It moves 8 bytes of f32 for about 10
// instructions. A GPU is full with as many lanes as it has places for blocks.
template <typename T>
__device__ inline void sum_together(const T *x, T *y, const Lanes &lanes, const Form &form) {
    __shared__ T piece[PIECE];
    const unsigned share = PIECE / THREADS;
    for (Index number = blockIdx.x; number < lanes.count; number += gridDim.x) {
        Lane own = ordered(lanes, number, form);
        T total = 0;
        for (Index first = 0; first < own.extent; first += PIECE) {
#pragma unroll
            for (unsigned i = threadIdx.x; i < PIECE; i += THREADS) piece[i] = first + i < own.extent ? x[own.at(first + i)] : 0;
            __syncthreads();
            T sum = 0, *part = piece + threadIdx.x * share;
#pragma unroll
            for (unsigned k = 0; k < share; k++) sum = add(sum, part[k]);
            T before = earlier(sum, total);
#pragma unroll
            for (unsigned k = 0; k < share; k++) part[k] = accumulate<Sum<T>>(before, part[k], form);
            __syncthreads();
            // A thread reads the places that it writes next, so no barrier is needed before the next piece.
#pragma unroll
            for (unsigned i = threadIdx.x; i < PIECE; i += THREADS) {
                if (first + i < own.extent) y[own.at(first + i)] = piece[i];
            }
        }
    }
}

#define SUM_TOGETHER(dtype, T)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) cumsum_together_##dtype(                                                         \
        unsigned *fault, unsigned step, const T *x, T *y, Index count, Index stride, unsigned extent, Form form) {                         \
        GUARD;                                                                                                                             \
        sum_together(x, y, Lanes{count, stride, extent}, form);                                                                            \
    }
SUM_TOGETHER(f32, float)
SUM_TOGETHER(i32, int)
SUM_TOGETHER(i64, long long)

#define SCAN(dtype, T, op, Rule)                                                                                                           \
    extern "C" __global__ void op##_##dtype(unsigned *fault, unsigned step, const T *x, T *y, Index count, Index stride, unsigned extent,  \
                                            Form form) {                                                                                   \
        GUARD;                                                                                                                             \
        scan<Rule<T>>(x, y, Lanes{count, stride, extent}, form);                                                                           \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                                                  \
        op##_long_##dtype(unsigned *fault, unsigned step, const T *x, T *y, Index count, Index stride, unsigned extent, Form form) {       \
        GUARD;                                                                                                                             \
        scan_long<Rule<T>>(x, y, Lanes{count, stride, extent}, form);                                                                      \
    }
FOR_NUMBERS(SCAN, cumsum, Sum)
FOR_NUMBERS(SCAN, cumprod, Product)
